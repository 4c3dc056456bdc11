//! Context switches, page faults and interrupts, on their way into the meta stream.
//!
//! In: one call for each event. Out: while sampling runs, counts by context, which the sampler writes into the meta
//! stream once a second and `stop` at the end; totals of a CPU for ctl are in its slot. Runs in: ordinary code and
//! interrupts, never an NMI.

use crate::format::record::{EVENT_NAMES, Kind};
use crate::kernel::Event;
use crate::state::Shared;
use crate::state::settings::State;
use crate::x86_64::interrupts;
use core::fmt::Write;

impl Shared {
    /// Counts an event on `cpu`, which runs this, in the context that `context` names.
    #[inline]
    pub(crate) fn count(&self, event: Event, cpu: impl FnOnce() -> usize, context: impl FnOnce() -> u64) {
        interrupts::without(|| {
            // A CPU without a ring is not sampled: the sampler's own.
            if let Some(slot) = self.ready.slot(cpu()).filter(|slot| slot.ring.get().is_some()) {
                let context = (self.state() == State::Running).then(context);
                slot.events.add(event, context);
            }
        });
    }

    /// Writes what was counted by context into the meta stream.
    pub(crate) fn write_events(&self) {
        let Some(_only_taker) = self.events_taker.try_lock() else { return };
        for (cpu, slot) in self.slots().iter().enumerate() {
            slot.events.take(|context, counts| {
                let mut text = heapless::String::<128>::new();
                for (name, count) in EVENT_NAMES.iter().zip(counts) {
                    // Cannot overflow: three names of at most 16 bytes, three numbers of at most 20 digits.
                    let _ = write!(text, "{name}={count} ");
                }
                self.meta.put(Kind::Events, [context, cpu as u64, 0], text.trim_end())
            });
        }
    }

    /// Forgets what was counted by context before sampling began.
    pub(crate) fn forget_events(&self) {
        let Some(_only_taker) = self.events_taker.try_lock() else { return };
        self.slots().iter().for_each(|slot| slot.events.take(|_, _| true));
    }
}
