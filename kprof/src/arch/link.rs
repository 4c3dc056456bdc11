//! What the rules about the innermost caller have in common on processors whose calls leave the return address in a
//! link register. In: registers. Out: nothing that the link register does not show. Pure.

use super::view::View;
use crate::format::unwind::Rule;
use crate::kernel::Registers;

/// Whether the first word is the frame pointer: never. No instruction of a prologue can only be told by it.
#[inline(always)]
pub(crate) const fn is_saved_frame_pointer(_at: &Registers, _word: u64) -> bool {
    false
}

/// Where the frame of the running function will be or was: not known, because a prologue moves the stack pointer by
/// any amount before it stores the record.
pub(crate) const fn own_frame(_at: &Registers, _word: u64) -> Option<u64> {
    None
}

/// The caller of a function that an unwind table does not describe: not known. Tables are for x86_64.
pub(crate) fn rule_by_code(_view: &mut impl View, _at: &Registers) -> Option<Rule> {
    None
}
