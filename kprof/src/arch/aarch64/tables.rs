//! The exception vectors: code at fixed offsets, with no table of addresses or stacks that could be checked.

pub(crate) use crate::arch::no_tables::{gate, interrupt_stack};

/// No vector can be looked up.
pub(crate) const NMI_VECTOR: Option<u8> = None;
/// What to look at if an NMI does not arrive.
pub(crate) const WHY_NO_NMI: &str = "does the core mask FIQs, or does the GIC give this kernel no group 0?";
