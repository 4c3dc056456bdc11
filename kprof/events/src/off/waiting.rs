//! What tasks do with their time, with the feature off: an empty type.
//!
//! In: nothing. Out: a zero-sized type, so that it takes no memory in the kernel's state of a task. Runs in: nowhere.

/// What a task does with its time; empty.
#[derive(Debug, Default)]
pub struct TaskTimes;

impl TaskTimes {
    /// Nothing.
    pub const fn new() -> Self {
        Self
    }

    /// Nothing.
    pub const fn idle() -> Self {
        Self
    }
}

const _: () = assert!(size_of::<TaskTimes>() == 0, "it takes no memory");
