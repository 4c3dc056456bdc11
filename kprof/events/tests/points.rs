//! Points: every hit of a point that is on is counted once, on its CPU, by its weight; nothing is counted twice or
//! without a line.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::point::{BUCKETS, bucket_of_name};
use kprof::format::record::NO_CPU;
use kprof::{CommandError, Config, CpuSlot, RegisterError, Unit};
use kprof_events::{Point, PointCounts};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

type Kprof = &'static Both;

/// A profiler whose two CPUs have memory for all points of these tests. Points and their states belong to the whole
/// program, so each test runs alone, and begins without choices.
fn fresh() -> Kprof {
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config::new());
    (0..2).for_each(|cpu| profiler.events.register_points(cpu, || places(32)).unwrap());
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

/// What the daemon has been told of a point on a CPU.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    weight: u64,
    counters: BTreeMap<String, u64>,
    records: usize,
}

/// Reads the meta stream to its end; the sums over all records, by point and CPU.
fn accounts(profiler: Kprof, daemon: &Daemon) -> BTreeMap<(String, u64), Account> {
    let mut all = BTreeMap::<_, Account>::new();
    point_accounts(profiler, &daemon.ctl, &daemon.meta, |line| {
        assert_eq!(line.unit.to_string(), "ns");
        let account = all.entry((line.point.to_string(), line.cpu.unwrap_or(NO_CPU))).or_default();
        account.weight += line.weight;
        account.records += 1;
        for (name, count) in line.counters.in_text() {
            *account.counters.entry(name.to_owned()).or_default() += count;
        }
    });
    all
}

fn account(weight: u64, records: usize, counters: &[(&str, u64)]) -> Account {
    Account { weight, records, counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect() }
}

#[test]
fn a_point_counts_from_its_command_on_by_cpu_and_weight() {
    let _alone = alone();
    let (profiler, read) = (fresh(), point("block.read"));
    profiler.events.hit(read, 100);
    let daemon = Daemon::claim(profiler, 1);
    assert_eq!(accounts(profiler, &daemon), BTreeMap::new(), "a point is off");
    assert_eq!(control(profiler)["point.block.read"], "ns off");
    ctl(profiler, "event block.read count");
    assert_eq!(control(profiler)["point.block.read"], "ns count");
    [0, 5, 7].into_iter().for_each(|weight| profiler.events.hit(read, weight));
    CPU.store(0, Ordering::Relaxed);
    profiler.events.hit(read, 1 << 40);
    CPU.store(1, Ordering::Relaxed);
    let first = account(12, 1, &[("filtered", 3), ("log2-0", 1), ("log2-2", 2)]);
    let other = account(1 << 40, 1, &[("filtered", 1), ("log2-40", 1)]);
    let name = || "block.read".to_owned();
    assert_eq!(accounts(profiler, &daemon), BTreeMap::from([((name(), 1), first), ((name(), 0), other)]));
    assert_eq!(accounts(profiler, &daemon), BTreeMap::new(), "nothing is written twice");
    ctl(profiler, "event block.read off");
    profiler.events.hit(read, 9);
    assert_eq!(accounts(profiler, &daemon), BTreeMap::new());
}

#[test]
fn what_was_asked_of_a_point_is_told_in_the_meta_stream() {
    let _alone = alone();
    let (profiler, told) = (fresh(), point("told.here"));
    profiler.events.hit(told, 1);
    let daemon = Daemon::claim(profiler, 1);
    let mut buffer = vec![0; 64 * 1024];
    daemon.meta.read(&mut buffer).unwrap();
    ctl(profiler, "event told.here count");
    let bytes = daemon.meta.read(&mut buffer).unwrap();
    let text = String::from_utf8_lossy(&buffer[..bytes]);
    assert!(text.contains("event told.here count"), "the setting: {text:?}");
    assert!(text.contains("ns told.here count"), "the point: {text:?}");
}

#[test]
fn a_choice_made_before_the_first_hit_is_in_force_for_it_and_the_newest_one_counts() {
    let _alone = alone();
    let (profiler, read, write) = (fresh(), point("choice.read"), point("choice.write"));
    ctl(profiler, "event choice.* count\nevent choice.write off");
    let daemon = Daemon::claim(profiler, 1);
    profiler.events.hit(read, 1);
    profiler.events.hit(write, 1);
    let counted = accounts(profiler, &daemon);
    assert_eq!(counted.keys().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["choice.read"]);
    ctl(profiler, "event * off");
    profiler.events.hit(read, 1);
    assert_eq!(accounts(profiler, &daemon), BTreeMap::new());
    // The longest text of a choice.
    let name = "x".repeat(64).leak();
    ctl(profiler, &format!("event {name}* count"));
    let longest = point(name);
    profiler.events.hit(longest, 1);
    assert!(longest.is_on());
}

