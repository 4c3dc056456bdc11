//! The processors without a table of entry stubs and of their stacks. In: nothing. Out: nothing can be looked up. Pure.

use super::gate::Gate;

/// There are no gates.
pub(crate) fn gate(_vector: u8) -> Option<Gate> {
    None
}

/// There is no table of interrupt stacks.
pub(crate) fn interrupt_stack(_ist: u8) -> Option<u64> {
    None
}
