//! The processors for which no compiler makes entries. In: nothing. Out: no word is one of an entry. Pure.

use crate::kernel::CompiledEntry;

/// No code is one.
pub(crate) fn of(_vector: u8, _code: &[u8; 8]) -> Option<CompiledEntry> {
    None
}

/// No word is pushed by the processor.
pub(crate) fn is_pushed(_word: impl Fn(u64) -> u64) -> bool {
    false
}

/// Any distance: no word is taken.
pub(crate) const fn above_frame(_has_error_code: bool) -> u64 {
    0
}

/// No entry, so none without a frame.
pub(crate) const fn without_frame(_has_error_code: bool, _before: &[u8; 8], _here: &[u8; 8]) -> Option<u64> {
    None
}
