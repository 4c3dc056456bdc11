//! Tests of the hooks that the sampler calls: nobody can hold what the sampler takes.

use super::*;
use crate::errors::MAX_TSC_HZ;
use crate::quiet::Quiet;
use crate::ring::tests::memory;
use crate::{Config, CpuSlot, EventSlot, Profiler, Setup};
use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Two CPUs, of which the first is the sampler. The clock is so fast that a wait with a bound takes many minutes here.
fn events() -> &'static Events<Quiet> {
    let profiler: &'static Profiler<Quiet> = Box::leak(Box::new(Profiler::new(Quiet::new())));
    let events: &'static Events<Quiet> = Box::leak(Box::new(Events::new(profiler)));
    let event_slots: &'static [EventSlot; 2] = Box::leak(Box::new([const { EventSlot::new() }; 2]));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let config = Config { tsc_hz: MAX_TSC_HZ, hz: 100_000, text: (1, 2), ..Config::new() };
    events.init(|| event_slots, || Setup { slots, meta: memory(1024), config }).unwrap();
    crate::setup::register(events.state.shared, 1, || memory(1024)).unwrap();
    events
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

fn run_sampler(events: &'static Events<Quiet>) {
    std::thread::spawn(|| crate::sampler::run(events.instance, 0));
}

fn start(events: &'static Events<Quiet>) {
    crate::control::change_state(events.state.shared, crate::state::settings::State::Running).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn the_sampler_waits_for_nobody_who_writes_counts() {
    for which in [0, 1] {
        let events = events();
        start(events);
        // Both are held by ordinary code with interrupts on, which may be paused.
        let held = [&events.state.points_taker, &events.state.events_taker][which].lock();
        run_sampler(events);
        assert!(sends_ticks_beside(events, held), "{which}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn the_sampler_waits_for_no_other_change_to_undo_a_lease() {
    let events = events();
    let shared = events.state.shared;
    // It is never closed: the end of a lease ends the choices of other tests too.
    let file = Box::leak(Box::new(crate::control::OpenControl::open(shared, 1)));
    start(events);
    file.write(b"lease\ndepth 3").unwrap();
    let writer = shared.writer().unwrap();
    // As if the file had been closed just before another change began.
    shared.expired_lease.store(shared.layers().holder().unwrap(), Ordering::Release);
    run_sampler(events);
    assert!(sends_ticks_beside(events, writer));
}
