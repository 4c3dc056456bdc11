//! The hardware: the only files that execute privileged or machine-specific instructions.

pub(crate) mod add;
pub(crate) mod interrupts;
pub(crate) mod memory;
pub(crate) mod tables;
pub(crate) mod tsc;