#[test]
fn a_hit_without_memory_is_lost_and_counted_as_lost() {
    let _alone = alone();
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config::new());
    ctl(profiler, "event lost.* count");
    let one = point("lost.one");
    // Without any memory.
    profiler.events.hit(one, 5);
    profiler.events.hit(one, 6);
    // With memory on this CPU and none on the other one.
    profiler.events.register_points(1, || places(32)).unwrap();
    profiler.events.hit(one, 1);
    CPU.store(0, Ordering::Relaxed);
    profiler.events.hit(one, 7);
    CPU.store(1, Ordering::Relaxed);
    let daemon = Daemon::claim(profiler, 1);
    let counted = accounts(profiler, &daemon);
    let name = || "lost.one".to_owned();
    let here = account(1, 1, &[("filtered", 1), ("log2-0", 1)]);
    let lost = account(18, 1, &[("lost", 3)]);
    assert_eq!(counted, BTreeMap::from([((name(), 1), here), ((name(), NO_CPU), lost)]));
}

#[test]
fn hits_without_weight_are_counted_too() {
    let _alone = alone();
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config::new());
    profiler.events.register_points(1, || places(32)).unwrap();
    ctl(profiler, "event * off\nevent weightless count");
    let weightless = point("weightless");
    for cpu in [1, 0, 1] {
        CPU.store(cpu, Ordering::Relaxed);
        profiler.events.hit(weightless, 0);
    }
    let expected = [
        (("weightless".to_owned(), 1), account(0, 1, &[("filtered", 2), ("log2-0", 2)])),
        (("weightless".to_owned(), NO_CPU), account(0, 1, &[("lost", 1)])),
    ];
    assert_eq!(accounts(profiler, &Daemon::claim(profiler, 1)), BTreeMap::from(expected));
}

#[test]
fn each_profiler_has_its_own_counts_of_a_point() {
    let _alone = alone();
    let (first, second, shared) = (fresh(), fresh(), point("shared.point"));
    ctl(first, "event shared.point count");
    first.events.hit(shared, 4);
    second.events.hit(shared, 8);
    for (profiler, bucket, weight) in [(first, "log2-2", 4), (second, "log2-3", 8)] {
        let counted = accounts(profiler, &Daemon::claim(profiler, 1));
        let expected = account(weight, 1, &[("filtered", 1), (bucket, 1)]);
        assert_eq!(counted, BTreeMap::from([(("shared.point".to_owned(), 1), expected)]));
    }
}

#[test]
fn the_end_of_a_lease_undoes_its_choices_for_points() {
    let _alone = alone();
    let (profiler, read, write) = (fresh(), point("lease.read"), point("lease.write"));
    profiler.events.hit(read, 1);
    ctl(profiler, "event lease.read count");
    let recorder = profiler.open_control(2);
    recorder.write(b"lease\nevent lease.* count\nevent lease.read off").unwrap();
    profiler.events.hit(write, 2);
    profiler.events.hit(read, 2);
    drop(recorder);
    assert_eq!(control(profiler)["point.lease.read"], "ns count");
    assert_eq!(control(profiler)["point.lease.write"], "ns off");
    let daemon = Daemon::claim(profiler, 1);
    let counted = accounts(profiler, &daemon);
    assert_eq!(counted[&("lease.write".to_owned(), 1)], account(2, 1, &[("filtered", 1), ("log2-1", 1)]));
    assert_eq!(counted.len(), 1, "{counted:?}");
}

#[test]
fn counts_that_do_not_fit_into_one_record_or_into_the_stream_are_written_later() {
    let _alone = alone();
    let (profiler, read) = (fresh(), point("many.read"));
    ctl(profiler, "event many.* count");
    let daemon = Daemon::claim(profiler, 1);
    let each_bucket = || (0..BUCKETS).map(|bucket| 1_u64 << bucket);
    accounts(profiler, &daemon);
    each_bucket().for_each(|weight| profiler.events.hit(read, weight));
    // The stream is full: what has been read is not replaced.
    profiler.mark("read this");
    daemon.meta.read(&mut vec![0; 4096]).unwrap();
    (0..300).for_each(|_| profiler.mark("a mark that fills the stream, with a text of some eighty bytes that says so"));
    daemon.ctl.write(b"flush").unwrap();
    assert_eq!(control(profiler)["meta.kept"], "1", "whoever reads must flush again");
    // `accounts` frees the stream only after its first read, so the counts come with the second call.
    let mut sum = accounts(profiler, &daemon).remove(&("many.read".to_owned(), 1)).unwrap_or_default();
    let rest = accounts(profiler, &daemon).remove(&("many.read".to_owned(), 1)).unwrap_or_default();
    assert_eq!(control(profiler)["meta.kept"], "0");
    sum.weight = sum.weight.wrapping_add(rest.weight);
    rest.counters.into_iter().for_each(|(name, count)| *sum.counters.entry(name).or_default() += count);
    assert_eq!(sum.weight, u64::MAX);
    assert_eq!(sum.counters.remove("filtered"), Some(BUCKETS as u64));
    assert_eq!(sum.counters.len(), BUCKETS);
    assert!(sum.counters.iter().all(|(name, count)| bucket_of_name(name).is_some() && *count == 1), "{sum:?}");
}

