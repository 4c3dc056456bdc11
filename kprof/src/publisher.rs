//! The words in which one CPU publishes what it is doing. The API is the same with the feature `profiling` on and off.
//!
//! In: from that CPU's entry stubs and scheduler, interrupts off. Out: words that the sampler CPU reads. Runs in: every
//! kernel entry and exit, so publishing must take only a few instructions. The code that reads the words is in the
//! folder `published/`.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

use crate::kernel::{Published, Task};
#[cfg(feature = "profiling")]
use crate::published::cell::PublishedCell;

/// The words in which one core publishes what it is doing. Only that core writes them.
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

    /// Publishes where this core is now, and returns what it published before. Publish that value again when the entry
    /// is left (and when a task that was switched away from runs again). Three instructions.
    ///
    /// Runs in: the Rust half of every entry stub, at its very beginning and its very end, and the scheduler; on the
    /// core itself, interrupts off.
    #[inline(always)]
    pub fn publish(&self, place: Published) -> Published {
        feature!(Published::from_word(self.cell.replace(place.word())); else Published::THREAD)
    }

    /// Publishes the task that runs from here on, in the kernel but not in an entry ([`Published::THREAD`]), and
    /// returns the place of the previous task.
    ///
    /// Runs in: as [`Publisher::publish`]. Call it where the scheduler switches tasks, where a process executes another
    /// program, and once on each core when it begins to schedule.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn publish_task(&self, task: Task) -> Published {
        feature!(
            Published::from_word(self.cell.switch(Published::THREAD.word(), task.id, task.idle));
            else Published::THREAD
        )
    }
}
