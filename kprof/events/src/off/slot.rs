//! A CPU's part of events, with the feature off: an empty type.
//!
//! In: nothing. Out: a zero-sized type, so that a static array of slots takes no memory. Runs in: nowhere.

/// One CPU's part of events; empty.
#[derive(Debug, Default)]
pub struct EventSlot;

impl EventSlot {
    /// A slot.
    pub const fn new() -> Self {
        Self
    }
}

const _: () = assert!(size_of::<EventSlot>() == 0, "a static array of slots takes no room");
