//! Records of hits: each hit of a point that is recorded is in the event stream of its CPU once or is counted as lost,
//! and the sums of hits and weights are exact, whatever becomes of the records.
#![cfg(feature = "profiling")]

mod array_kernel;
#[path = "array_kernel/reader.rs"]
mod reader;

use array_kernel::*;
use kprof::format::event::Event;
use kprof::format::point::PointState;
use kprof::format::record::NO_CPU;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Profiler, ReadError, RegisterError, Setup, Task, Unit};
use kprof_events::{EventKernel, EventSlot, Events, Point, PointCounts};
use reader::{Account, Reader, account};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kernel whose functions hit a point while a hit is recorded, as exceptions in them would.
struct Nesting;

/// How many of the next calls of the kernel's functions hit [`INNER`], by a bit for each.
static NESTED: AtomicU64 = AtomicU64::new(0);
static INNER: Point = Point::new("nested.inner", Unit::Count);
static PROFILER: Profiler<Nesting> = Profiler::new(Nesting);
static NESTING: Events<Nesting> = Events::new(&PROFILER);

fn maybe_nested() {
    let calls = NESTED.load(Ordering::Relaxed);
    NESTED.store(calls >> 1, Ordering::Relaxed);
    if calls & 1 == 1 {
        NESTING.hit(&INNER, 1 << 20);
    }
}

// SAFETY: this kernel has one CPU, and declares no stack and no text.
unsafe impl Kernel for Nesting {
    fn cpu(&self) -> usize {
        maybe_nested();
        1
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, _: u64) -> Option<Range<u64>> {
        maybe_nested();
        None
    }
    fn is_entry_code(&self, _: u64) -> bool {
        maybe_nested();
        false
    }
    fn task(&self) -> Task {
        maybe_nested();
        Task { id: 9, idle: false }
    }
    fn sleep_ns(&self, _: u64) {}
}

impl EventKernel for Nesting {}

fn places() -> &'static [PointCounts] {
    Vec::leak((0..32).map(|_| PointCounts::new()).collect())
}

fn point(name: &'static str) -> &'static Point {
    Box::leak(Box::new(Point::new(name, Unit::Bytes)))
}

/// A profiler whose CPU 1 has memory for points and an event ring of 1024 words.
fn fresh() -> &'static Both {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config::new());
    profiler.events.register_points(1, places).unwrap();
    profiler.events.register_events(1, || memory(1024)).unwrap();
    profiler.open_control(1).write(b"event * off").unwrap();
    profiler
}

#[test]
fn a_recorded_hit_has_point_task_weight_and_arguments_and_is_read_until_it_is_acknowledged() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("one.write"));
    profiler.open_control(1).write(b"event one.* record").unwrap();
    profiler.events.hit(write, 4096);
    profiler.events.hit_with(write, 7, [1, u64::MAX]);
    for _ in 0..2 {
        let read = Reader::claim(profiler).read();
        let of = |event: &Event| (event.task, event.weight, event.state, event.arguments.as_slice().to_vec());
        let events: Vec<_> = read.iter().map(|(event, _)| of(event)).collect();
        assert_eq!(events, [(7, 4096, PointState::Record, vec![]), (7, 7, PointState::Record, vec![1, u64::MAX])]);
        assert!(read.iter().all(|(event, stack)| event.point == read[0].0.point && !stack.is_empty()));
    }
    let reader = Reader::claim(profiler);
    assert_eq!(reader.read().len(), 2);
    reader.acknowledge(profiler);
    drop(reader);
    let reader = Reader::claim(profiler);
    assert_eq!(reader.read().len(), 0, "what was acknowledged is not given again");
    assert_eq!(control(profiler)["event.1.delivered"], "2");
    let accounts = reader.accounts(profiler);
    let expected = account(&[("recorded", 2), ("asked-weight", 4103), ("weight", 4103)]);
    assert_eq!(accounts[&("one.write".to_owned(), 1)], expected);
}

#[test]
fn hits_that_do_not_fit_are_lost_and_the_sums_are_exact() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("full.write"));
    profiler.open_control(1).write(b"event full.* record").unwrap();
    (1..=1000).for_each(|weight| profiler.events.hit(write, weight));
    let reader = Reader::claim(profiler);
    let read = reader.read();
    let recorded: u64 = read.iter().map(|(event, _)| event.weight).sum();
    let (count, all) = (read.len() as u64, 1000 * 1001 / 2);
    assert!((64..=128).contains(&count), "{count} records of 8 words and more in 1024 words");
    let accounts = reader.accounts(profiler);
    let lost = [("lost", 1000 - count), ("lost-weight", all - recorded)];
    let expected = account(&[&lost[..], &[("recorded", count), ("asked-weight", all), ("weight", all)]].concat());
    assert_eq!(accounts[&("full.write".to_owned(), 1)], expected);
    // After the reader has freed the ring, hits fit again.
    reader.acknowledge(profiler);
    profiler.events.hit(write, 5);
    assert_eq!(reader.read().iter().map(|(event, _)| event.weight).collect::<Vec<_>>(), [5]);
}

