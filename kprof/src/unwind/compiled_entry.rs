//! Crosses the entries that a compiler has made, `extern "x86-interrupt"` functions.
//!
//! Our goal is to find the words that the processor has pushed. The compiler's function has a frame pointer like any
//! other, so they lie at a fixed distance above its frame, and at its first and last instructions at a distance from
//! the stack pointer that the code itself shows. Nobody knows where such a function ends, so the words decide whether
//! this is the entry at all: an ordinary function has no code segment, flags and stack pointer there.
//!
//! In: what the kernel says of the entry, a frame or registers. Out: an entry to cross, or `None` for an ordinary
//! function. Runs in: NMI. It reads aligned words of a declared stack and code, and trusts neither.

use super::stop::Saved;
use super::words::word_of;
use super::{Memory, NOWHERE, Stop, Walk};
use crate::arch::{compiled_entry, entry};
use crate::format::marker::Marker;
use crate::kernel::{CompiledEntry, Kernel, Registers};

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// The entry whose frame is at `frame`: its saved frame pointer, and above it what the processor has pushed.
    pub(super) fn compiled_entry(&self, compiled: CompiledEntry, frame: u64) -> Option<Stop> {
        let fp = self.word(&self.stack_of(frame), frame)?;
        self.entry_at(compiled.marker, frame.wrapping_add(compiled_entry::above_frame(compiled.has_error_code)), fp)
    }

    /// The entry that runs, at one of its instructions.
    pub(super) fn in_compiled_entry(&self, compiled: CompiledEntry, at: &Registers) -> Option<Stop> {
        let (before, here) = (self.code(at.pc.wrapping_sub(8)), self.code(at.pc));
        match compiled_entry::without_frame(compiled.has_error_code, &before, &here) {
            // The frame pointer is that of the interrupted code.
            Some(distance) => self.entry_at(compiled.marker, at.sp.wrapping_add(distance), at.fp),
            None => self.compiled_entry(compiled, at.fp),
        }
    }

    /// The entry whose saved words are at `address`, if such words are there.
    #[inline(never)]
    pub(super) fn entry_at(&self, marker: Marker, address: u64, fp: u64) -> Option<Stop> {
        let range = self.stack_of(address);
        if !self.holds(&range, address, entry::BYTES) {
            return None;
        }
        // SAFETY: `holds` has confirmed that these are aligned words of a range that came from `stack_of`.
        let word = |offset: u64| unsafe { self.memory.stack(address.wrapping_add(offset)) };
        let interrupted = entry::interrupted(word, fp);
        let is_pushed = compiled_entry::is_pushed(word) && (interrupted.from_user || self.is_code(interrupted.pc));
        // On the same stack the processor begins directly below the interrupted stack pointer, at a multiple of 16.
        let is_left = |sp: u64| {
            sp & !15 == address.wrapping_add(entry::BYTES) || !range.contains(&sp) && self.stack_of(sp) != NOWHERE
        };
        let is_entry = is_pushed && (interrupted.from_user || is_left(interrupted.sp));
        is_entry.then(|| Stop::Entry { marker: word_of(marker), saved: Saved::At { address, fp } })
    }
}
