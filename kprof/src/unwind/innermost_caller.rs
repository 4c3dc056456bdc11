//! The caller while the frame pointer is not yet, or no longer, that of the running function.
//!
//! ```text
//!   f:  push rbp          [rsp] is the caller                     ret           [rsp] is the caller
//!       mov rbp, rsp      [rsp] is rbp, [rsp+8] the caller        pop rbp; jmp  [rsp] is the caller
//!       ...               the frame pointer is right              a function without a frame: [rsp], or not
//! ```
//!
//! In: registers, the words at `[rsp]`, the code around RIP. Out: a caller, or a candidate behind marker 6, or nothing.
//! Runs in: NMI, once per sample and border. A word is a caller only if RSP lies in a stack of this CPU, the word is
//! text, a call ends there, and the instruction at RIP leaves no other reading. A stale word on the stack can pass the
//! first three, so whatever the instruction does not settle goes along as a candidate, for the host to decide.

use super::call::{self, Call};
use super::{Memory, Walk};
use crate::format::marker::Marker;
use crate::kernel::{Kernel, Registers};
use core::ops::Range;

/// What the edge of a stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Innermost {
    /// The frame pointer is right, as far as can be seen.
    None,
    /// This is the caller.
    Caller(u64),
    /// This may be the caller.
    Candidate(u64),
}

/// `push rbp; mov rbp, rsp` in its two encodings.
const PROLOGUES: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
/// What `code` says of an address that has none.
const NO_CODE: [u8; 8] = [0; 8];
/// How far behind the target of a call RIP may be for its code to be looked through for a prologue. All of these
/// together are bounded by [`super::MAX_SCANNED`].
const SCAN_BYTES: u64 = 256;

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Pushes the caller or candidate at the edge, if there is one.
    #[inline(always)]
    pub(super) fn innermost_caller(&mut self, at: &Registers, range: &Range<u64>) {
        if !self.holds(range, at.rsp, 8) {
            return;
        }
        // SAFETY: `holds` has just said that it is an aligned word of the range, which is one that `stack_of` gave.
        let top = unsafe { self.memory.stack(at.rsp) };
        // Nearly every sample ends here: the lowest word of a frame is rarely code, and never the frame pointer itself.
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
        // A frame over the limit is reported by the walk that follows.
        if !is_sure && self.frames_left > 0 {
            self.sink.push(Marker::Candidate.encode());
        }
        self.push_frame(caller);
    }

    fn find_innermost_caller(&mut self, at: &Registers, range: &Range<u64>, top: u64) -> Innermost {
        let (here, before) = (self.code(at.rip), self.code(at.rip.wrapping_sub(8))[7]);
        // After a push of rbp the caller is one word higher.
        let pushed = top == at.rbp;
        if here == NO_CODE || pushed && !self.holds(range, at.rsp.wrapping_add(8), 8) {
            return Innermost::None;
        }
        // SAFETY: an aligned word of a declared stack, as `innermost_caller` has found; or the next one, as `holds` has
        // said here.
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

    /// The call that ends at `address`, if that is text and one does.
    fn call_before(&self, address: u64) -> Option<Call> {
        let call = call::ending_at(address, self.code(address.wrapping_sub(8)))?;
        let target = if let Call::Direct(target) = call { target } else { address };
        (self.is_code(address) && self.is_code(target)).then_some(call)
    }

    /// A word looks like a caller, while the instruction at `rip` says nothing: it is the caller if the call went to
    /// code that reaches `rip` without making a frame. Had the running function made one, its prologue would lie
    /// between.
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
    // endbr64 may stand before it.
    let code = if code[..4] == [0xf3, 0x0f, 0x1e, 0xfa] { &code[4..] } else { &code[..4] };
    PROLOGUES.iter().any(|prologue| code == prologue)
}

fn moves_rsp_to_rbp(code: &[u8; 8]) -> bool {
    PROLOGUES.iter().any(|prologue| code[..3] == prologue[1..])
}

/// `sub` and `add` of a number to rsp, `lea rsp, [rsp+x]`, all without their prefix: what lies on top then may be of an
/// earlier call of the same function.
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
