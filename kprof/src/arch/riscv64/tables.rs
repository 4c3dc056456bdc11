//! The trap vector: one address in STVEC, with no table of addresses or stacks that could be checked.

use crate::arch::gate::Gate;

/// No vector can be looked up.
pub(crate) const NMI_VECTOR: Option<u8> = None;
/// What to look at if an NMI does not arrive.
pub(crate) const WHY_NO_NMI: &str = "does code in machine mode hand this kernel software interrupts?";

/// There are no gates.
pub(crate) fn gate(_vector: u8) -> Option<Gate> {
    None
}

/// There is no table of interrupt stacks.
pub(crate) fn interrupt_stack(_ist: u8) -> Option<u64> {
    None
}
