//! One CPU's part of events: where it counts, the ring for its records, what the witness knows of it.
//!
//! In and out: the parts of events, each with its own field. Runs in: any but NMI.

use super::by_task::counts::TaskCounts;
#[cfg(feature = "locks")]
use super::locks::waits_for::WaitsFor;
use super::lockup::watch::Watch;
use super::points::memory::PointMemory;
use super::points::records::Records;
use core::sync::atomic::{AtomicBool, Ordering};

/// One CPU's part of events. The kernel provides one for each CPU, in a static or from its allocator.
pub struct EventSlot {
    /// Memory for the counts of points, by their numbers. Given once.
    pub(crate) points: PointMemory,
    /// The ring for records of hits, and its readers.
    pub(crate) records: Records,
    pub(crate) by_task: TaskCounts,
    #[cfg(feature = "locks")]
    pub(crate) waits_for: WaitsFor,
    /// A hit of a probe is in progress on this CPU.
    pub(crate) in_probe: AtomicBool,
    /// What the sampler knows of a lockup of this CPU. Only the sampler takes the lock.
    pub(crate) watch: spin::Mutex<Watch>,
    /// A profiler's events have taken this slot, so no other ones can.
    is_taken: AtomicBool,
}

impl EventSlot {
    /// A slot that nobody has taken.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const fn new() -> Self {
        Self {
            points: PointMemory::new(),
            records: Records::new(),
            by_task: TaskCounts::new(),
            #[cfg(feature = "locks")]
            waits_for: WaitsFor::new(),
            in_probe: AtomicBool::new(false),
            watch: spin::Mutex::new(Watch::new()),
            is_taken: AtomicBool::new(false),
        }
    }

    /// Takes the slot. `false` if it is taken.
    pub(crate) fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Gives the slot back.
    pub(crate) fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

impl Default for EventSlot {
    fn default() -> Self {
        Self::new()
    }
}
