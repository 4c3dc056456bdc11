//! Tests of the hooks that the sampler calls: nobody can hold what the sampler takes.

use super::*;
use crate::tests::quiet::{self, Quiet};
use core::sync::atomic::Ordering;
use kprof::{Config, Profiler};
use std::time::{Duration, Instant};

/// A machine whose clock is so fast that a wait with a bound takes many minutes here.
fn machine() -> (&'static Profiler<Quiet>, &'static Events<Quiet>) {
    quiet::machine(Config { tsc_hz: 1_000_000_000_000, hz: 100_000, ..Config::new() })
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
