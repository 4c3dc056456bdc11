//! Tests of the sampler: nobody can hold what it takes.

use super::*;
use crate::config::{Config, Setup};
use crate::control::{OpenControl, change_state};
use crate::extension::NoExtension;
use crate::quiet::Quiet;
use crate::ring::tests::memory;
use crate::setup;
use crate::state::slot::CpuSlot;
use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Two CPUs, of which the first is the sampler. The clock is so fast that a wait with a bound takes many minutes here.
fn instance() -> &'static Instance<Quiet> {
    let instance: &'static Instance<Quiet> =
        Box::leak(Box::new(Instance { kernel: Quiet::new(), shared: Shared::new() }));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let config = Config { tsc_hz: 1_000_000_000_000, hz: 100_000, text: (1, 2), ..Config::new() };
    let setup = || Setup { slots, meta: memory(1024), config };
    setup::init(&instance.shared, &NoExtension, setup, setup::without_events).unwrap();
    setup::register(&instance.shared, 1, || memory(1024)).unwrap();
    instance
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn the_sampler_waits_for_no_other_change_to_undo_a_lease() {
    let instance = instance();
    let shared = &instance.shared;
    let file = OpenControl::open(shared, 1);
    change_state(shared, State::Running).unwrap();
    file.write(b"lease\ndepth 3").unwrap();
    let writer = shared.writer().unwrap();
    // As if the file had been closed just before another change began.
    shared.expired_lease.store(shared.layers().holder().unwrap(), Ordering::Release);
    std::thread::spawn(|| run(instance, 0));
    let sent = || shared.slots()[1].sampler.tick.load(Ordering::Relaxed);
    let (before, begun) = (sent(), Instant::now());
    while sent() == before && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    drop(writer);
    assert!(sent() > before);
}
