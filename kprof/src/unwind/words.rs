//! Interprets words that are found where a return address was expected but are not one: entry markers, the root, and
//! everything else.
//!
//! In: such a word. Out: why the walk stops there: at an entry, at the root, or truncated. Runs in: NMI. Pure: reads no
//! memory.

use super::Stop;
use super::stop::Saved;
use crate::arch::record;
use crate::format::marker::{MARKER_PAGE, Marker, TruncationReason};

/// The markers of entries are consecutive: interrupts, exceptions, syscall.
pub(super) const FIRST_ENTRY: u64 = Marker::Interrupt(0).encode();
pub(super) const SYSCALL: u64 = Marker::Syscall.encode();
const _: () = assert!(SYSCALL - FIRST_ENTRY == 0x200, "256 interrupts, 256 exceptions, then the syscall");

/// The marker word of an entry. Every marker that is neither interrupt nor exception counts as a system call.
#[inline(always)]
pub(super) fn word_of(marker: Marker) -> u64 {
    match marker {
        Marker::Interrupt(vector) => FIRST_ENTRY + u64::from(vector),
        Marker::Exception(vector) => FIRST_ENTRY + 0x100 + u64::from(vector),
        _ => SYSCALL,
    }
}

/// What a word means that was found where a return address was expected and is not an address in text.
#[cold]
pub(super) fn not_text(word: u64, frame: u64, next: u64) -> Stop {
    match word {
        FIRST_ENTRY..=SYSCALL => {
            Stop::Entry { marker: word, saved: Saved::At { address: record::saved_at(frame), fp: next } }
        }
        0 => Stop::Root,
        _ => Stop::Truncated(TruncationReason::NotText),
    }
}

const _: () = assert!(MARKER_PAGE > 0xffff_ffff_8000_0000, "no return address can be taken for a marker");
