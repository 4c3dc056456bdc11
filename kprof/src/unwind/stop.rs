//! Why a walk, or a part of it, ended. Pure data. Runs in: NMI.

use crate::format::marker::TruncationReason;
use crate::kernel::Registers;

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
        /// Where the interrupted registers are.
        saved: Saved,
    },
}

/// Where the interrupted registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// On a stack, except for the frame pointer.
    At {
        /// The address of the words that the entry has saved.
        address: u64,
        /// The frame pointer of the interrupted code.
        fp: u64,
    },
    /// Not yet, or no longer, on a stack: the kernel knows them.
    Values(Registers),
}
