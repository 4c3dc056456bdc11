//! Tests of the sampler: nobody can hold what it takes.

use super::*;
use crate::config::Config;
use crate::control::{OpenControl, change_state};
use crate::quiet::{self, Quiet};
use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Two CPUs, of which the first is the sampler. The clock is so fast that a wait with a bound takes many minutes here.
fn instance() -> &'static Instance<Quiet> {
    quiet::instance(Config { tsc_hz: 1_000_000_000_000, hz: 100_000, ..Config::new() })
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn the_sampler_waits_for_no_other_change_to_undo_a_lease() {
    let instance = instance();
    let shared = &instance.shared;
    let file = OpenControl::open(shared, 1);
    change_state(shared, State::Running).unwrap();
    file.write(b"lease\ndepth 3").unwrap();
    let lock = shared.change_lock().unwrap();
    // As if the file had been closed just before another change began.
    shared.expired_lease.store(shared.layers().holder().unwrap(), Ordering::Release);
    std::thread::spawn(|| run(instance, 0));
    let sent = || shared.slots()[1].sampler.tick.load(Ordering::Relaxed);
    let (before, begun) = (sent(), Instant::now());
    while sent() == before && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    drop(lock);
    assert!(sent() > before);
}
