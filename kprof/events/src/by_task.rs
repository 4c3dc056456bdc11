//! Counts context switches, page faults and interrupts, and writes the counts into the meta stream.
//!
//! In: one call for each event. Out: totals of each CPU, in its slot, which a read of ctl shows; and while sampling
//! runs, counts by task. The sampler writes the counts by task into the meta stream once a second, and `stop` writes
//! the last ones. Runs in: ordinary code and interrupts, never an NMI.

pub(crate) mod counts;

use super::state::State;
use crate::event::Event;
use core::fmt::Write;
use kprof::format::record::{EVENT_NAMES, Kind};
use kprof::internals::{Patience, interrupts};

impl State {
    /// Counts an event on `cpu`, which is the calling CPU, in the task that `task` returns.
    #[inline]
    pub(crate) fn count(&self, event: Event, cpu: impl FnOnce() -> usize, task: impl FnOnce() -> u64) {
        if !self.is_installed() {
            return;
        }
        interrupts::without(|| {
            // A CPU without a ring, such as the sampler CPU, is not sampled and not counted.
            let cpu = cpu();
            let has_ring = self.shared.ready.slot(cpu).is_some_and(|slot| slot.stream.ring.get().is_some());
            if let Some(slot) = self.slot(cpu).filter(|_| has_ring) {
                let task = (self.shared.state() == kprof::internals::State::Running).then(task);
                slot.by_task.add(event, task);
            }
        });
    }

    /// Writes the counts by task into the meta stream. If another CPU is writing them, this function waits for it, for
    /// at most `wait_us`, and then writes again, because that CPU may have begun before the newest events.
    pub(crate) fn write_events(&self, wait_us: u64) {
        let mut patience = Patience::us(wait_us, self.tsc_hz());
        // If the lock stays taken, the counts stay too, and the sampler writes them within a second.
        let Some(_only_taker) = patience.lock(&self.events_taker) else { return };
        for (cpu, slot) in self.slots().iter().enumerate() {
            slot.by_task.take(|task, counts| {
                let mut text = heapless::String::<128>::new();
                for (name, count) in EVENT_NAMES.iter().zip(counts) {
                    // Cannot overflow: three names of at most 16 bytes, three numbers of at most 20 digits.
                    let _ = write!(text, "{name}={count} ");
                }
                self.meta().put(Kind::Events, [task, cpu as u64, 0], text.trim_end())
            });
        }
    }

    /// Discards the counts by task from before sampling started.
    pub(crate) fn forget_events(&self) {
        let Some(_only_taker) = self.events_taker.try_lock() else { return };
        self.slots().iter().for_each(|slot| slot.by_task.take(|_, _| true));
    }
}
