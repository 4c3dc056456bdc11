//! From an entry stub to what it has interrupted. Stage: capture.
//!
//! In: an address in code, and the stack and frame pointer there. Out: the registers of the interrupted code, if the
//! code at that address ends with `iret` and the words that it will pop are what a processor pushes. Runs in: QEMU's
//! process, and in the tool.

use super::entry::entry;
use super::exit::{Exit, Frame};
use super::{End, INTERRUPT, Registers, SYSCALL, USER, Walk};

impl Walk<'_> {
    /// If this code is an entry stub's: what it has interrupted, or how the stack ends there. Writes the marker. For a
    /// walk by frame pointers, which needs RBP.
    pub fn cross(&mut self, code: u64, rsp: u64, rbp: u64, is_leaf: bool) -> Option<Result<Registers, End>> {
        let crossed = self.cross_to(code, rsp, Some(rbp), is_leaf)?;
        Some(crossed.and_then(|(at, rbp)| match rbp.filter(|rbp| *rbp != 0) {
            Some(rbp) => Ok(Registers { rbp, ..at }),
            None => Err(End::Entry),
        }))
    }

    /// The same, with RBP if it is known before and after.
    pub fn cross_to(
        &mut self,
        code: u64,
        rsp: u64,
        rbp: Option<u64>,
        is_leaf: bool,
    ) -> Option<Result<(Registers, Option<u64>), End>> {
        if !self.half.has_code(code) {
            return None;
        }
        let (words, frame, is_syscall) = match self.exits.of(code, self.read_code) {
            Exit::Interrupt { words, rbp: frame, is_syscall } => {
                let Some(words) = words.known(rsp, rbp) else { return Some(Err(End::Entry)) };
                (words, frame, is_syscall)
            }
            // At a leaf it may be the function that begins the first program.
            Exit::Syscall if !is_leaf => {
                self.words.push(SYSCALL);
                return Some(Err(End::Outermost));
            }
            _ => return None,
        };
        // Code that pushes the words itself has not been entered by them.
        if words < rsp {
            return None;
        }
        let Some(([rip, cs, rflags, rsp_before, _], marker)) = entry(self.half, words, self.word, self.read_code)
        else {
            return if is_leaf { None } else { Some(Err(End::Entry)) };
        };
        self.words.push(match marker {
            INTERRUPT if is_syscall && cs & 3 == 3 => SYSCALL,
            marker => marker,
        });
        if cs & 3 == 3 {
            self.words.extend([USER, rip]);
            return Some(Err(End::Outermost));
        }
        self.push(rip);
        let rbp = match frame {
            Frame::Same => rbp,
            // A word below RSP is not on the stack yet.
            Frame::At(place) => place.known(rsp, rbp).filter(|at| *at >= rsp).and_then(self.word),
            Frame::Is(_) | Frame::Unknown => None,
        };
        Some(Ok((Registers { rip, rsp: rsp_before, rflags, cs, ..Registers::default() }, rbp)))
    }
}
