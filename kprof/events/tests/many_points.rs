//! A kernel with many points, and what the registration of memory for them may not hold up.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::{Config, CpuSlot, RegisterError, Unit};
use kprof_events::{Point, PointCounts};
use std::sync::atomic::{AtomicBool, Ordering};

type Kprof = &'static Both;

fn fresh() -> Kprof {
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config { hz: 500, ..Config::new() });
    profiler
}

fn places(count: usize) -> &'static [PointCounts] {
    Vec::leak((0..count).map(|_| PointCounts::new()).collect())
}

#[test]
fn a_claim_repeats_all_settings_though_there_are_many_points() {
    let _alone = alone();
    let profiler = fresh();
    for number in 0..120 {
        let name = format!("repeated.{number}").leak();
        profiler.events.hit(Box::leak(Box::new(Point::new(name, Unit::Count))), 1);
    }
    let daemon = Daemon::claim(profiler, 1);
    let mut buffer = vec![0; 64 * 1024];
    let bytes = daemon.meta.read(&mut buffer).unwrap();
    let text = String::from_utf8_lossy(&buffer[..bytes]);
    for setting in ["trigger ", "hz 500", "seed ", "depth ", "cpus all"] {
        assert!(text.contains(setting), "{setting}");
    }
}

#[test]
fn the_sampler_goes_on_while_somebody_finds_memory_for_points() {
    let _alone = alone();
    let profiler = fresh();
    std::thread::spawn(|| profiler.run_sampler(0));
    profiler.start().unwrap();
    let sent = || counter(profiler, "sent");
    let has_seen = AtomicBool::new(false);
    profiler
        .events
        .register_points(1, || {
            // The sampler writes the counts of points once a second: two seconds of ticks are enough to see it go on.
            let begin = sent();
            while sent() < begin + 1000 {
                std::thread::yield_now();
            }
            has_seen.store(true, Ordering::Relaxed);
            // Meanwhile the CPU cannot be registered again.
            assert_eq!(
                profiler.events.register_points(1, || unreachable!("it has memory")),
                Err(RegisterError::Twice(1))
            );
            places(4)
        })
        .unwrap();
    assert!(has_seen.load(Ordering::Relaxed));
    // Nobody takes these ticks, so they stay pending.
    assert!(profiler.stop().is_err());
}

#[test]
fn a_registration_that_is_refused_takes_nothing() {
    let _alone = alone();
    let (profiler, memory) = (fresh(), places(6));
    profiler.events.register_points(1, || &memory[4..]).unwrap();
    assert_eq!(profiler.events.register_points(0, || memory), Err(RegisterError::PointsTaken(0)));
    assert_eq!(profiler.events.register_points(0, || &memory[..4]), Ok(()));
}

#[test]
fn the_first_hit_of_a_point_does_not_wait_for_the_meta_stream() {
    /// A sink in which a point is hit for the first time: the export owns the meta stream, which is full.
    struct Sink(Kprof, bool, String);
    impl std::fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.2.push_str(text);
            if !std::mem::replace(&mut self.1, true) {
                self.0.events.hit(Box::leak(Box::new(Point::new("first.here", Unit::Count))), 1);
            }
            Ok(())
        }
    }
    let _alone = alone();
    let profiler = fresh();
    (0..80).for_each(|_| profiler.mark(&"x".repeat(200)));
    let mut sink = Sink(profiler, false, String::new());
    profiler.export(&mut sink).unwrap();
    assert_eq!(control(profiler)["meta.lost"], "0");
    assert!(!sink.2.contains("first.here"), "it could not be told at once");
    profiler.open_control(1).write(b"flush").unwrap();
    sink.2.clear();
    profiler.export(&mut sink).unwrap();
    assert!(sink.2.contains("first.here"), "{}", sink.2);
}