/// Fills the meta ring with other records, so that all earlier ones that may be replaced are.
fn fill_meta(profiler: Kprof) {
    (0..40).for_each(|_| ctl(profiler, &format!("mark {}", "x".repeat(200))));
}

#[test]
fn counts_in_a_record_that_is_replaced_unread_are_written_again() {
    let _alone = alone();
    let (profiler, read, lost) = (fresh(), point("replaced.read"), point("replaced.lost"));
    ctl(profiler, "event replaced.* count");
    for _ in 0..3 {
        [0, 5, 7].into_iter().for_each(|weight| profiler.events.hit(read, weight));
        // Without memory for events, a hit for which a record is asked is lost.
        ctl(profiler, "event replaced.lost record");
        profiler.events.hit(lost, 9);
        CPU.store(2, Ordering::Relaxed);
        profiler.events.hit(lost, 11);
        CPU.store(1, Ordering::Relaxed);
        ctl(profiler, "flush");
        assert_eq!(control(profiler)["meta.kept"], "0");
        fill_meta(profiler);
        assert_ne!(control(profiler)["meta.kept"], "0");
    }
    let daemon = Daemon::claim(profiler, 1);
    let lost_here = &[("asked-weight", 27), ("log2-3", 3), ("lost", 3), ("lost-weight", 27)];
    let expected = [
        (("replaced.lost".to_owned(), 1), account(27, 1, lost_here)),
        (("replaced.lost".to_owned(), NO_CPU), account(33, 1, &[("lost", 3)])),
        (("replaced.read".to_owned(), 1), account(36, 1, &[("filtered", 9), ("log2-0", 3), ("log2-2", 6)])),
    ];
    assert_eq!(accounts(profiler, &daemon), BTreeMap::from(expected));
    assert_eq!(accounts(profiler, &daemon), BTreeMap::new());
}

#[test]
fn counts_that_somebody_has_read_are_not_written_again() {
    let _alone = alone();
    let (profiler, read) = (fresh(), point("seen.read"));
    ctl(profiler, "event seen.read count");
    profiler.events.hit(read, 5);
    ctl(profiler, "flush");
    let first = Daemon::claim(profiler, 1);
    // Perhaps it writes them to a file, and ends before it has acknowledged them.
    assert!(first.meta.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
    drop(first);
    fill_meta(profiler);
    let second = Daemon::claim(profiler, 2);
    profiler.events.hit(read, 6);
    let expected = account(6, 1, &[("filtered", 1), ("log2-2", 1)]);
    assert_eq!(accounts(profiler, &second), BTreeMap::from([(("seen.read".to_owned(), 1), expected)]));
}

#[test]
fn memory_is_given_once_and_to_one_cpu() {
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    assert_eq!(profiler.events.register_points(1, || unreachable!()), Err(RegisterError::NoSlot(1)));
    set_up(profiler, slots, Config::new());
    let memory = places(1);
    profiler.events.register_points(1, || memory).unwrap();
    assert_eq!(profiler.events.register_points(1, || unreachable!()), Err(RegisterError::Twice(1)));
    assert_eq!(profiler.events.register_points(0, || memory), Err(RegisterError::PointsTaken(0)));
}

#[test]
fn too_many_choices_are_refused_together() {
    let _alone = alone();
    let profiler = fresh();
    let lines: String = (0..17).map(|number| format!("event point-{number} count\n")).collect();
    let refused = profiler.open_control(1).write(lines.as_bytes()).unwrap_err();
    assert_eq!(refused.line, 17);
    assert!(matches!(refused.reason, CommandError::State(_)));
    let read = point("point-3");
    profiler.events.hit(read, 1);
    assert_eq!(control(profiler)["point.point-3"], "ns off", "nothing of a refused write is carried out");
}
