//! riscv64: registers and instructions.
//!
//! The convention (RISC-V ELF psABI, "Frame Pointer Convention"): a call leaves the return address in ra, the link
//! register. A function with a frame stores ra and s0 at the top of it and sets s0, the frame pointer, to the address
//! above them, which is the stack pointer that it was called with:
//!
//! ```text
//!   f:  addi sp, sp, -N     s0 is the caller's, ra is the return address
//!       sd ra, N-8(sp)      the same
//!       sd s0, N-16(sp)     the same
//!       addi s0, sp, N      the same: the last instruction at which s0 leads past the caller
//!       ...                 s0 leads to (caller's s0, return address); ra is anything
//!       ld ra, N-8(sp)      the same
//!       ld s0, N-16(sp)     the same: the last instruction at which s0 is the function's own
//!       addi sp, sp, N      s0 is the caller's, ra is the return address
//!       ret                 the same
//! ```

pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod cycles;
pub(crate) mod entry;
pub mod interrupts;
pub mod own_frame;
pub(crate) mod record;
pub(crate) mod tables;
pub mod timestamp;

/// The name of this processor in the header of a profile.
pub(crate) const NAME: &str = "riscv64";
