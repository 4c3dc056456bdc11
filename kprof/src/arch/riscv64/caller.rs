//! Finds the caller where s0 is not that of the running function: in a prologue, in an epilogue, or in a function
//! without a frame. The caller is then in ra.
//!
//! In: registers, the code around PC. Out: a caller, or a candidate, or nothing. Runs in: NMI, once per sample and once
//! per entry frame. Outside of these places ra has an old value: the return address of the last call that the function
//! made. So it is the caller only where the instructions say so: those from PC on lead to the end of the prologue or to
//! the return, or those from the target of the call up to PC have built no frame. Elsewhere it is recorded as a
//! candidate, and the host decides by the unwind tables. (Instructions have two or four bytes, so code is only read
//! forward. Nearly every sample has a candidate, so the fast path takes no innermost frames on this processor.)

use super::call;
pub(crate) use crate::arch::link::{is_saved_frame_pointer, own_frame, rule_by_code};
use crate::arch::view::{Call, Innermost, NO_CODE, View};
use crate::kernel::Registers;

/// The most instructions from PC on that are looked at.
const AHEAD: usize = 32;

/// The word that shows whether [`find`] has to look: ra.
#[inline(always)]
pub(crate) fn first_word(at: &Registers, _stack: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
    Some(at.link)
}

/// The caller or candidate in ra.
pub(crate) fn find(view: &mut impl View, at: &Registers, link: u64) -> Innermost {
    let Some(call) = call_before(view, link) else { return Innermost::None };
    let (mut pc, mut frees) = (at.pc, false);
    for _ in 0..AHEAD {
        let code = view.code(pc);
        match kind(code) {
            Kind::Frees => frees = true,
            // A tail call. The frame is gone, so s0 and ra were loaded before PC.
            Kind::Jumps if frees => return Innermost::Caller(link),
            Kind::SetsFramePointer | Kind::Returns => return Innermost::Caller(link),
            // s0 is still the function's own, so the chain leads to the caller. (ra is loaded before s0.)
            Kind::LoadsFramePointer => return Innermost::None,
            Kind::SavesOrRestores => {}
            Kind::Jumps | Kind::Other => break,
        }
        pc = pc.wrapping_add(length(code));
    }
    if is_without_frame(view, call, at.pc) { Innermost::Caller(link) } else { Innermost::Candidate(link) }
}

/// What an instruction does, as far as prologues and epilogues are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `addi s0, sp, N`.
    SetsFramePointer,
    /// `ld s0, N(sp)`.
    LoadsFramePointer,
    /// Lowers the stack pointer by a constant, stores or loads other registers there.
    SavesOrRestores,
    /// Raises the stack pointer by a constant.
    Frees,
    /// `ret`.
    Returns,
    /// `j`, `jr`, or `auipc t1, N`, with which `tail` begins.
    Jumps,
    Other,
}

/// The first two and the first four bytes.
const fn halves(code: [u8; 8]) -> (u32, u32) {
    let word = u64::from_le_bytes(code) as u32;
    (word & 0xffff, word)
}

fn kind(code: [u8; 8]) -> Kind {
    let (half, word) = halves(code);
    if half & 3 == 3 {
        let is = |mask: u32, value: u32| word & mask == value;
        return if is(0xffff_ffff, 0x0000_8067) {
            Kind::Returns
        } else if is(0x000f_ffff, 0x0001_0413) {
            Kind::SetsFramePointer
        } else if is(0x000f_ffff, 0x0001_3403) {
            Kind::LoadsFramePointer
        } else if is(0x800f_ffff, 0x0001_0113) {
            Kind::Frees
        } else if is(0x000f_ffff, 0x0001_0113) || is(0x000f_f07f, 0x0001_3023) || is(0x000f_f07f, 0x0001_3003) {
            // addi sp, sp, N; sd to the stack; ld from it
            Kind::SavesOrRestores
        } else if is(0x0000_0fff, 0x6f) || is(0x0000_7fff, 0x67) || is(0x0000_0fff, 0x317) {
            Kind::Jumps
        } else {
            Kind::Other
        };
    }
    let is = |mask: u32, value: u32| half & mask == value;
    if is(0xffff, 0x8082) {
        Kind::Returns
    } else if is(0xe01f, 0) && half != 0 {
        // c.addi4spn s0, sp, N
        Kind::SetsFramePointer
    } else if is(0xef83, 0x6402) {
        Kind::LoadsFramePointer
    } else if is(0xff83, 0x6101) || is(0xff83, 0x0101) {
        Kind::Frees
    } else if is(0xef83, 0x6101) || is(0xef83, 0x0101) || is(0xe003, 0xe002) || is(0xe003, 0x6002) {
        // c.addi16sp; c.addi sp, N; c.sdsp; c.ldsp
        Kind::SavesOrRestores
    } else if is(0xe003, 0xa001) || is(0xf07f, 0x8002) {
        Kind::Jumps
    } else {
        Kind::Other
    }
}

/// The call that ends at `address`, if `address` is kernel code and a call ends there.
fn call_before(view: &impl View, address: u64) -> Option<Call> {
    call::ending_at(address, word_before(view, address))?.in_kernel_code(view, address)
}

/// The four bytes before an address.
fn word_before(view: &impl View, address: u64) -> u32 {
    halves(view.code(address.wrapping_sub(4))).1
}

/// The bytes of the first instruction.
const fn length(code: [u8; 8]) -> u64 {
    if code[0] & 3 == 3 { 4 } else { 2 }
}

/// Whether the function that was called has built no frame up to `pc`, and has called no other one.
fn is_without_frame(view: &mut impl View, call: Call, pc: u64) -> bool {
    let Some(target) = call.searched_from(view, pc) else { return false };
    let mut address = target;
    while address < pc {
        let code = view.code(address);
        let next = address.wrapping_add(length(code));
        let calls = call::ending_at(next, word_before(view, next)).is_some();
        if code == NO_CODE || calls || matches!(kind(code), Kind::SetsFramePointer | Kind::Returns) {
            return false;
        }
        address = next;
    }
    address == pc
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
