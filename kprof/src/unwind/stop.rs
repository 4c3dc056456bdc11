//! Why a walk, or a part of it, ended. Pure data. Runs in: NMI.

use crate::format::marker::TruncationReason;

/// Where a walk along frame pointers stopped: at the outermost frame, at an error, or at an entry frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The outermost frame: nothing is missing.
    Root,
    /// Frames are missing. The reason is recorded in the sample.
    Truncated(TruncationReason),
    /// An entry frame: the walk continues with the interrupted code.
    Entry {
        /// The marker word of the interrupt, exception or system call.
        marker: u64,
        /// The address of the saved RIP. `None`: the syscall stub still holds the RIP in rcx.
        rip_at: Option<u64>,
        /// rbp of the interrupted code.
        rbp: u64,
    },
}
