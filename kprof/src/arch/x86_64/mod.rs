//! x86_64: registers, instructions, descriptor tables.
//!
//! The convention (System V ABI for AMD64, 3.2; Intel SDM volume 1, 6.4): a call pushes the return address. A function
//! with a frame begins with `push rbp; mov rbp, rsp`, so rbp holds the address of a pair: the caller's rbp, and above
//! it the return address. No register holds a return address, with one exception: `syscall` leaves the user's RIP in
//! rcx, which is [`crate::Registers::link`] here.

pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod compiled_entry;
pub(crate) mod cycles;
pub(crate) mod entry;
pub mod interrupts;
pub mod own_frame;
pub(crate) mod record;
pub(crate) mod tables;
pub mod timestamp;

/// The name of this processor in the header of a profile.
pub(crate) const NAME: &str = "x86_64";
