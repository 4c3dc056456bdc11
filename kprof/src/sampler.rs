//! The loop of the sampler CPU: sleep for a random interval, number the tick, signal the other CPUs (with the trigger
//! `published`: sample them).
//!
//! In: rate, kind of interval, seed, sampling state. Out: tick numbers and signals; once a second, event counts by task
//! and a new rate if sampling costs too much; before each tick, a call of the extension. Runs in: the
//! sampler CPU, ordinary code, interrupts as [`Kernel::sleep_ns`] needs them. Sleeps between ticks and never spins,
//! because a spinning core slows the others down. Never samples itself. If it is late (the machine was busy), it
//! continues from the present time; ticks that were not sent are not counted. A clock that jumps backwards (resume from
//! sleep) costs at most one interval.

use crate::arch::timestamp;
use crate::backoff::Cost;
use crate::clock;
use crate::config::{Config, Precision, Trigger};
use crate::cpu_set::CpuSet;
use crate::errors::StreamName;
use crate::format::settings::Setting;
use crate::intervals::Intervals;
use crate::kernel::Kernel;
use crate::live::State;
use crate::shared::{Instance, Shared};
use crate::slot::CpuSlot;
use crate::stream::Stream;
use core::sync::atomic::{Ordering, fence};

/// How long the sampler sleeps at a time while sampling is stopped.
pub(crate) const STOPPED_SLEEP_NS: u64 = 10_000_000;
/// The least number of sleeps per second, so that `stop`, `start` and a new rate are noticed at a low rate too.
const SLEEPS_PER_SECOND: u64 = 50;
/// At most this often per second the sampler checks whether a waiting reader should be woken.
const WAKE_LOOKS_PER_SECOND: u64 = 1000;

/// Runs the sampler. Returns at once if `cpu` is not [`Config::sampler_cpu`], or if a sampler runs already; otherwise
/// it never returns.
pub(crate) fn run<K: Kernel>(instance: &'static Instance<K>, cpu: usize) {
    let (kernel, shared) = (&instance.kernel, &instance.shared);
    let Some(config) = shared.config().filter(|config| config.sampler_cpu == Some(cpu)) else { return };
    if shared.has_sampler.swap(true, Ordering::AcqRel) {
        return;
    }
    shared.set_trigger(config.trigger);
    shared.note_setting(format_args!("trigger {}", shared.trigger().name()));
    let mut intervals = Intervals::new(shared.live.choices().seed);
    let mut seed = shared.live.choices().seed;
    let (mut deadline, mut has_slept) = (None, false);
    let mut second = Second { end: 0, last: timestamp::read(), time: 0, total: Cost::default() };
    let (mut next_wake_look, mut is_first) = (0, true);
    let longest_sleep = config.tsc_hz / SLEEPS_PER_SECOND;
    loop {
        let now = timestamp::read();
        if now >= next_wake_look || next_wake_look - now > config.tsc_hz {
            next_wake_look = now + config.tsc_hz / WAKE_LOOKS_PER_SECOND;
            wake_if_due(kernel, shared, now);
        }
        each_second(shared, &mut second, config);
        // With the trigger `timer` each CPU makes its own ticks, and the sampler only wakes the reader.
        let own = config.trigger == Trigger::Timer;
        if own || shared.state() != State::Running {
            if !own {
                signal_pending(instance, cpu);
            }
            kernel.sleep_ns(STOPPED_SLEEP_NS);
            (deadline, is_first) = (None, true);
            continue;
        }
        let newest_seed = shared.live.choices().seed;
        if newest_seed != seed {
            (seed, intervals) = (newest_seed, Intervals::new(newest_seed));
        }
        let now = timestamp::read();
        match deadline.filter(|at| is_plausible(*at, now, period(shared, config.tsc_hz))) {
            // There is always one sleep between two ticks, even if the sampler is late, so that the other CPUs can take
            // the last one.
            Some(at) if now < at || !has_slept => {
                let left = at.saturating_sub(now).min(longest_sleep);
                kernel.sleep_ns(clock::ticks_to_ns(left, config.tsc_hz).max(1));
                shared.sleeps.add(left, timestamp::read().saturating_sub(now));
                has_slept = true;
            }
            before => {
                if before.is_some() {
                    shared.extension().before_tick(cpu, core::mem::take(&mut is_first));
                    send_tick(instance, cpu);
                }
                let (interval, sent) = (next_interval(shared, &mut intervals, config.tsc_hz), timestamp::read());
                deadline = Some(after(before.unwrap_or(sent), interval, sent));
                has_slept = false;
            }
        }
    }
}

/// Whether a waiting reader should read now, because a ring is half full, or the meta stream a quarter.
pub(crate) fn reader_due(shared: &Shared) -> bool {
    shared.streams().any(|(name, stream)| is_due(name, stream))
}

/// Whether so much of a ring is neither read nor overwritten that its reader should read: a half, so that reads are
/// few, and the other half has space for what comes until the reader runs. Of the meta stream, into which many tasks
/// may write at once, a quarter.
fn is_due(name: StreamName, Stream { ring, reader, .. }: &Stream) -> bool {
    let part = if name == StreamName::Meta { 4 } else { 2 };
    let unread = ring.head().saturating_sub(reader.position().max(ring.tail()));
    ring.get().is_some() && unread >= ring.capacity() / part
}

