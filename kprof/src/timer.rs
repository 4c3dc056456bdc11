//! The trigger `timer`: a CPU samples itself by its own timer, or by a counter of events that overflows.
//!
//! In: the CPU's interrupts. Out: ticks, and when the next interrupt is wanted. Runs in: the interrupt's handler. It
//! cannot sample code that runs with interrupts off. Used by a kernel with one CPU, and by every CPU until the sampler
//! runs. When the sampler takes over, a setting in the meta stream says so.

use crate::arch::timestamp;
use crate::clock;
use crate::config::{Config, Trigger};
use crate::intervals::Intervals;
use crate::kernel::{Kernel, Outcome, OverflowTick, Registers, TimerTick};
use crate::live::State;
use crate::sampler::{self, STOPPED_SLEEP_NS, after};
use crate::shared::Instance;
use crate::unwind::Direct;
use core::sync::atomic::Ordering;

/// Handles one timer interrupt of a CPU that samples itself.
pub(crate) fn on_timer<K: Kernel>(instance: &'static Instance<K>, at: &Registers) -> TimerTick {
    let (kernel, shared) = (&instance.kernel, &instance.shared);
    let nothing = TimerTick { outcome: Outcome::Foreign, next_ns: STOPPED_SLEEP_NS };
    let (Some(config @ Config { event: None, .. }), cpu) = (shared.config(), kernel.cpu()) else { return nothing };
    let Some(slot) = shared.slots().get(cpu) else { return nothing };
    if shared.trigger() != Trigger::Timer || shared.state() != State::Running || !slot.takes_ticks() {
        return nothing;
    }
    let (now, due) = (timestamp::read(), slot.sampler.own_next.load(Ordering::Relaxed));
    // Plausible by the lowest possible rate, one tick a second, because the rate may have changed.
    let is_first = due == 0 || !sampler::is_plausible(due, now, config.tsc_hz);
    let (mut outcome, mut next) = (Outcome::Foreign, due);
    if is_first || now >= due {
        let mut intervals = Intervals::new(slot.sampler.own_intervals.load(Ordering::Relaxed));
        if is_first {
            intervals = Intervals::new(shared.live.choices().seed.wrapping_add(cpu as u64));
        } else {
            outcome = instance.timer_tick(slot, at, Direct);
            // The sampler loop has not started yet, so nothing else sends ticks: with each of its own ticks this CPU
            // sends one to every other CPU that has registered.
            if config.sampler_cpu == Some(cpu) && config.trigger == Trigger::Nmi {
                sampler::send_tick(instance, cpu);
            }
        }
        next =
            after(if is_first { now } else { due }, sampler::next_interval(shared, &mut intervals, config.tsc_hz), now);
        slot.sampler.own_intervals.store(intervals.state(), Ordering::Relaxed);
        slot.sampler.own_next.store(next, Ordering::Relaxed);
        if outcome == Outcome::Sampled {
            sampler::wake_if_due(kernel, shared, now);
        }
    }
    TimerTick { outcome, next_ns: clock::ticks_to_ns(next.saturating_sub(now), config.tsc_hz) }
}

/// How long the counter runs if no event is chosen.
const NEVER: u64 = 1 << 40;

/// Handles one overflow of the counter of a CPU that samples itself. Every overflow is a tick, whatever the time is:
/// otherwise bursts of events would count less.
pub(crate) fn on_overflow<K: Kernel>(instance: &'static Instance<K>, at: &Registers) -> OverflowTick {
    let (kernel, shared) = (&instance.kernel, &instance.shared);
    let nothing = |next_events| OverflowTick { outcome: Outcome::Foreign, next_events };
    let (Some(Config { event: Some(event), .. }), cpu) = (shared.config(), kernel.cpu()) else {
        return nothing(NEVER);
    };
    let Some(slot) = shared.slots().get(cpu) else { return nothing(NEVER) };
    if shared.state() != State::Running || !slot.takes_ticks() {
        return nothing(event.period);
    }
    let outcome = instance.timer_tick(slot, at, Direct);
    let own = &slot.sampler;
    // No time is due with an event, so this word says whether the generator has its seed.
    let seed = match own.own_next.swap(1, Ordering::Relaxed) {
        0 => shared.live.choices().seed.wrapping_add(cpu as u64),
        _ => own.own_intervals.load(Ordering::Relaxed),
    };
    let mut intervals = Intervals::new(seed);
    let next_events = intervals.next(event.period, shared.live.choices().random_interval).max(1);
    own.own_intervals.store(intervals.state(), Ordering::Relaxed);
    if outcome == Outcome::Sampled {
        sampler::wake_if_due(kernel, shared, timestamp::read());
    }
    OverflowTick { outcome, next_events }
}
