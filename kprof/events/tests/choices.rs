//! Choices for points, by the lease and by others; and hits that a reader of copies adds up.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::{Config, CpuSlot, Unit};
use kprof_events::{Point, PointCounts};

type Kprof = &'static Both;

/// A profiler of a program without choices for points.
fn fresh() -> Kprof {
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config::new());
    ctl(profiler, "event * off");
    profiler
}

fn places(count: usize) -> &'static [PointCounts] {
    Vec::leak((0..count).map(|_| PointCounts::new()).collect())
}

fn point(name: &'static str) -> &'static Point {
    Box::leak(Box::new(Point::new(name, Unit::Nanoseconds)))
}

fn ctl(profiler: Kprof, lines: &str) {
    profiler.open_control(1).write(lines.as_bytes()).unwrap();
}

#[test]
fn the_end_of_a_lease_leaves_the_choices_of_others_for_points() {
    let _alone = alone();
    let (profiler, mine, other) = (fresh(), point("layer.mine"), point("layer.other"));
    [mine, other].into_iter().for_each(|point| profiler.events.hit(point, 1));
    let recorder = profiler.open_control(2);
    recorder.write(b"lease\nevent layer.* count").unwrap();
    ctl(profiler, "event layer.other count\nevent layer.later count");
    drop(recorder);
    profiler.events.hit(point("layer.later"), 1);
    let states = ["mine", "other", "later"].map(|name| control(profiler)[&format!("point.layer.{name}")].clone());
    assert_eq!(states, ["ns off", "ns count", "ns count"]);
}

#[test]
fn with_sixteen_choices_there_is_room_for_those_that_take_the_place_of_others() {
    let _alone = alone();
    let profiler = fresh();
    (0..16).for_each(|number| ctl(profiler, &format!("event full.{number} count")));
    let full = profiler.open_control(1).write(b"event full.3 off\nevent one.more count\nevent two.more count");
    let error = full.unwrap_err();
    assert!(error.line == 3 && error.to_string().contains("`event * off` removes all"), "{error}");
    let recorder = profiler.open_control(2);
    recorder.write(b"lease\nevent * off\nevent one.more count").unwrap();
    assert_eq!(profiler.open_control(1).write(b"event one.more count").unwrap_err().line, 1);
    drop(recorder);
    ctl(profiler, "event full.1* record\nevent one.more count\nevent * off");
    (0..16).for_each(|number| ctl(profiler, &format!("event again.{number} count")));
    ctl(profiler, "event * off");
}

#[test]
fn a_reader_of_copies_gets_no_hit_twice_though_counts_of_a_replaced_record_go_back() {
    let _alone = alone();
    for words in [2048, 4096, 1 << 15] {
        let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
        let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..Config::new() };
        profiler.init(slots.len(), || kprof::Setup { slots, meta: memory(words), config }).unwrap();
        profiler.events.register_points(1, || places(64)).unwrap();
        ctl(profiler, "event * off\nevent copied.* count");
        let here = point(format!("copied.{words}").leak());
        let copier = profiler.open_control(2);
        copier.write(b"copy 1").unwrap();
        (0..10).for_each(|_| profiler.events.hit(here, 7));
        ctl(profiler, "flush");
        while control(profiler)["meta.position-in"].parse::<usize>().unwrap() < words * 6 / 10 {
            profiler.mark("something else");
        }
        // The first read of the daemon makes room, and replaces the account. Its words are still in the ring.
        let daemon = Daemon::claim(profiler, 1);
        daemon.meta.read(&mut vec![0; 1 << 18]).unwrap();
        let copies = profiler.open_meta(2);
        let read = || {
            let (mut buffer, mut hits) = (vec![0; 1 << 18], 0);
            loop {
                let bytes = copies.read(&mut buffer).unwrap();
                if bytes == 0 {
                    return hits;
                }
                each_account(&buffer[..bytes], |line| {
                    hits += line
                        .counters
                        .in_text()
                        .filter(|(name, _)| *name == "filtered")
                        .map(|(_, hits)| hits)
                        .sum::<u64>();
                });
            }
        };
        let first = read();
        ctl(profiler, "flush");
        assert_eq!(first + read(), 10, "{words} words: {first} at first");
    }
}
