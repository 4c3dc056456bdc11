//! Tests of what a write to ctl leaves behind.
//!
//! In: commands through a control file of a profiler that was set up. Out: the shared state. Runs on a host.

use super::*;
use crate::arch::timestamp;
use crate::config::{Config, Setup, Trigger};
use crate::ring::tests::memory;
use crate::state::slot::CpuSlot;

fn set_up(config: Config) -> &'static Shared {
    let shared: &'static Shared = Box::leak(Box::new(Shared::new()));
    let config = Config { text: (0x1000, 0x2000), sampler_cpu: None, trigger: Trigger::Timer, ..config };
    let slots: &'static [CpuSlot] = vec![CpuSlot::new()].leak();
    crate::setup::init(shared, || Setup { slots, meta: memory(1024), config }).unwrap();
    shared
}

#[test]
fn a_wait_ends_after_its_milliseconds_by_the_clock_of_the_kernel() {
    const HZ: u64 = 1_000_000;
    let shared = set_up(Config { tsc_hz: HZ, can_wait: true, ..Config::new() });
    let file = OpenControl::open(shared, 1);
    let before = timestamp::read();
    file.write(b"wait 2000").unwrap();
    let (until, after) = (shared.waited_until.load(Ordering::Relaxed), timestamp::read());
    assert!((before + 2 * HZ..=after + 2 * HZ).contains(&until), "{before} {until} {after}");
    file.write(b"wait 1").unwrap();
    assert_eq!(shared.waited_until.load(Ordering::Relaxed), until, "who waits longer is not forgotten");
}
