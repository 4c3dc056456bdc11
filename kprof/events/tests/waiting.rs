//! What tasks wait for: each time off the CPU is one hit of each point, its parts add up to it, and what a task did
//! adds up to the time that has gone by, to the tick.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::event::Event;
use kprof::format::line::{Name, PointValues, TaskTimes as Line};
use kprof::format::record::Kind;
use kprof::{Config, CpuSlot, StreamFile};
use kprof_events::{PointCounts, TaskState, TaskTimes};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

type Kprof = &'static Both;

/// A profiler whose CPU 1 has memory for points and an event ring, and whose scheduler has switched once.
fn fresh() -> Kprof {
    let (profiler, slots): (Kprof, &'static [CpuSlot; 2]) = machine();
    set_up(profiler, slots, Config::new());
    let places: &'static [PointCounts] = Vec::leak((0..8).map(|_| PointCounts::new()).collect());
    profiler.events.register_points(1, || places).unwrap();
    profiler.events.register_events(1, || memory(4096)).unwrap();
    profiler.events.switched(&TaskTimes::idle(), &TaskTimes::new(), TaskState::Preempted);
    profiler.open_control(1).write(b"event * off").unwrap();
    profiler
}

/// The records of a stream.
fn read(stream: &StreamFile) -> Vec<Record> {
    let mut buffer = vec![0; 64 * 1024];
    let bytes = stream.read(&mut buffer).unwrap();
    records(&buffer[..bytes])
}

/// The parts of the times of task 5 in the meta stream, and the times of all lines.
fn times(meta: &[Record]) -> (BTreeMap<String, u64>, u64) {
    let (mut parts, mut wall, mut end) = (BTreeMap::new(), 0, None);
    for record in meta.iter().filter(|record| record.kind == Kind::TaskTimes) {
        let text = record.text();
        let line = Line::of_record(record.meta().values(), &text, Name::Raw(b"five"));
        assert_eq!((line.id.0, end.unwrap_or(line.from.0)), (5, line.from.0), "it goes on");
        end = Some(line.tsc.0);
        let sum: u64 = line.counters.in_text().map(|(_, ticks)| ticks).sum();
        assert_eq!(sum, line.tsc.0 - line.from.0, "{text}");
        wall += sum;
        line.counters.in_text().for_each(|(name, ticks)| *parts.entry(name.to_owned()).or_default() += ticks);
    }
    (parts, wall)
}

#[test]
fn a_time_off_the_cpu_is_one_hit_of_each_point_and_the_parts_are_the_whole() {
    let _alone = alone();
    let profiler = fresh();
    let (task, idle) = (TaskTimes::new(), TaskTimes::idle());
    // Nothing is on: nothing is noted.
    profiler.events.switched(&task, &idle, TaskState::Blocked(1));
    profiler.events.switched(&idle, &task, TaskState::Preempted);
    profiler.events.resumed(&task);
    let daemon = Daemon::claim(profiler, 1);
    let events = profiler.open_events(1, 1).unwrap();
    assert!(daemon.ctl.write(b"event sched.* record").unwrap().wants_times);
    profiler.events.task_times(5, &task, TaskState::Running);
    profiler.events.switched(&task, &idle, TaskState::Blocked(0));
    sleep(Duration::from_millis(2));
    profiler.events.woken(&task);
    sleep(Duration::from_millis(1));
    profiler.events.switched(&idle, &task, TaskState::Preempted);
    profiler.events.resumed(&task);
    profiler.events.resumed(&task);
    profiler.events.switched(&task, &idle, TaskState::Preempted);
    sleep(Duration::from_millis(1));
    profiler.events.switched(&idle, &task, TaskState::Preempted);
    profiler.events.resumed(&task);
    assert!(daemon.ctl.write(b"event sched.* off").unwrap().wants_times);
    sleep(Duration::from_millis(1));
    profiler.events.task_times(5, &task, TaskState::Running);
    profiler.events.task_times(5, &task, TaskState::Running);

    let meta = read(&daemon.meta);
    let mut values = meta.iter().filter(|record| record.kind == Kind::PointValues);
    let text = values.next_back().unwrap().text();
    let values = PointValues::of_record(0, &text).values.to_string();
    let meaning: Vec<&str> = values.split(',').collect();
    let ids: BTreeMap<u64, String> = meta
        .iter()
        .filter(|record| record.kind == Kind::Point)
        .map(|record| (record.meta().first, record.text().split(' ').nth(1).unwrap().to_owned()))
        .collect();
    let mut hits = Vec::new();
    for record in read(&events) {
        let (event, _) = Event::of(|word| record.words.get(word).copied().unwrap_or(0), record.words.len()).unwrap();
        let arguments = event.arguments.as_slice().to_vec();
        assert_eq!(event.task, 7, "the task that runs again");
        hits.push((ids[&event.point].clone(), meaning[arguments[0] as usize], event.weight, arguments));
    }
    let names: Vec<(&str, &str)> = hits.iter().map(|(point, cause, ..)| (point.as_str(), *cause)).collect();
    let expected = [
        ("sched.off-cpu", "blocked.pipe"),
        ("sched.latency", "blocked.pipe"),
        ("sched.blocked", "blocked.pipe"),
        ("sched.off-cpu", "preempted"),
        ("sched.latency", "preempted"),
    ];
    assert_eq!(names, expected);
    let weights: Vec<u64> = hits.iter().map(|(_, _, weight, _)| *weight).collect();
    assert_eq!((weights[0], hits[0].3[1]), (weights[1] + weights[2], weights[1]), "blocked and ready are the whole");
    assert_eq!(weights[3], weights[4], "it was ready all the time");

    let (parts, wall) = times(&meta);
    assert_eq!(parts.values().sum::<u64>(), wall);
    // A tick is a nanosecond here, by the configuration.
    assert_eq!(parts["blocked.pipe"], weights[2]);
    assert_eq!(parts["woken"] + parts["preempted"], weights[1] + weights[4]);
    let names: Vec<&str> = parts.keys().map(String::as_str).collect();
    assert_eq!(names, ["blocked.pipe", "preempted", "running", "woken"]);
}

#[test]
fn times_are_asked_for_by_stop_and_flush_and_go_up_to_the_end_of_the_watch() {
    let _alone = alone();
    let profiler = fresh();
    let daemon = Daemon::claim(profiler, 1);
    assert!(!daemon.ctl.write(b"start").unwrap().wants_times);
    assert!(daemon.ctl.write(b"event sched.latency count").unwrap().wants_times);
    assert!(daemon.ctl.write(b"flush").unwrap().wants_times);
    assert!(!daemon.ctl.write(b"mark here").unwrap().wants_times);
    assert!(daemon.ctl.write(b"stop").unwrap().wants_times);
    daemon.ctl.write(b"event * off").unwrap();
    let task = TaskTimes::new();
    sleep(Duration::from_millis(5));
    // A reason that the kernel has not named.
    profiler.events.task_times(5, &task, TaskState::Blocked(2));
    let (parts, wall) = times(&read(&daemon.meta));
    assert!(wall > 0 && parts["blocked"] == wall, "{parts:?}");
    assert!(wall < 5_000_000, "not the time after the watch: {wall}");
}

#[test]
fn a_lease_ends_the_watch_and_a_task_made_in_between_counts_from_its_first_wake_up() {
    let _alone = alone();
    let profiler = fresh();
    let daemon = Daemon::claim(profiler, 1);
    let recorder = profiler.open_control(2);
    recorder.write(b"lease\nevent sched.off-cpu count").unwrap();
    let (task, other) = (TaskTimes::new(), TaskTimes::new());
    profiler.events.created(&task);
    sleep(Duration::from_millis(2));
    profiler.events.woken(&task);
    profiler.events.switched(&other, &task, TaskState::Yielded);
    drop(recorder);
    profiler.events.switched(&task, &other, TaskState::Blocked(0));
    profiler.events.task_times(5, &task, TaskState::Running);
    let (parts, wall) = times(&read(&daemon.meta));
    assert_eq!(parts.keys().map(String::as_str).collect::<Vec<_>>(), ["running", "woken"]);
    assert_eq!(parts.values().sum::<u64>(), wall);
}
