//! aarch64: registers and instructions.
//!
//! The convention (Procedure Call Standard for the Arm 64-bit Architecture, 6.4.6; LLVM's frame lowering): `bl` leaves
//! the return address in x30, the link register. A function with a frame stores x29 and x30 as a pair and sets x29 to
//! the pair's address. Both change in few instructions:
//!
//! ```text
//!   f:  sub sp, sp, #N              x29 is the caller's, x30 is the return address
//!       stp x29, x30, [sp, #N-16]   the same
//!       add x29, sp, #N-16          the same: the last instruction at which x29 leads past the caller
//!       ...                         x29 leads to (caller's x29, return address); x30 is anything
//!       ldp x29, x30, [sp, #N-16]   the same: the last instruction at which x29 is the function's own
//!       add sp, sp, #N              x29 is the caller's, x30 is the return address
//!       ret                         the same
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
pub(crate) const NAME: &str = "aarch64";
