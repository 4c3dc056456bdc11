//! Finds the caller where the frame pointer is not that of the running function: in a prologue, in an epilogue, or in a
//! function without a frame.
//!
//! ```text
//!   f:  push rbp          [rsp] is the caller                     ret           [rsp] is the caller
//!       mov rbp, rsp      [rsp] is rbp, [rsp+8] the caller        pop rbp; jmp  [rsp] is the caller
//!       ...               the frame pointer is right              a function without a frame: [rsp], or not
//! ```
//!
//! In: registers, the words at `[rsp]`, the code around RIP. Out: a caller, or a candidate after marker 6, or nothing.
//! Runs in: NMI, once per sample and once per entry frame. A word is a caller only if four conditions hold: RSP lies in
//! a stack of this CPU, the word is an address in text, a call instruction ends there, and the instruction at RIP
//! allows no other interpretation. A stale word on the stack can satisfy the first three. So where the instruction does
//! not settle the question, the word is recorded as a candidate and the host decides.

use super::call::{self, Call};
use super::{Memory, Walk};
use crate::format::marker::Marker;
use crate::kernel::{Kernel, Registers};
use core::ops::Range;

/// What was found at the lowest words of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Innermost {
    /// No caller was found: as far as can be seen, the frame pointer is right.
    None,
    /// This address is the caller.
    Caller(u64),
    /// This address may be the caller.
    Candidate(u64),
}

/// `push rbp; mov rbp, rsp` in its two encodings.
const PROLOGUES: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
/// What `code` returns for an address that is not kernel code.
const NO_CODE: [u8; 8] = [0; 8];
/// How far RIP may be after the target of a call for the code between them to be searched for a prologue. All searches
/// of one walk together are bounded by [`super::MAX_SCANNED`].
const SCAN_BYTES: u64 = 256;

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Pushes the caller or candidate that lies at the lowest words of the stack, if there is one.
    #[inline(always)]
    pub(super) fn innermost_caller(&mut self, at: &Registers, range: &Range<u64>) {
        if !self.holds(range, at.rsp, 8) {
            return;
        }
        // SAFETY: `holds` has just confirmed that this is an aligned word of the range, and the range came from
        // `stack_of`.
        let top = unsafe { self.memory.stack(at.rsp) };
        // This test is false for nearly every sample: the lowest word of a frame is rarely a code address, and never
        // the frame pointer itself.
        if top == at.rbp || self.is_text(top) {
            self.push_innermost_caller(at, range, top);
        }
    }

    #[cold]
    fn push_innermost_caller(&mut self, at: &Registers, range: &Range<u64>, top: u64) {
        let (caller, is_sure) = match self.find_innermost_caller(at, range, top) {
            Innermost::None => return,
            Innermost::Caller(caller) => (caller, true),
            Innermost::Candidate(candidate) => (candidate, false),
        };
        // If the frame limit is reached, the walk that follows reports it.
        if !is_sure && self.frames_left > 0 {
            self.sink.push(Marker::Candidate.encode());
        }
        self.push_frame(caller);
    }

    fn find_innermost_caller(&mut self, at: &Registers, range: &Range<u64>, top: u64) -> Innermost {
        let (here, before) = (self.code(at.rip), self.code(at.rip.wrapping_sub(8))[7]);
        // After `push rbp`, the caller is one word higher.
        let pushed = top == at.rbp;
        if here == NO_CODE || pushed && !self.holds(range, at.rsp.wrapping_add(8), 8) {
            return Innermost::None;
        }
        // SAFETY: either the aligned word of a declared stack that `innermost_caller` has checked, or the next word,
        // which `holds` has checked here.
        let word = unsafe { self.memory.stack(at.rsp.wrapping_add(if pushed { 8 } else { 0 })) };
        let Some(call) = self.call_before(word) else { return Innermost::None };
        let is_certain = if pushed {
            before == 0x55 && moves_rsp_to_rbp(&here)
        } else {
            begins_with_prologue(&here) || begins_with_return(&here) || before == 0x5d && begins_with_jump(&here)
        };
        if is_certain || self.is_without_frame(call, at.rip, pushed) {
            Innermost::Caller(word)
        } else {
            Innermost::Candidate(word)
        }
    }

    /// The call that ends at `address`, if `address` is kernel code and a call ends there.
    fn call_before(&self, address: u64) -> Option<Call> {
        let call = call::ending_at(address, self.code(address.wrapping_sub(8)))?;
        let target = if let Call::Direct(target) = call { target } else { address };
        (self.is_code(address) && self.is_code(target)).then_some(call)
    }

    /// Decides whether a word that looks like a caller is one, where the instruction at `rip` does not tell. It is the
    /// caller if the call went to code that reaches `rip` without building a frame: if the running function had built
    /// one, its prologue would lie between the target of the call and `rip`.
    fn is_without_frame(&mut self, call: Call, rip: u64, pushed: bool) -> bool {
        let Call::Direct(target) = call else { return false };
        let distance = rip.wrapping_sub(target);
        if distance > SCAN_BYTES || distance > self.scan_left {
            return false;
        }
        self.scan_left = self.scan_left.wrapping_sub(distance);
        let mut pushes = 0_i32;
        for address in target..rip {
            let code = self.code(address);
            if code == NO_CODE || begins_with_prologue(&code) || begins_with_return(&code) || moves_rsp(&code) {
                return false;
            }
            let change = i32::from(code[0] == 0x55).wrapping_sub(i32::from(code[0] == 0x5d));
            pushes = pushes.wrapping_add(change);
        }
        pushes == i32::from(pushed)
    }
}

fn begins_with_prologue(code: &[u8; 8]) -> bool {
    // An `endbr64` may precede the prologue.
    let code = if code[..4] == [0xf3, 0x0f, 0x1e, 0xfa] { &code[4..] } else { &code[..4] };
    PROLOGUES.iter().any(|prologue| code == prologue)
}

fn moves_rsp_to_rbp(code: &[u8; 8]) -> bool {
    PROLOGUES.iter().any(|prologue| code[..3] == prologue[1..])
}

/// `sub` and `add` of a constant to rsp, and `lea rsp, [rsp+x]`, all without their prefix. After these, the word at
/// `[rsp]` may be left over from an earlier call of the same function.
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
