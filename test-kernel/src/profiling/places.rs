//! Measures with the instruction clock how long each place was published. `cargo xtask truth` compares profiles by the
//! trigger `published` with these figures, which do not depend on any sample.
//!
//! In: each publication of a CPU; `calls` calls this directly after it, with interrupts off. Out: the text of
//! `/kernel/places`. Counting begins when a task writes to that file, and then counts the places of this task, and the
//! idle time of each CPU. The clock is always read the same number of instructions after a publication, so the time
//! from one publication to the next is exact. Counting takes instructions itself. The run that is sampled counts too,
//! so that both runs do the same work. The number of these instructions is measured, so that it can be subtracted.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use kprof::{Published, Task};
use x86_64::instructions::interrupts::without_interrupts;

use super::calls::publish;
use crate::cpu::{self, CPUS, MAX_CPUS, clock};

/// The kinds of places: user code, a kernel thread outside of any entry, and entries by the low bits of their marker.
const KINDS: usize = 0x400;
const USER: usize = 0;
const THREAD: usize = 1;

/// What one CPU has published last.
struct Last {
    since: AtomicU64,
    kind: AtomicU64,
    task: AtomicU64,
    is_idle: AtomicBool,
    /// Ticks in the idle task outside of any entry.
    idle_ticks: AtomicU64,
}

static LAST: [Last; MAX_CPUS] = [const {
    Last {
        since: AtomicU64::new(0),
        kind: AtomicU64::new(0),
        task: AtomicU64::new(0),
        is_idle: AtomicBool::new(false),
        idle_ticks: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Whether publications are counted.
pub(super) static COUNTING: AtomicBool = AtomicBool::new(false);
/// The task whose places are counted. `PLACES` has for each kind the ticks, and how often it was published.
static TASK: AtomicU64 = AtomicU64::new(0);
static PLACES: [[AtomicU64; 2]; KINDS] = [const { [const { AtomicU64::new(0) }; 2] }; KINDS];
/// Instructions that counting takes at each publication.
static COST: AtomicU64 = AtomicU64::new(0);
const TRIES: u64 = 16;

/// Adds the time since the last publication of this CPU to the place that was published then. `now` is the clock.
/// Interrupts are off.
#[cold]
#[inline(never)]
pub(super) fn count(now: u64, place: Published, task: Option<Task>) {
    let last = &LAST[cpu::id()];
    let (kind, ticks) = (last.kind.load(Relaxed) as usize, now - last.since.load(Relaxed));
    if last.task.load(Relaxed) == TASK.load(Relaxed) {
        add(&PLACES[kind][0], ticks);
        add(&PLACES[kind][1], 1);
    }
    if last.is_idle.load(Relaxed) && kind == THREAD {
        add(&last.idle_ticks, ticks);
    }
    if let Some(task) = task {
        last.task.store(task.id, Relaxed);
        last.is_idle.store(task.idle, Relaxed);
    }
    last.since.store(now, Relaxed);
    last.kind.store(kind_of(place) as u64, Relaxed);
}

/// Adds without an atomic operation: the counted task runs on one CPU at a time.
fn add(counter: &AtomicU64, ticks: u64) {
    counter.store(counter.load(Relaxed) + ticks, Relaxed);
}

#[inline(always)]
fn kind_of(place: Published) -> usize {
    match place.frame() {
        None => THREAD,
        Some(_) if place.is_user() => USER,
        // SAFETY: this is the frame of an entry in which this CPU is. The marker is the word above the saved rbp.
        Some(frame) => (unsafe { *(frame as *const u64).add(1) }) as usize % KINDS,
    }
}

/// Starts counting for the task that calls this. Returns false if nothing is published, or if a task is counted
/// already.
pub fn start() -> bool {
    if cpu::this().publisher.load(Relaxed).is_null() || COUNTING.load(Relaxed) {
        return false;
    }
    without_interrupts(|| {
        let now = clock::tsc();
        for (last, cpu) in LAST.iter().zip(&CPUS) {
            last.since.store(now, Relaxed);
            last.kind.store(THREAD as u64, Relaxed);
            last.task.store(cpu.task.load(Relaxed), Relaxed);
            last.is_idle.store(cpu.idle.load(Relaxed), Relaxed);
        }
        TASK.store(cpu::this().task.load(Relaxed), Relaxed);
        let publishing = round();
        COUNTING.store(true, Relaxed);
        COST.store((round() - publishing) / TRIES, Relaxed);
        PLACES.iter().flatten().for_each(|counter| counter.store(0, Relaxed));
    });
    true
}

/// The number of instructions of publishing the present place several times, including those of reading the clock.
#[inline(never)]
fn round() -> u64 {
    let place = publish(Published::THREAD, None);
    let start = clock::tsc();
    for _ in 0..TRIES {
        publish(place, None);
    }
    clock::tsc() - start
}

/// The text with the counts: `places: cpu CPU idle TICKS at TSC` for each CPU that runs threads,
/// `places: counting takes INSTRUCTIONS`, and for each place of the task `places: PLACE TICKS in TIMES`.
pub fn text() -> String {
    if !COUNTING.load(Relaxed) {
        return String::new();
    }
    let mut text = String::new();
    for number in (0..cpu::count()).filter(|number| Some(*number) != cpu::sampler()) {
        let last = &LAST[number];
        let now = clock::tsc();
        let is_idle = last.is_idle.load(Relaxed) && last.kind.load(Relaxed) == THREAD as u64;
        let running = if is_idle { now - last.since.load(Relaxed) } else { 0 };
        text += &format!("places: cpu {number} idle {} at {now}\n", last.idle_ticks.load(Relaxed) + running);
    }
    text += &format!("places: counting takes {}\n", COST.load(Relaxed));
    for (kind, [ticks, times]) in PLACES.iter().enumerate().filter(|(_, [_, times])| times.load(Relaxed) > 0) {
        let name = match (kind, kind >> 8) {
            (USER, _) => String::from("user"),
            (THREAD, _) => String::from("thread"),
            (_, 1) => format!("[interrupt-{}]", kind & 0xff),
            (_, 2) => format!("[exception-{}]", kind & 0xff),
            _ => String::from("[syscall]"),
        };
        text += &format!("places: {name} {} in {}\n", ticks.load(Relaxed), times.load(Relaxed));
    }
    text
}
