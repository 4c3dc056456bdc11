//! The reserved core: sleep for a random gap, number the tick, reach the others; for ever.
//!
//! In: rate, gaps, seed, state. Out: tick numbers and signals. Context: the sampler CPU, ordinary code, interrupts as
//! [`Kernel::sleep_ns`] needs them. Sleeps between ticks and never spins: a spinning core slows the others down. Never
//! samples itself. Late (the machine was busy): goes on from now; a tick that was not sent was not sent, and is not counted.

use crate::backoff::Cost;
use crate::config::{Config, Way};
use crate::cpu_set::CpuSet;
use crate::gaps::Gaps;
use crate::kernel::Kernel;
use crate::profiler::Profiler;
use crate::settings::State;
use crate::slot::{CpuSlot, ReaderPart};
use crate::x86_64::tsc;
use crate::{clock, ring::Ring};
use core::sync::atomic::{AtomicBool, Ordering};

/// How long the sampler sleeps while nothing is to be sampled.
pub(crate) const STOPPED_SLEEP_NS: u64 = 10_000_000;
/// The longest sleep of all, so that `stop`, `start` and a new rate are noticed at a low rate too.
const MOST_SLEEP_NS: u64 = 20_000_000;

impl<K: Kernel> Profiler<K> {
    /// The sampler's life. Returns at once, having done nothing, if `cpu` is not [`crate::Config::sampler_cpu`] (or with
    /// the feature off); otherwise never.
    ///
    /// Context: the sampler CPU, in its own thread or instead of a scheduler, able to take its timer interrupt.
    pub fn run_sampler(&'static self, cpu: usize) {
        let Some(config) = self.config().filter(|config| config.sampler_cpu == Some(cpu)) else { return };
        self.set_way(config.way);
        self.note_setting(format_args!("way {}", self.way().name()));
        let mut gaps = Gaps::new(self.live.seed.load(Ordering::Relaxed));
        let mut seed = self.live.seed.load(Ordering::Relaxed);
        let (mut deadline, mut has_slept) = (None, false);
        let mut second = Second { end: 0, cost: Cost::default() };
        loop {
            self.wake_if_due();
            self.each_second(&mut second, config);
            // With the way `self` the CPUs tick for themselves; here is only the reader to wake.
            let own = config.way == Way::Own;
            if own || self.state() != State::Running {
                if !own {
                    self.signal_pending(cpu);
                }
                self.kernel().sleep_ns(STOPPED_SLEEP_NS);
                deadline = None;
                continue;
            }
            let newest_seed = self.live.seed.load(Ordering::Relaxed);
            if newest_seed != seed {
                (seed, gaps) = (newest_seed, Gaps::new(newest_seed));
            }
            let now = tsc::read();
            match deadline {
                // However late it is, one sleep lies between two ticks: the others get a chance to take the last one.
                Some(at) if now < at || !has_slept => {
                    let ns = clock::ticks_to_ns(at.saturating_sub(now), config.tsc_hz);
                    self.kernel().sleep_ns(ns.clamp(1, MOST_SLEEP_NS));
                    has_slept = true;
                }
                before => {
                    if before.is_some() {
                        self.send_tick(cpu);
                    }
                    let (gap, sent) = (self.gap(&mut gaps, config.tsc_hz), tsc::read());
                    deadline = Some(after(before.unwrap_or(sent), gap, sent));
                    has_slept = false;
                }
            }
        }
    }

    /// Whether a reader that waits should read now: a ring, or the meta stream, is a quarter full.
    pub fn reader_due(&self) -> bool {
        self.streams().any(|(ring, reader, _)| quarter_full(ring, reader))
    }

    /// Every ring with its reader, and whether that one has been told of it.
    fn streams(&self) -> impl Iterator<Item = (&Ring, &ReaderPart, &AtomicBool)> {
        let cpus = self.slots().iter().filter_map(|slot| Some((slot.ring.get()?, &slot.reader, &slot.sampler.woken)));
        cpus.chain(self.meta.ring().map(|ring| (ring, &self.meta.reader, &self.meta.woken)))
    }

    /// Numbers a tick for every CPU that takes ticks, and signals them.
    pub(crate) fn send_tick(&'static self, me: usize) {
        self.live.sending.store(true, Ordering::SeqCst);
        // Looked at again: whoever stops waits for `sending` to end, so no tick follows a stop.
        if self.state() == State::Running {
            let spares_halted = self.way() != Way::Published && !self.settings().keep_idle();
            self.signal(
                |cpu, slot| {
                    if cpu == me || !slot.takes_ticks() {
                        return false;
                    }
                    let halted = spares_halted && self.kernel().is_halted(cpu);
                    if halted {
                        slot.sampler.halted.add(1);
                    } else {
                        slot.sampler.tick.fetch_add(1, Ordering::Release);
                    }
                    !halted
                },
                me,
            );
        }
        self.live.sending.store(false, Ordering::SeqCst);
    }