#[test]
fn without_memory_for_records_or_counts_hits_are_lost_with_their_weight() {
    let _alone = alone();
    let (profiler, slots): (_, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config::new());
    profiler.events.register_points(1, places).unwrap();
    let write = point("nowhere.write");
    profiler.open_control(1).write(b"event nowhere.* record").unwrap();
    profiler.events.hit(write, 3);
    CPU.store(0, Ordering::Relaxed);
    profiler.events.hit(write, 40);
    CPU.store(1, Ordering::Relaxed);
    let reader = Reader::claim(profiler);
    let accounts = reader.accounts(profiler);
    let name = || "nowhere.write".to_owned();
    let here = account(&[("lost", 1), ("lost-weight", 3), ("asked-weight", 3), ("weight", 3)]);
    let elsewhere = account(&[("lost", 1), ("weight", 40)]);
    assert_eq!(accounts, BTreeMap::from([((name(), 1), here), ((name(), NO_CPU), elsewhere)]));
    assert_eq!(reader.events.read(&mut [0; 64]), Err(ReadError::NoStream));
    assert!(!control(profiler).contains_key("event.1.position-in"));
}

#[test]
fn one_of_n_is_recorded_and_the_rest_is_filtered() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("every.write"));
    profiler.open_control(1).write(b"event every.* every 10").unwrap();
    (0..105).for_each(|_| profiler.events.hit(write, 2));
    assert_eq!(control(profiler)["point.every.write"], "bytes every 10");
    let reader = Reader::claim(profiler);
    let read = reader.read();
    assert_eq!(read.len(), 10);
    assert!(read.iter().all(|(event, _)| event.state == PointState::Every(10)));
    let expected =
        account(&[("recorded", 10), ("filtered", 95), ("unsampled", 95), ("asked-weight", 210), ("weight", 210)]);
    assert_eq!(reader.accounts(profiler)[&("every.write".to_owned(), 1)], expected);
    // Back to counting: the same point, without records.
    profiler.open_control(1).write(b"event every.* count").unwrap();
    profiler.events.hit(write, 2);
    let expected = account(&[("filtered", 1), ("weight", 2)]);
    assert_eq!(reader.accounts(profiler)[&("every.write".to_owned(), 1)], expected);
}

#[test]
#[cfg_attr(miri, ignore = "many hits")]
fn hits_drawn_by_weight_estimate_the_sum() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("weight.write"));
    profiler.open_control(1).write(b"event weight.* by-weight 1000").unwrap();
    let (reader, mut estimate, mut events) = (Reader::claim(profiler), 0.0, 0);
    for round in 0..2000 {
        [1, 10, 100, 1000].into_iter().for_each(|weight| profiler.events.hit(write, weight));
        if round % 10 == 9 {
            for (event, _) in reader.read() {
                estimate += event.weight as f64 / -(-(event.weight as f64) / 1000.0).exp_m1();
                events += 1;
            }
            reader.acknowledge(profiler);
        }
    }
    let truth = 2000.0 * 1111.0;
    assert!((estimate / truth - 1.0).abs() < 0.1, "{estimate} for {truth}");
    let accounts = reader.accounts(profiler);
    let found = &accounts[&("weight.write".to_owned(), 1)];
    assert_eq!((found["recorded"], found["recorded"] + found["filtered"], found["weight"]), (events, 8000, 2_222_000));
}