/// Numbers a tick for every CPU that takes ticks, and signals them.
pub(crate) fn send_tick<K: Kernel>(instance: &'static Instance<K>, me: usize) {
    let (kernel, shared) = (&instance.kernel, &instance.shared);
    shared.sending.store(true, Ordering::SeqCst);
    // For `offline`.
    fence(Ordering::SeqCst);
    // The state is checked again after `sending` is set: `stop` waits until `sending` is cleared, so no tick follows a
    // stop.
    if shared.state() == State::Running {
        let spares_halted = shared.trigger() != Trigger::Published && !shared.settings().include_idle();
        let number = |cpu: usize, slot: &CpuSlot| {
            if cpu == me || !slot.takes_ticks() {
                return false;
            }
            let halted = spares_halted && kernel.is_halted(cpu);
            if halted {
                slot.sampler.halted.add(1);
            } else {
                slot.sampler.tick.fetch_add(1, Ordering::Release);
            }
            !halted
        };
        signal(instance, number, me);
    }
    shared.sending.store(false, Ordering::SeqCst);
}

/// Signals CPUs again that have not taken their last tick, so that `stop` does not wait for a signal that was lost.
fn signal_pending<K: Kernel>(instance: &'static Instance<K>, me: usize) {
    let again = |cpu: usize, slot: &CpuSlot| {
        let is_late = cpu != me && slot.pending() > 0 && !slot.sampler.offline.load(Ordering::Relaxed);
        slot.sampler.resent.add(is_late.into());
        is_late
    };
    signal(instance, again, me);
}

fn signal<K: Kernel>(instance: &'static Instance<K>, is_due: impl Fn(usize, &CpuSlot) -> bool, me: usize) {
    let (kernel, shared) = (&instance.kernel, &instance.shared);
    let (mut any, mut all_others) = (false, true);
    for (cpu, slot) in shared.slots().iter().enumerate() {
        let due = is_due(cpu, slot);
        slot.sampler.due.store(due, Ordering::Relaxed);
        any |= due;
        all_others &= due || cpu == me;
    }
    if !any {
        return;
    }
    let Some(stacks) = kernel.foreign_stacks().filter(|_| shared.trigger() == Trigger::Published) else {
        let is_due = |cpu: usize| shared.slots().get(cpu).is_some_and(|slot| slot.sampler.due.load(Ordering::Relaxed));
        return kernel.signal(&CpuSet::due(shared.slots().len(), &is_due, all_others));
    };
    for (cpu, slot) in shared.slots().iter().enumerate().filter(|(_, slot)| slot.pending() > 0) {
        instance.sample_remote(stacks, cpu, slot);
    }
}

/// Once a second: lets the extension write its counts, undoes a lease that has expired, checks the cost, and
/// changes the rate if necessary.
fn each_second(shared: &Shared, second: &mut Second, config: &Config) {
    let now = timestamp::read();
    // CPU time is added up in small steps, because the number of CPUs changes and the clock may jump.
    let passed = now.saturating_sub(second.last).min(config.tsc_hz);
    second.last = now;
    second.time += passed * shared.slots().iter().filter(|slot| slot.takes_ticks()).count() as u64;
    if now < second.end && second.end - now <= config.tsc_hz {
        return;
    }
    shared.extension().each_second();
    if shared.expired_lease.load(Ordering::Relaxed) != 0 {
        // Whoever makes another change now may be paused for as long as others run, and ticks must go on meanwhile. So
        // this does not wait for it: the change undoes the lease itself, or this is tried again in a second.
        let _ = shared.change_lock_within(0).and_then(|lock| lock.undo_expired_lease());
    }
    let total = total_cost(shared, second.time);
    let spent = total.since(second.total);
    second.total = total;
    let is_first = core::mem::replace(&mut second.end, now + config.tsc_hz) == 0;
    let before = shared.live.halvings.load(Ordering::Relaxed);
    let on = shared.live.choices().backoff && !is_first;
    let after = if on { spent.halvings(before, config.precision != Precision::Block) } else { 0 };
    if after != before {
        shared.live.halvings.store(after, Ordering::Relaxed);
        shared.note_setting(format_args!("{}", Setting::Hz(u32::try_from(shared.live.hz_now()).unwrap_or(u32::MAX))));
    }
}

/// The sum over all CPUs of the counters that the backoff uses.
fn total_cost(shared: &Shared, time: u64) -> Cost {
    let mut cost = Cost { time, ..Cost::default() };
    for slot in shared.slots() {
        let counters = &slot.handler.counters;
        cost.self_cost += counters.self_tsc.get();
        cost.coalesced += counters.coalesced.get();
        cost.sent += slot.sampler.tick.load(Ordering::Relaxed);
        cost.halted += slot.sampler.halted.get();
    }
    cost
}

