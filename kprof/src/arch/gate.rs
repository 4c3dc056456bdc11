//! An entry of the table in which the processor looks up its entry stubs, where there is such a table. Pure data.

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    /// The address of the entry stub.
    pub(crate) handler: u64,
    /// The number of the stack that the processor switches to; 0: none.
    pub(crate) ist: u8,
}
