//! The frame record of x86_64.
//!
//! ```text
//!   rbp + 8  │ return address │
//!   rbp      │ caller's rbp   │ ◄─ rbp
//! ```
//!
//! In: constants for `arch/record.rs`. Pure.

/// How far the record begins below the address in the frame pointer.
pub(crate) const BELOW: u64 = 0;
/// The alignment of records.
pub(crate) const ALIGN: u64 = 8;

/// The address in a word that was saved as a return address: all of it.
#[inline(always)]
pub(crate) const fn code_address(word: u64) -> u64 {
    word
}
