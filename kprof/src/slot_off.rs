//! A CPU's slot with the feature off: nothing.
//!
//! In: nothing. Out: a type without a size, so that a static array of slots takes no room. Runs in: nowhere.

/// One CPU's part of the profiler: nothing.
#[derive(Debug, Default)]
pub struct CpuSlot;

impl CpuSlot {
    /// A slot.
    pub const fn new() -> Self {
        Self
    }

    /// Never.
    pub(crate) fn is_due(&self) -> bool {
        false
    }
}

const _: () = assert!(size_of::<CpuSlot>() == 0, "a static array of slots takes no room");
