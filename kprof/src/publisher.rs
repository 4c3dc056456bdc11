//! Where one CPU publishes what it is at. The same with the feature on and off.
//!
//! In: from that CPU's entry stubs and scheduler, interrupts off. Out: words that the sampler CPU reads. Runs in: every
//! kernel entry and exit; it must stay a few instructions. The folder `published/` has the other side.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

use crate::kernel::{Published, Task};
#[cfg(feature = "profiling")]
use crate::published::cell::PublishedCell;

/// Where one core says what it is at; its own, and nobody else writes there.
#[cfg_attr(not(feature = "profiling"), derive(Debug))]
pub struct Publisher {
    #[cfg(feature = "profiling")]
    pub(crate) cell: PublishedCell,
}

impl Publisher {
    #[cfg(feature = "profiling")]
    pub(crate) const fn new() -> Self {
        Self { cell: PublishedCell::new() }
    }

    /// Publishes where this core is now, and returns what it published before, which is published again when the entry
    /// is left (and when a task that was switched from runs again). Three instructions.
    ///
    /// Runs in: the Rust half of every entry stub, first thing and last thing, and the scheduler; on the core itself,
    /// interrupts off.
    #[inline(always)]
    pub fn publish(&self, place: Published) -> Published {
        feature!(Published::from_word(self.cell.replace(place.word())); else Published::THREAD)
    }

    /// Publishes the task that runs from here on, in the kernel by no entry ([`Published::THREAD`]), and returns the
    /// place of the one before.
    ///
    /// Runs in: as [`Publisher::publish`]; where the scheduler switches, where a program becomes another one, and once
    /// on each core when it begins to schedule.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn publish_task(&self, task: Task) -> Published {
        feature!(
            Published::from_word(self.cell.switch(Published::THREAD.word(), task.id, task.idle));
            else Published::THREAD
        )
    }
}