    /// Signals CPUs that have not taken their last tick, so that `stop` does not wait for a signal that got lost.
    fn signal_pending(&'static self, me: usize) {
        let again = |cpu, slot: &CpuSlot| {
            let is_late = cpu != me && slot.pending() > 0;
            slot.sampler.resent.add(is_late.into());
            is_late
        };
        self.signal(again, me);
    }

    fn signal(&'static self, is_due: impl Fn(usize, &CpuSlot) -> bool, me: usize) {
        let (mut any, mut all_others) = (false, true);
        for (cpu, slot) in self.slots().iter().enumerate() {
            let due = is_due(cpu, slot);
            slot.sampler.due.store(due, Ordering::Relaxed);
            any |= due;
            all_others &= due || cpu == me;
        }
        if !any {
            return;
        }
        if self.way() != Way::Published {
            return self.kernel().signal(&CpuSet::due(self.slots(), all_others));
        }
        for (cpu, slot) in self.slots().iter().enumerate().filter(|(_, slot)| slot.pending() > 0) {
            self.look(cpu, slot);
        }
    }

    /// Once a second: writes down what was counted by context; looks at the cost, and changes the rate if need be.
    fn each_second(&self, second: &mut Second, config: &Config) {
        let now = tsc::read();
        if now < second.end {
            return;
        }
        self.write_events();
        let mut cost = Cost {
            time: now.wrapping_mul(self.slots().iter().filter(|slot| slot.takes_ticks()).count() as u64),
            ..Cost::default()
        };
        for slot in self.slots() {
            let counters = &slot.handler.counters;
            cost.own += counters.own_tsc.get();
            cost.merged += counters.merged.get();
            cost.sent += slot.sampler.tick.load(Ordering::Relaxed);
            cost.halted += slot.sampler.halted.get();
        }
        let spent = cost.since(core::mem::replace(&mut second.cost, cost));
        let is_first = core::mem::replace(&mut second.end, now + config.tsc_hz) == 0;
        let before = self.live.halvings.load(Ordering::Relaxed);
        let on = self.live.backoff.load(Ordering::Relaxed) && !is_first;
        let after = if on { spent.halvings(before, config.backoff_on_merged) } else { 0 };
        if after != before {
            self.live.halvings.store(after, Ordering::Relaxed);
            self.note_setting(format_args!("hz {}", self.hz_now()));
        }
    }

    /// Ticks a second, after the backoff.
    pub(crate) fn hz_now(&self) -> u64 {
        let hz = self.live.hz.load(Ordering::Relaxed) >> self.live.halvings.load(Ordering::Relaxed);
        u64::from(hz.max(1))
    }

    pub(crate) fn gap(&self, gaps: &mut Gaps, tsc_hz: u64) -> u64 {
        gaps.next((tsc_hz / self.hz_now()).max(1), self.live.random_gaps.load(Ordering::Relaxed))
    }

    /// Tells the kernel once when a ring passes a quarter.
    pub(crate) fn wake_if_due(&self) {
        let mut wake = false;
        for (ring, reader, woken) in self.streams() {
            let full = quarter_full(ring, reader);
            wake |= full && !woken.swap(full, Ordering::Relaxed);
            if !full {
                woken.store(false, Ordering::Relaxed);
            }
        }
        if wake {
            self.kernel().wake_reader();
        }
    }
}

/// A second of the sampler's life: its end, and the counters that the backoff looks at, at its beginning.
struct Second {
    end: u64,
    cost: Cost,
}

/// The next deadline: `gap` after the last one, or after `now` when that has gone by already, or nearly so: a tick that was
/// late is not followed at once by the next, which could only merge with it.
pub(crate) fn after(last: u64, gap: u64, now: u64) -> u64 {
    let next = last + gap;
    if next > now + gap / 4 { next } else { now + gap }
}

/// Whether a quarter of the ring is neither read nor given up.
fn quarter_full(ring: &Ring, reader: &ReaderPart) -> bool {
    let from = reader.position.load(Ordering::Relaxed).max(ring.tail());
    ring.head().saturating_sub(from) >= ring.capacity() / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_sampler_goes_on_from_now_and_an_early_one_from_its_plan() {
        assert_eq!(after(1000, 100, 1010), 1100);
        assert_eq!(after(1000, 100, 1074), 1100);
        assert_eq!(after(1000, 100, 1075), 1175);
        assert_eq!(after(1000, 100, 1100), 1200);
        assert_eq!(after(1000, 100, 5000), 5100);
    }
}
