//! Finds the caller where the frame pointer is not that of the running function: in a prologue, in an epilogue, or in a
//! function without a frame.
//!
//! ```text
//!   f:  push rbp          [rsp] is the caller                     ret           [rsp] is the caller
//!       mov rbp, rsp      [rsp] is rbp, [rsp+8] the caller        pop rbp; jmp  [rsp] is the caller
//!       ...               the frame pointer is right              a function without a frame: [rsp], or not
//! ```
//!
//! In: registers, the words at `[rsp]`, the code around RIP. Out: a caller, or a candidate, or nothing. Runs in: NMI,
//! once per sample and once per entry frame. A word is a caller only if four conditions hold: RSP lies in a stack of
//! this CPU, the word is an address in text, a call instruction ends there, and the instruction at RIP allows no other
//! interpretation. A stale word on the stack can satisfy the first three. So where the instruction does not settle the
//! question, the word is recorded as a candidate and the host decides.

use super::call;
use crate::arch::view::{Call, Innermost, NO_CODE, View};
use crate::format::unwind::{Base, Rule, Saved};
use crate::kernel::Registers;

/// `push rbp; mov rbp, rsp` in its two encodings.
const PROLOGUES: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];

/// The word that shows whether [`find`] has to look: the lowest word of the stack, read by `stack`.
#[inline(always)]
pub(crate) fn first_word(at: &Registers, stack: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
    stack(at.sp)
}

/// Whether that word is the frame pointer, which a prologue has just saved. (Whether it is a code address, the caller
/// tests.) Both are false for nearly every sample: the lowest word of a frame is rarely either.
#[inline(always)]
pub(crate) const fn is_saved_frame_pointer(at: &Registers, word: u64) -> bool {
    word == at.fp
}

/// Where the frame of the running function will be or was, if [`find`] has found its caller; `word` is the lowest word
/// of the stack.
pub(crate) const fn own_frame(at: &Registers, word: u64) -> Option<u64> {
    Some(if is_saved_frame_pointer(at, word) { at.sp } else { at.sp.wrapping_sub(8) })
}

/// The caller or candidate that lies at the lowest words of the stack; `top` is the lowest.
pub(crate) fn find(view: &mut impl View, at: &Registers, top: u64) -> Innermost {
    let (here, before) = (view.code(at.pc), view.code(at.pc.wrapping_sub(8))[7]);
    // After `push rbp`, the caller is one word higher.
    let pushed = is_saved_frame_pointer(at, top);
    let word = if pushed { view.stack_word(at.sp.wrapping_add(8)) } else { Some(top) };
    let Some(word) = word.filter(|_| here != NO_CODE) else { return Innermost::None };
    let Some(call) = call_before(view, word) else { return Innermost::None };
    let is_certain = if pushed {
        before == 0x55 && moves_rsp_to_rbp(&here)
    } else {
        begins_with_prologue(&here) || begins_with_return(&here) || before == 0x5d && begins_with_jump(&here)
    };
    if is_certain || is_without_frame(view, call, at.pc, pushed) {
        Innermost::Caller(word)
    } else {
        Innermost::Candidate(word)
    }
}

/// How the caller is found in a function that an unwind table does not describe, assembly for instance. `None` if its
/// code does not tell. It tells if the return address follows a direct call, and the code from the target of that call
/// on either builds no frame up to here, or begins with a prologue.
pub(crate) fn rule_by_code(view: &mut impl View, at: &Registers) -> Option<Rule> {
    let top = view.stack_word(at.sp)?;
    if let Innermost::Caller(_) = find(view, at, top) {
        let base = Base::Stack(if is_saved_frame_pointer(at, top) { 16 } else { 8 });
        return Some(Rule { base, frame: Saved::Same });
    }
    let record = (at.fp >= at.sp).then_some(at.fp)?;
    let return_address = view.stack_word(record.wrapping_add(8))?;
    let target = call_before(view, return_address)?.searched_from(view, at.pc)?;
    let code = view.code(target);
    // An `endbr64` has four bytes, and so has the prologue.
    let prologue_bytes = if code[0] == 0xf3 { 8 } else { 4 };
    let has_frame = begins_with_prologue(&code) && at.pc.wrapping_sub(target) >= prologue_bytes;
    has_frame.then_some(Rule { base: Base::Frame(16), frame: Saved::Below(16) })
}

/// The call that ends at `address`, if `address` is kernel code and a call ends there.
fn call_before(view: &impl View, address: u64) -> Option<Call> {
    call::ending_at(address, view.code(address.wrapping_sub(8)))?.in_kernel_code(view, address)
}

/// Decides whether a word that looks like a caller is one, where the instruction at `rip` does not tell. It is the
/// caller if the call went to code that reaches `rip` without building a frame: if the running function had built one,
/// its prologue would lie between the target of the call and `rip`.
fn is_without_frame(view: &mut impl View, call: Call, rip: u64, pushed: bool) -> bool {
    let Some(target) = call.searched_from(view, rip) else { return false };
    let mut pushes = 0_i32;
    for address in target..rip {
        let code = view.code(address);
        if code == NO_CODE || begins_with_prologue(&code) || begins_with_return(&code) || moves_rsp(&code) {
            return false;
        }
        let change = i32::from(code[0] == 0x55).wrapping_sub(i32::from(code[0] == 0x5d));
        pushes = pushes.wrapping_add(change);
    }
    pushes == i32::from(pushed)
}

fn begins_with_prologue(code: &[u8; 8]) -> bool {
    // An `endbr64` may precede the prologue.
    let code = if code[..4] == [0xf3, 0x0f, 0x1e, 0xfa] { &code[4..] } else { &code[..4] };
    PROLOGUES.iter().any(|prologue| code == prologue)
}

fn moves_rsp_to_rbp(code: &[u8; 8]) -> bool {
    PROLOGUES.iter().any(|prologue| code[..3] == prologue[1..])
}

/// `sub` and `add` of a constant to rsp, and `lea rsp, [rsp+x]`, all without their prefix. After these,
/// `[rsp]` may hold the return address of an earlier call of this function, which would look right.
fn moves_rsp(code: &[u8; 8]) -> bool {
    matches!(code, [0x81 | 0x83, 0xec | 0xc4, ..] | [0x8d, 0x64 | 0xa4, 0x24, ..])
}

/// `ret`, `ret imm16`, `repz ret`.
fn begins_with_return(code: &[u8; 8]) -> bool {
    matches!(code, [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..])
}

/// `jmp rel8`, `jmp rel32`, `jmp r/m64`.
fn begins_with_jump(code: &[u8; 8]) -> bool {
    match code {
        [0xe9 | 0xeb, ..] => true,
        [0xff, modrm, ..] | [0x41, 0xff, modrm, ..] => modrm >> 3 & 7 == 4,
        _ => false,
    }
}
