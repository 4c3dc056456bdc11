//! Tests of the hooks that the sampler calls: nobody can hold what the sampler takes.

use super::*;
use crate::EventSlot;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::Ordering;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Profiler, Setup, Task};
use std::time::{Duration, Instant};

/// A kernel in which nothing is sampled.
struct Quiet;

// SAFETY: no stack is declared, so none is read; the only CPU that runs code is 1.
unsafe impl Kernel for Quiet {
    fn cpu(&self) -> usize {
        1
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, _: u64) -> Option<Range<u64>> {
        None
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 7, idle: false }
    }
    fn sleep_ns(&self, _: u64) {}
}

impl EventKernel for Quiet {}

/// Two CPUs, of which the first is the sampler. The clock is so fast that a wait with a bound takes many minutes here.
fn machine() -> (&'static Profiler<Quiet>, &'static Events<Quiet>) {
    let profiler: &'static Profiler<Quiet> = Box::leak(Box::new(Profiler::new(Quiet)));
    let events: &'static Events<Quiet> = Box::leak(Box::new(Events::new(profiler)));
    let event_slots: &'static [EventSlot; 2] = Box::leak(Box::new([const { EventSlot::new() }; 2]));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let memory = || -> &'static mut [MaybeUninit<u64>] { vec![MaybeUninit::uninit(); 1024].leak() };
    let config = Config { tsc_hz: 1_000_000_000_000, hz: 100_000, text: (1, 2), ..Config::new() };
    events.init(|| event_slots, || Setup { slots, meta: memory(), config }).unwrap();
    profiler.register(1, memory).unwrap();
    (profiler, events)
}

/// Whether the sampler sends a tick while `held` is held.
fn sends_ticks_beside<T>(events: &'static Events<Quiet>, held: T) -> bool {
    let sent = || events.state.shared.slots()[1].sampler.tick.load(Ordering::Relaxed);
    let (before, begun) = (sent(), Instant::now());
    while sent() == before && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    drop(held);
    sent() > before
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn the_sampler_waits_for_nobody_who_writes_counts() {
    for which in [0, 1] {
        let (profiler, events) = machine();
        profiler.start().unwrap();
        // Both are held by ordinary code with interrupts on, which may be paused.
        let held = [&events.state.points_taker, &events.state.events_taker][which].lock();
        std::thread::spawn(|| profiler.run_sampler(0));
        assert!(sends_ticks_beside(events, held), "{which}");
    }
}
