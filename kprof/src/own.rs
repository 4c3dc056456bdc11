//! The way `self`: a CPU samples itself, by its own timer.
//!
//! In: its timer interrupts. Out: ticks that it gives itself, and when it wants the next interrupt. Context: the timer's
//! interrupt handler. Blind where interrupts are off. For a kernel with one CPU, and for every CPU until the sampler core
//! runs; when that takes over, a setting in the meta stream says so.

use crate::clock;
use crate::config::Way;
use crate::gaps::Gaps;
use crate::kernel::{Kernel, NmiToken, Outcome, Registers};
use crate::profiler::Profiler;
use crate::sampler::{STOPPED_SLEEP_NS, after};
use crate::settings::State;
use crate::x86_64::{memory::Direct, tsc};
use core::sync::atomic::Ordering;

/// What [`Profiler::on_timer`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnTick {
    /// What became of the timer interrupt; [`Outcome::Foreign`]: no tick was due.
    pub outcome: Outcome,
    /// When the next tick is due, from now: the timer should come about then, later is harmless.
    pub next_ns: u64,
}

impl<K: Kernel> Profiler<K> {
    /// One timer interrupt of a CPU that samples itself ([`Way::Own`], and every CPU until the sampler runs).
    ///
    /// Context: the timer's interrupt handler, interrupts off.
    pub fn on_timer(&'static self, _token: &NmiToken, at: &Registers) -> OwnTick {
        let nothing = OwnTick { outcome: Outcome::Foreign, next_ns: STOPPED_SLEEP_NS };
        let (Some(config), cpu) = (self.config(), self.kernel().cpu()) else { return nothing };
        let Some(slot) = self.slots().get(cpu) else { return nothing };
        if self.way() != Way::Own || self.state() != State::Running || !slot.takes_ticks() {
            return nothing;
        }
        let (now, due) = (tsc::read(), slot.sampler.own_next.load(Ordering::Relaxed));
        let (mut outcome, mut next) = (Outcome::Foreign, due);
        if now >= due {
            let mut gaps = Gaps::new(slot.sampler.own_gaps.load(Ordering::Relaxed));
            if due == 0 {
                gaps = Gaps::new(self.live.seed.load(Ordering::Relaxed).wrapping_add(cpu as u64));
            } else {
                outcome = self.own_tick_on(slot, at, Direct);
                // The sampler's CPU before it samples: the others are reached as soon as they register.
                if config.sampler_cpu == Some(cpu) && config.way == Way::Nmi {
                    self.send_tick(cpu);
                }
            }
            next = after(if due == 0 { now } else { due }, self.gap(&mut gaps, config.tsc_hz), now);
            slot.sampler.own_gaps.store(gaps.state(), Ordering::Relaxed);
            slot.sampler.own_next.store(next, Ordering::Relaxed);
            if outcome == Outcome::Sampled {
                self.wake_if_due();
            }
        }
        OwnTick { outcome, next_ns: clock::ticks_to_ns(next - now, config.tsc_hz) }
    }
}