/// The mean interval in TSC ticks.
fn period(shared: &Shared, tsc_hz: u64) -> u64 {
    (tsc_hz / shared.live.hz_now()).max(1)
}

/// The interval to the next tick, in TSC ticks.
pub(crate) fn next_interval(shared: &Shared, intervals: &mut Intervals, tsc_hz: u64) -> u64 {
    intervals.next(period(shared, tsc_hz), shared.live.choices().random_interval)
}

/// Calls [`Kernel::wake_reader`] once when a ring becomes half full (meta: a quarter), if a reader waits. If no reader
/// waits, the rings are not checked, because a check reads a cache line of each CPU's ring, which that CPU's handler
/// then has to fetch back.
pub(crate) fn wake_if_due<K: Kernel>(kernel: &K, shared: &Shared, now: u64) {
    if now >= shared.waited_until.load(Ordering::Relaxed) {
        return;
    }
    let mut wake = false;
    for (name, stream) in shared.streams() {
        let is_due = is_due(name, stream);
        wake |= is_due && !stream.woken.load(Ordering::Relaxed);
        stream.woken.store(is_due, Ordering::Relaxed);
    }
    if wake {
        kernel.wake_reader();
    }
}

/// One second of the sampler: when it ends, and the counters that the backoff uses, as they were at its beginning.
struct Second {
    end: u64,
    /// When the clock was last read.
    last: u64,
    /// CPU time that has passed since the sampler started, summed over the CPUs that take ticks.
    time: u64,
    total: Cost,
}

/// Whether a deadline is plausible. One that is further away than any interval is not: the clock has jumped backwards.
pub(crate) fn is_plausible(deadline: u64, now: u64, period: u64) -> bool {
    deadline.saturating_sub(now) <= 2 * period
}

/// The next deadline: one interval after the last one, or one interval after `now` if the former has passed already or
/// is less than a quarter of the interval away. A late tick is not followed at once by the next one, because that one
/// would probably be coalesced with it.
pub(crate) fn after(last: u64, interval: u64, now: u64) -> u64 {
    let next = last + interval;
    if next > now + interval / 4 { next } else { now + interval }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profiler;
    use crate::extension::Extension;
    use crate::format::record::Kind;
    use crate::quiet::{Quiet, set_up};
    use crate::ring::tests::memory;
    use crate::stream::Stream;

    /// An extension with a stream of CPU 1.
    struct OneStream(Stream);

    impl Extension for OneStream {
        fn stream(&self, cpu: usize) -> Option<&Stream> {
            (cpu == 1).then_some(&self.0)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes 600 events to fill the ring; what it is made of has tests with fewer")]
    fn a_waiting_reader_is_woken_once_for_half_a_ring_of_events() {
        let profiler: &'static Profiler<Quiet> = Box::leak(Box::new(Profiler::new(Quiet::new())));
        let extension: &'static OneStream = Box::leak(Box::new(OneStream(Stream::new())));
        let config = Config { can_wait: true, tsc_hz: 1_000_000_000, text: (0x1000, 0x2000), ..Config::new() };
        let shared = &profiler.instance.shared;
        set_up(&profiler.instance, extension, config, &[]);
        extension.0.ring.install(memory(1024)).unwrap();
        let (ctl, events) = (profiler.open_control(1), profiler.open_events(1, 1).unwrap());
        ctl.write(b"protocol 1\nwait 60000").unwrap();
        let woken = || {
            wake_if_due(&profiler.instance.kernel, shared, 0);
            profiler.instance.kernel.woken.load(Ordering::Relaxed)
        };
        let event = |_| {
            let (ring, mut sink) = (&extension.0.ring, extension.0.ring.room());
            [0, ring.head(), 0, 0, 0, 1, 0, 0x1000].into_iter().for_each(|word| sink.push(word));
            if !sink.is_full() {
                ring.publish(Kind::Event, sink.words());
            }
        };
        let fill = || (0..200).for_each(event);
        let before = woken();
        fill();
        assert_eq!([woken(), woken()], [before + 1; 2]);
        assert!(events.read(&mut [0; 8192]).unwrap() > 0);
        assert_eq!(woken(), before + 1);
        fill();
        ctl.write(format!("ack event-1 {}", extension.0.reader.position()).as_bytes()).unwrap();
        fill();
        assert_eq!([woken(), woken()], [before + 2; 2]);
    }

    #[test]
    fn a_clock_that_jumps_backwards_ends_a_plan_and_nothing_else_does() {
        // An interval is at most a quarter longer than the period.
        assert!(is_plausible(1000 + 125, 1000, 100));
        assert!(is_plausible(1000, 5000, 100), "late is not implausible");
        assert!(!is_plausible(3_600_000_000_000, 1000, 100));
    }

    #[test]
    fn a_late_sampler_goes_on_from_now_and_an_early_one_from_its_plan() {
        assert_eq!(after(1000, 100, 1010), 1100);
        assert_eq!(after(1000, 100, 1074), 1100);
        assert_eq!(after(1000, 100, 1075), 1175);
        assert_eq!(after(1000, 100, 1100), 1200);
        assert_eq!(after(1000, 100, 5000), 5100);
    }
}
