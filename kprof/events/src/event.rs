//! What a kernel counts by task.
//!
//! In: the kernel's calls of [`crate::Events::count`]. Out: an index of [`kprof::format::record::EVENT_NAMES`]. Runs
//! in: any but NMI.

/// The events that [`crate::Events::count`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// The scheduler switched tasks.
    ContextSwitch = 0,
    /// A page fault.
    PageFault = 1,
    /// A hardware interrupt.
    Interrupt = 2,
}
