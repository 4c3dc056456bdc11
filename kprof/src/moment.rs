//! The counters and positions of one CPU, all of one moment between two ticks.
//!
//! In: a slot. Out: plain values that belong together. Runs in: ordinary code, also while sampling runs. Two words are
//! read before and after the values, and must be the same: the progress word of the CPU's handler, which changes with
//! each tick taken, and the sequence number that changes while the owner of the stream frees records.

use crate::account::HANDLER_COUNTERS;
use crate::format::counter::Counter;
use crate::ring::Ring;
use crate::slot::CpuSlot;
use crate::stream::MAX_TRIES;
use crate::stream::copier::Border;
use core::sync::atomic::{Ordering, fence};

/// The counters and positions. `seen` is the number of the newest tick that the handler has taken.
pub(crate) struct CpuMoment {
    pub(crate) sent: u64,
    pub(crate) seen: u64,
    pub(crate) counters: [(Counter, u64); HANDLER_COUNTERS],
    pub(crate) delivered: u64,
    /// Records that have left the ring since boot.
    pub(crate) removed: u64,
    pub(crate) head: u64,
    pub(crate) tail: u64,
}

impl CpuMoment {
    /// The values now. If the handler runs at every attempt, they are only approximately consistent.
    pub(crate) fn of(slot: &CpuSlot, ring: &Ring) -> Self {
        Self::attempt(slot, ring).0
    }

    /// The values now; `None` if the handler runs, or records are freed, at every attempt.
    pub(crate) fn exact(slot: &CpuSlot, ring: &Ring) -> Option<Self> {
        let (moment, is_exact) = Self::attempt(slot, ring);
        is_exact.then_some(moment)
    }

    fn attempt(slot: &CpuSlot, ring: &Ring) -> (Self, bool) {
        let mut tries = MAX_TRIES;
        loop {
            let before = slot.handler.progress.moment();
            let counters = slot.handler.counters.read();
            let seen = slot.handler.progress.seen();
            let ((delivered, removed, tail), is_at_rest) = slot.stream.reader.between_frees(ring);
            // The head must be of the same moment as the counters: a reader assumes that the records before it are
            // those counted.
            let head = ring.head();
            // Pairs with the handler's Release: if a counter read above is newer than `before`, the second `moment`
            // below differs.
            fence(Ordering::Acquire);
            tries -= 1;
            let is_exact = is_at_rest && before.is_some() && before == slot.handler.progress.moment();
            if is_exact || tries == 0 {
                // Read last, because a tick that was taken was sent before.
                let sent = slot.sampler.tick.load(Ordering::Acquire);
                return (Self { sent, seen, counters, delivered, removed, head, tail }, is_exact);
            }
            core::hint::spin_loop();
        }
    }

    pub(crate) fn counter(&self, wanted: Counter) -> u64 {
        self.counters.iter().find(|(counter, _)| *counter == wanted).map_or(0, |(_, value)| *value)
    }

    /// Where the next record will begin.
    pub(crate) fn newest(&self) -> Border {
        Border { position: self.head, index: self.counter(Counter::Recorded) }
    }

    /// Where the oldest record that was not freed begins.
    pub(crate) fn oldest(&self) -> Border {
        Border { position: self.tail, index: self.removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{ENTERED, TICK};
    use crate::ring::tests::ring_of;

    #[test]
    fn no_moment_is_exact_while_a_handler_runs() {
        let (slot, ring) = (CpuSlot::new(), ring_of(1024));
        let progress = &slot.handler.progress.0;
        progress.add(TICK);
        assert_eq!(CpuMoment::exact(&slot, &ring).map(|moment| moment.seen), Some(1));
        progress.add(ENTERED);
        assert!(CpuMoment::exact(&slot, &ring).is_none());
        assert_eq!(CpuMoment::of(&slot, &ring).seen, 1);
    }
}
