//! Words in the place of a return address that are none: entry markers, the root, and everything else.
//!
//! In: a word of a stack. Out: what it means for a walk. Runs in: NMI. Pure: nothing is read here.

use super::Stop;
use crate::format::marker::{MARKER_PAGE, Marker, TruncationReason};

/// The markers of entries lie side by side: interrupts, exceptions, syscall.
pub(super) const FIRST_ENTRY: u64 = Marker::Interrupt(0).encode();
pub(super) const SYSCALL: u64 = Marker::Syscall.encode();
const _: () = assert!(SYSCALL - FIRST_ENTRY == 0x200, "256 interrupts, 256 exceptions, then the syscall");

/// The word of an entry's marker. What is neither interrupt nor exception is a system call.
#[inline(always)]
pub(super) fn word_of(marker: Marker) -> u64 {
    match marker {
        Marker::Interrupt(vector) => FIRST_ENTRY + u64::from(vector),
        Marker::Exception(vector) => FIRST_ENTRY + 0x100 + u64::from(vector),
        _ => SYSCALL,
    }
}

/// What a word in the place of a return address means, if it is not text.
#[cold]
pub(super) fn not_text(word: u64, frame: u64, next: u64) -> Stop {
    match word {
        FIRST_ENTRY..=SYSCALL => Stop::Entry { marker: word, rip_at: Some(frame.wrapping_add(16)), rbp: next },
        0 => Stop::Root,
        _ => Stop::Truncated(TruncationReason::NotText),
    }
}

const _: () = assert!(MARKER_PAGE > 0xffff_ffff_8000_0000, "no return address can be taken for a marker");
