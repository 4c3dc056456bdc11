//! Times of tasks whose clock is an argument: the parts add up to the whole, whatever comes in which order.

use super::*;
use kprof::format::waiting::part_names;
use std::vec::Vec;

const WATCH: u64 = 1000;

/// The parts of a report that are not 0, by name; reason 0 is `pipe`, reason 1 is `sleep`.
fn parts(report: &Report) -> Vec<(&'static str, u64)> {
    let names = part_names(&["pipe", "sleep"]).map(|(prefix, name)| match (prefix, name) {
        ("", name) => name,
        (_, name) => name,
    });
    assert_eq!(report.parts.iter().sum::<u64>(), report.to - report.from, "{report:?}");
    names.zip(report.parts).filter(|(_, ticks)| *ticks > 0).collect()
}

fn take(task: &TaskTimes, now: u64, state: TaskState) -> Vec<(&'static str, u64)> {
    task.take(WATCH, now, state).map_or(Vec::new(), |report| parts(&report))
}

#[test]
fn a_task_that_blocks_is_woken_and_runs_again_has_all_three_times() {
    let task = TaskTimes::new();
    task.create(WATCH);
    task.wake(WATCH, 1100);
    task.enter(WATCH, 1110);
    assert_eq!(task.take_off_cpu(), Some(OffCpu { cause: WOKEN, blocked: 0, ready: 10 }));
    task.leave(WATCH, 1200, TaskState::Blocked(0));
    task.wake(WATCH, 1500);
    // A second wake-up changes nothing.
    task.wake(WATCH, 1505);
    task.enter(WATCH, 1520);
    let pipe = blocked_part(0) as u8;
    assert_eq!(task.take_off_cpu(), Some(OffCpu { cause: pipe, blocked: 300, ready: 20 }));
    assert_eq!(task.take_off_cpu(), None, "once");
    task.leave(WATCH, 1600, TaskState::Preempted);
    task.enter(WATCH, 1650);
    let preempted = TaskPart::Preempted as u8;
    assert_eq!(task.take_off_cpu(), Some(OffCpu { cause: preempted, blocked: 0, ready: 50 }));
    let expected = [("running", 90 + 80 + 5), ("woken", 30), ("preempted", 50), ("pipe", 300)];
    assert_eq!(take(&task, 1655, TaskState::Running), expected);
    // The next report goes on from there.
    task.leave(WATCH, 1660, TaskState::Ended);
    assert_eq!(take(&task, 1700, TaskState::Ended), [("running", 5)]);
    assert_eq!(take(&task, 1800, TaskState::Ended), []);
}

#[test]
fn the_first_change_tells_what_a_task_did_since_the_watch_began() {
    let first = |change: &dyn Fn(&TaskTimes)| {
        let task = TaskTimes::new();
        change(&task);
        take(&task, 1500, TaskState::Running)
    };
    let left = first(&|task| task.leave(WATCH, 1300, TaskState::Blocked(1)));
    assert_eq!(left, [("running", 300), ("sleep", 200)]);
    assert_eq!(first(&|task| task.wake(WATCH, 1300)), [("woken", 200), ("blocked", 300)]);
    assert_eq!(first(&|task| task.enter(WATCH, 1300)), [("running", 200), ("woken", 300)]);
    // Without a change the kernel says it.
    let unchanged = |state| take(&TaskTimes::new(), 1500, state);
    assert_eq!(unchanged(TaskState::Blocked(1)), [("sleep", 500)]);
    assert_eq!(unchanged(TaskState::Running), [("running", 500)]);
    // What is known counts more.
    let task = TaskTimes::new();
    task.leave(WATCH, 1300, TaskState::Blocked(1));
    assert_eq!(take(&task, 1500, TaskState::Running), [("running", 300), ("sleep", 200)]);
}

#[test]
fn a_wait_that_began_before_the_watch_counts_from_its_beginning() {
    let task = TaskTimes::new();
    task.leave(WATCH, 1100, TaskState::Blocked(0));
    // Not watched meanwhile: woken, run and blocked again. Then a new watch.
    let again = 5000;
    task.wake(again, 5200);
    task.enter(again, 5230);
    assert_eq!(
        task.take_off_cpu(),
        Some(OffCpu { cause: TaskPart::Blocked as u8, blocked: 200, ready: 30 }),
        "not known what for"
    );
    let report = task.take(again, 5300, TaskState::Running).unwrap();
    assert_eq!((report.from, parts(&report)), (again, vec![("running", 70), ("woken", 30), ("blocked", 200)]));
}

#[test]
fn an_idle_task_is_idle_or_its_cpu_runs_others() {
    let idle = TaskTimes::idle();
    idle.leave(WATCH, 1400, TaskState::Preempted);
    idle.enter(WATCH, 1500);
    assert_eq!(idle.take_off_cpu(), None, "it waits for nothing");
    assert_eq!(take(&idle, 1700, TaskState::Running), [("idle", 600), ("other-tasks", 100)]);
}

#[test]
fn clocks_that_differ_and_calls_in_a_wrong_order_change_no_sum() {
    let task = TaskTimes::new();
    task.leave(WATCH, 2000, TaskState::Blocked(0));
    // Another CPU's clock is behind.
    task.wake(WATCH, 1990);
    task.enter(WATCH, 1995);
    assert_eq!(task.take_off_cpu(), Some(OffCpu { cause: blocked_part(0) as u8, blocked: 0, ready: 0 }));
    task.enter(WATCH, 2100);
    task.leave(WATCH, 2200, TaskState::Running);
    task.leave(WATCH, 2300, TaskState::Yielded);
    assert_eq!(take(&task, 2250, TaskState::Running), [("running", 1300)]);
}

#[test]
fn what_could_not_be_written_comes_with_the_next_report() {
    let task = TaskTimes::new();
    let first = task.take(WATCH, 1400, TaskState::Running).unwrap();
    task.put_back(WATCH, &first);
    assert_eq!(take(&task, 1500, TaskState::Running), [("running", 500)]);
    // More was taken meanwhile: what could not be written is lost, and the next report begins later.
    let lost = task.take(WATCH, 1600, TaskState::Running).unwrap();
    assert_eq!(take(&task, 1700, TaskState::Running), [("running", 100)]);
    task.put_back(WATCH, &lost);
    assert_eq!(take(&task, 1800, TaskState::Running), [("running", 100)]);
}

#[test]
fn calls_of_two_cpus_at_once_lose_no_tick() {
    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let task = TaskTimes::new();
    let mut told = [0; PARTS];
    let add = |report: Report, told: &mut [u64; PARTS]| {
        parts(&report);
        told.iter_mut().zip(report.parts).for_each(|(sum, part)| *sum += part);
    };
    std::thread::scope(|scope| {
        let waker = scope.spawn(|| (0..ROUNDS).for_each(|round| task.wake(WATCH, WATCH + 3 * round)));
        let runner = scope.spawn(|| {
            for round in 0..ROUNDS {
                task.enter(WATCH, WATCH + 3 * round + 1);
                task.leave(WATCH, WATCH + 3 * round + 2, TaskState::Blocked(0));
            }
        });
        while !waker.is_finished() || !runner.is_finished() {
            if let Some(report) = task.take(WATCH, WATCH, TaskState::Running) {
                add(report, &mut told);
            }
        }
    });
    let end = WATCH + 3 * ROUNDS;
    if let Some(report) = task.take(WATCH, end, TaskState::Running) {
        add(report, &mut told);
    }
    assert_eq!(told.iter().sum::<u64>(), end - WATCH);
}
