//! A CPU's slot with the feature off: an empty type.
//!
//! In: nothing. Out: a zero-sized type, so that a static array of slots takes no memory. Runs in: nowhere.

/// One CPU's part of the profiler; empty.
#[derive(Debug, Default)]
pub struct CpuSlot;

impl CpuSlot {
    /// A slot.
    pub const fn new() -> Self {
        Self
    }
}

const _: () = assert!(size_of::<CpuSlot>() == 0, "a static array of slots takes no room");
