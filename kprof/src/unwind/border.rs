//! Across an entry stub: from the handler's frames to what it interrupted.
//!
//! ```text
//!   frame + 48 │ SS     │
//!   frame + 40 │ RSP    │
//!   frame + 32 │ RFLAGS │   the hardware frame; a syscall stub pushes the same five words
//!   frame + 24 │ CS     │
//!   frame + 16 │ RIP    │ ◄─ rip_at
//!   frame + 8  │ marker │   in the place of a return address (and of the hardware's error code)
//!   frame      │ rbp    │   of the interrupted code
//! ```
//!
//! In: a marker and the address of the hardware frame. Out: the marker, then the interrupted instruction, then either its
//! registers to go on with, or the end. Context: NMI. The five words are read only where a declared stack holds them all.

use super::{Memory, Stop, Walk};
use crate::format::marker::{CutReason, Marker};
use crate::hooks::{EntryFrame, Kernel, Registers};
use crate::ring::Full;

/// What lies behind a border.
pub(crate) enum Crossed {
    /// Kernel code; its address has been pushed.
    Kernel(Registers),
    /// User code, or nothing that can be used.
    Ended(Stop),
}

fn is_interrupt(marker: Marker) -> bool {
    matches!(marker, Marker::Interrupt(_) | Marker::Exception(_))
}

/// The border that the kernel found at a stub's instruction.
pub(super) fn of_entry_frame(frame: EntryFrame, rbp: u64) -> Stop {
    match frame {
        EntryFrame::OnStack { marker, rip_at } => Stop::Border { marker, rip_at: Some(rip_at), rbp },
        EntryFrame::InRegisters { marker } => Stop::Border { marker, rip_at: None, rbp },
    }
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Pushes the marker and what was interrupted. `rcx` is the user's RIP where the stub still has it there, 0 if unknown.
    #[inline(never)]
    pub(super) fn cross(&mut self, marker: Marker, rip_at: Option<u64>, rbp: u64, rcx: u64) -> Result<Crossed, Full> {
        let interrupted = match rip_at {
            None => Some(Registers { rip: rcx, cs: 3, rbp, ..Registers::default() }),
            Some(rip_at) => self.hardware_frame(rip_at, rbp),
        };
        let Some(interrupted) = interrupted else {
            self.sink.push(marker.encode())?;
            self.in_interrupt |= is_interrupt(marker);
            return Ok(Crossed::Ended(Stop::Cut(CutReason::Range)));
        };
        let crossed = self.cross_to(marker, &interrupted)?;
        Ok(match (crossed, rip_at.map_or(Ok(()), |rip_at| self.out_of(rip_at, &interrupted))) {
            (Crossed::Kernel(_), Err(reason)) => Crossed::Ended(Stop::Cut(reason)),
            (crossed, _) => crossed,
        })
    }

    /// The same for registers that are known.
    pub(super) fn cross_to(&mut self, marker: Marker, interrupted: &Registers) -> Result<Crossed, Full> {
        self.sink.push(marker.encode())?;
        self.in_interrupt |= is_interrupt(marker);
        if interrupted.cs & 3 == 3 {
            return Ok(Crossed::Ended(self.user_behind_border(interrupted)?));
        }
        if !self.is_text(interrupted.rip) {
            return Ok(Crossed::Ended(Stop::Cut(CutReason::NotText)));
        }
        match self.push_frame(interrupted.rip)? {
            Some(stop) => Ok(Crossed::Ended(stop)),
            None => Ok(Crossed::Kernel(*interrupted)),
        }
    }

    /// From the stack of a hardware frame to that of the interrupted code: the same, above the frame, or another.
    fn out_of(&mut self, rip_at: u64, interrupted: &Registers) -> Result<(), CutReason> {
        if interrupted.cs & 3 == 3 {
            return Ok(());
        }
        let rsp = interrupted.rsp;
        let from = self.stack_of(rip_at).ok_or(CutReason::Range)?;
        let to = self.stack_of(rsp).ok_or(CutReason::Range)?;
        if from.start != to.start {
            return self.stacks.change(&from, &to);
        }
        if rsp > rip_at { Ok(()) } else { Err(CutReason::Loop) }
    }

    /// The five words at `rip_at`, if a stack holds them.
    fn hardware_frame(&self, rip_at: u64, rbp: u64) -> Option<Registers> {
        let range = self.stack_of(rip_at)?;
        let word = |index: u64| self.word(&range, rip_at.checked_add(8 * index)?);
        word(4)?;
        Some(Registers { rip: word(0)?, cs: word(1)?, rflags: word(2)?, rsp: word(3)?, rbp, rcx: 0 })
    }

    /// User code begins: its marker, its instruction, and its frames where they are asked for.
    fn user_behind_border(&mut self, interrupted: &Registers) -> Result<Stop, Full> {
        self.sink.push(Marker::User.encode())?;
        if interrupted.rip == 0 {
            return Ok(Stop::Root);
        }
        match self.push_frame(interrupted.rip)? {
            Some(stop) => Ok(stop),
            None => self.user(interrupted.rbp),
        }
    }
}
