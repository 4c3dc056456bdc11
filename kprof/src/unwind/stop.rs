//! Why a walk, or a part of it, ended. Pure data; task: NMI.

use crate::format::marker::TruncationReason;

/// The end of a run of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The outermost frame: nothing is missing.
    Root,
    /// Frames are missing; the reason travels with the sample.
    Truncated(TruncationReason),
    /// An entry stub's frame: the walk goes on behind it.
    Entry {
        /// The word of an interrupt, exception or syscall.
        marker: u64,
        /// The address of the saved RIP; `None`: the syscall stub still has it in rcx.
        rip_at: Option<u64>,
        /// rbp of the interrupted code.
        rbp: u64,
    },
}
