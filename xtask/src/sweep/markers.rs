//! The markers that the sweeps look for in stacks, as numbers: the sweeps check kprof, so they do not take them from
//! it.
//!
//! In: nothing. Out: constants.

/// Markers are addresses in the last page.
pub const MARKER_PAGE: u64 = 0xffff_ffff_ffff_f000;
/// An entry by a system call.
pub const SYSCALL: u64 = MARKER_PAGE | 0x300;
