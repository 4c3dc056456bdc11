//! Finds the caller where x29 is not that of the running function: in a prologue, in an epilogue, or in a function
//! without a frame. The caller is then in the link register.
//!
//! In: registers, the code around PC. Out: a caller, or a candidate, or nothing. Runs in: NMI, once per sample and once
//! per entry frame. Outside of these places the link register has an old value: the return address of the last call
//! that the function made. So it is the caller only where the instructions say so: those from PC on lead to the end of
//! the prologue or to the return, or those from the target of the call up to PC have built no frame. Elsewhere it is
//! recorded as a candidate, and the host decides by the unwind tables. (Nearly every sample has one, so the fast path
//! takes no innermost frames on this processor.)

use super::call;
use super::record::code_address;
pub(crate) use crate::arch::link::{is_saved_frame_pointer, own_frame, rule_by_code};
use crate::arch::view::{Call, Innermost, View};
use crate::kernel::Registers;

/// The most instructions from PC on that are looked at.
const AHEAD: u64 = 16;

/// The word that shows whether [`find`] has to look: the link register.
#[inline(always)]
pub(crate) fn first_word(at: &Registers, _stack: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
    Some(code_address(at.link))
}

/// The caller or candidate in the link register.
pub(crate) fn find(view: &mut impl View, at: &Registers, link: u64) -> Innermost {
    let Some(call) = call_before(view, link) else { return Innermost::None };
    for index in 0..AHEAD {
        match kind(instruction(view, at.pc.wrapping_add(index.wrapping_mul(4)))) {
            Kind::StoresRecord | Kind::SetsFramePointer | Kind::Returns => return Innermost::Caller(link),
            Kind::LoadsRecord => return Innermost::None,
            Kind::SavesOrRestores => {}
            Kind::Jumps if has_loaded_record(view, at.pc) => return Innermost::Caller(link),
            Kind::Jumps | Kind::Other => break,
        }
    }
    if is_without_frame(view, call, at.pc) { Innermost::Caller(link) } else { Innermost::Candidate(link) }
}

/// What an instruction does, as far as prologues and epilogues are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `stp x29, x30, [sp, ..]`.
    StoresRecord,
    /// `add x29, sp, ..`, which is also `mov x29, sp`.
    SetsFramePointer,
    /// `ldp x29, x30, [sp, ..]`.
    LoadsRecord,
    /// Moves the stack pointer by a constant, stores or loads other registers there, signs or checks x30.
    SavesOrRestores,
    /// `ret`.
    Returns,
    /// A jump, as a tail call ends.
    Jumps,
    Other,
}

fn kind(instruction: u32) -> Kind {
    let is = |mask: u32, value: u32| instruction & mask == value;
    // Each line: mask and value of one encoding, for the forms with an offset and with write-back.
    if is(0xff40_7fff, 0xa900_7bfd) {
        Kind::StoresRecord
    } else if is(0xffc0_03ff, 0x9100_03fd) {
        Kind::SetsFramePointer
    } else if is(0xffc0_7fff, 0xa940_7bfd) || is(0xffc0_7fff, 0xa8c0_7bfd) {
        Kind::LoadsRecord
    } else if is(0xffff_ffff, 0xd65f_03c0) || is(0xffff_fbff, 0xd65f_0bff) {
        Kind::Returns
    } else if is(0xfc00_0000, 0x1400_0000) || is(0xffff_fc1f, 0xd61f_0000) {
        Kind::Jumps
    } else {
        let moves_sp = is(0xbf80_03ff, 0x9100_03ff);
        // stp, ldp with an offset, ldp with write-back: of general and of vector registers.
        let pair = is(0xff40_03e0, 0xa900_03e0) || is(0xffc0_03e0, 0xa940_03e0) || is(0xffc0_03e0, 0xa8c0_03e0);
        let vectors = is(0xff40_03e0, 0x6d00_03e0) || is(0xffc0_03e0, 0x6d40_03e0) || is(0xffc0_03e0, 0x6cc0_03e0);
        // str, ldr with an offset; with write-back.
        let one = is(0xff80_03e0, 0xf900_03e0) || is(0xffe0_0fe0, 0xf800_0fe0) || is(0xffe0_0fe0, 0xf840_07e0);
        // paciasp, pacibsp, autiasp, autibsp; bti.
        let signs = is(0xffff_ff3f, 0xd503_233f) || is(0xffff_ff3f, 0xd503_241f);
        if moves_sp || pair || one || vectors || signs { Kind::SavesOrRestores } else { Kind::Other }
    }
}

/// Whether the epilogue that PC is in has restored x29 and x30 already.
fn has_loaded_record(view: &impl View, pc: u64) -> bool {
    for index in 1..AHEAD {
        match kind(instruction(view, pc.wrapping_sub(index.wrapping_mul(4)))) {
            Kind::LoadsRecord => return true,
            Kind::SavesOrRestores => {}
            _ => return false,
        }
    }
    false
}

/// The call that ends at `address`, if `address` is kernel code and a call ends there.
fn call_before(view: &impl View, address: u64) -> Option<Call> {
    if address & 3 != 0 {
        return None;
    }
    call::ending_at(address, instruction(view, address.wrapping_sub(4)))?.in_kernel_code(view, address)
}

/// Whether the function that was called has built no frame up to `pc`, and has called no other one.
fn is_without_frame(view: &mut impl View, call: Call, pc: u64) -> bool {
    let Some(target) = call.searched_from(view, pc) else { return false };
    (target..pc).step_by(4).all(|address| {
        let instruction = instruction(view, address);
        let builds = matches!(kind(instruction), Kind::StoresRecord | Kind::SetsFramePointer | Kind::Returns);
        instruction != 0 && !builds && call::ending_at(address, instruction).is_none()
    })
}

/// The instruction at an address; 0, which is no instruction of a compiler, if there is no code.
fn instruction(view: &impl View, address: u64) -> u32 {
    first_of(view.code(address))
}

/// The first of two instructions.
const fn first_of(code: [u8; 8]) -> u32 {
    u64::from_le_bytes(code) as u32
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
