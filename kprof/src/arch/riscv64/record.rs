//! The frame record of riscv64.
//!
//! ```text
//!            │                │ ◄─ s0
//!   s0 - 8   │ return address │
//!   s0 - 16  │ caller's s0    │
//! ```
//!
//! In: constants for `arch/record.rs`. Pure. (The stack pointer is a multiple of 16, but the psABI promises it only at
//! calls, so a record need only be aligned to a word.)

/// How far the record begins below the address in the frame pointer.
pub(crate) const BELOW: u64 = 16;
/// The alignment of records.
pub(crate) const ALIGN: u64 = 8;

/// The address in a word that was saved as a return address: all of it.
#[inline(always)]
pub(crate) const fn code_address(word: u64) -> u64 {
    word
}