#[test]
fn a_hit_inside_a_hit_is_lost_and_counted_wherever_it_comes() {
    let _alone = alone();
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let config = Config { tsc_hz: 1_000_000_000, text: (1, 2), ..Config::new() };
    NESTING
        .init(|| Vec::leak(vec![EventSlot::new(), EventSlot::new()]), || Setup { slots, meta: memory(1024), config })
        .unwrap();
    NESTING.register_points(1, places).unwrap();
    NESTING.register_events(1, || memory(32 * 1024)).unwrap();
    let outer = point("nested.outer");
    PROFILER.open_control(1).write(b"event * off\nevent nested.* record").unwrap();
    [outer, &INNER].into_iter().for_each(|point| NESTING.hit(point, 0));
    let reader = Reader::claim(&PROFILER);
    reader.read();
    reader.acknowledge(&PROFILER);
    reader.accounts(&PROFILER);
    // Every pattern of six calls: the inner hit comes before, within, or after the outer one's record.
    const PATTERNS: u64 = 64;
    for calls in 0..PATTERNS {
        NESTED.store(calls, Ordering::Relaxed);
        NESTING.hit(outer, calls);
    }
    NESTED.store(0, Ordering::Relaxed);
    let read = reader.read();
    let accounts = reader.accounts(&PROFILER);
    let of = |name: &str| accounts[&(name.to_owned(), 1)].clone();
    let (outer, inner) = (of("nested.outer"), of("nested.inner"));
    let get = |account: &Account, name: &str| account.get(name).copied().unwrap_or(0);
    let weights = |inner: bool| read.iter().filter(move |(event, _)| (event.weight >= 1 << 20) == inner);
    assert_eq!(get(&outer, "recorded"), weights(false).count() as u64);
    assert_eq!(get(&outer, "recorded") + get(&outer, "lost"), PATTERNS);
    assert_eq!(get(&outer, "weight"), (0..PATTERNS).sum());
    assert_eq!(get(&inner, "recorded"), weights(true).count() as u64);
    assert!(get(&inner, "lost") > 0 && get(&inner, "recorded") > 0, "{inner:?}");
    assert_eq!(get(&inner, "weight"), (get(&inner, "recorded") + get(&inner, "lost")) << 20);
    assert_eq!(get(&inner, "lost-weight"), get(&inner, "lost") << 20);
}

#[test]
fn samples_and_events_do_not_push_each_other_out() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("beside.write"));
    let _reader = Reader::begin(profiler, "event beside.* record\nstart");
    assert!(!profiler.reader_due());
    (0..1000).for_each(|_| profiler.events.hit(write, 1));
    assert!(profiler.reader_due(), "half of the event ring is unread");
    profiler.raise_tick(1);
    assert_eq!(profiler.on_nmi(&token(), &registers()), kprof::Outcome::Sampled);
    let counters = control(profiler);
    assert_eq!((counters["cpu.1.recorded"].as_str(), counters["cpu.1.lost-full"].as_str()), ("1", "0"));
}

#[test]
fn a_second_reader_gets_copies_of_events_and_frees_none() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("copy.write"));
    profiler.open_control(1).write(b"event copy.* record").unwrap();
    profiler.events.hit(write, 1);
    let reader = Reader::claim(profiler);
    let copier = profiler.open_control(2);
    copier.write(b"copy 1").unwrap();
    let copies = profiler.open_events(1, 2).unwrap();
    profiler.events.hit(write, 2);
    let mut buffer = vec![0; 8192];
    let bytes = copies.read(&mut buffer).unwrap();
    assert_eq!(words(&buffer[..bytes])[5], 2, "copies begin with the next event");
    assert_eq!(reader.read().iter().map(|(event, _)| event.weight).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_serial_form_has_events_once_with_their_names() {
    let _alone = alone();
    let (profiler, write) = (fresh(), point("serial.write"));
    profiler.task_name(7, "a task");
    profiler.open_control(1).write(b"event serial.* every 2").unwrap();
    (0..4).for_each(|_| profiler.events.hit_with(write, 9, [0xff]));
    let mut last = String::new();
    profiler.export_last(&mut last, 1).unwrap();
    let lines = |text: &str| text.lines().filter(|line| line.contains(" !serial.write a%20task 1 ")).count();
    assert_eq!(lines(&last), 1, "the newest event of each CPU:\n{last}");
    let mut text = String::new();
    profiler.export(&mut text).unwrap();
    assert_eq!(lines(&text), 2, "{text}");
    assert!(text.contains(" 9x2 ff ") && text.contains("# batch cpu=event-1 from=0"), "{text}");
    let mut again = String::new();
    profiler.export(&mut again).unwrap();
    assert_eq!(lines(&again), 0, "{again}");
}

#[test]
fn an_event_ring_is_given_once_and_must_be_a_ring() {
    let (profiler, slots) = machine();
    assert_eq!(profiler.events.register_events(1, || unreachable!()), Err(RegisterError::NoSlot(1)));
    set_up(profiler, slots, Config::new());
    assert!(matches!(profiler.events.register_events(1, || memory(1000)), Err(RegisterError::Memory(_))));
    profiler.events.register_events(1, || memory(1024)).unwrap();
    assert_eq!(profiler.events.register_events(1, || unreachable!()), Err(RegisterError::Twice(1)));
}
