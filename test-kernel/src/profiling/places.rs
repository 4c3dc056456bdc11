//! How long each place was the published one, by the instruction clock: what `cargo xtask truth` compares the way
//! `published` with. No sample has a part in these figures.
//!
//! In: each publication of a CPU, from `calls`, right behind it, interrupts off. Out: the text of `/kernel/places`.
//! Nothing is counted until somebody writes to that file, and then for the context of the writer (idle time: for each
//! CPU). The clock is read the same number of instructions behind every publication, so the time from one to the next
//! is exact. Counting takes instructions itself: the run that is sampled counts too, so that both do the same; and how
//! many they are is counted as well, so that they can be taken off.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use kprof::{Context, Published};
use x86_64::instructions::interrupts::without_interrupts;

use super::calls::publish;
use crate::cpu::{self, CPUS, MAX_CPUS, clock};

/// User code, the kernel by no entry; then an entry by the low twelve bits of its marker.
const KINDS: usize = 0x400;
const USER: usize = 0;
const THREAD: usize = 1;

/// What one CPU has published last.
struct Last {
    since: AtomicU64,
    kind: AtomicU64,
    context: AtomicU64,
    is_idle: AtomicBool,
    /// In the idle context, and by no entry.
    idle_ticks: AtomicU64,
}

static LAST: [Last; MAX_CPUS] = [const {
    Last {
        since: AtomicU64::new(0),
        kind: AtomicU64::new(0),
        context: AtomicU64::new(0),
        is_idle: AtomicBool::new(false),
        idle_ticks: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Whether publications are counted.
pub(super) static COUNTING: AtomicBool = AtomicBool::new(false);
/// The context whose places are counted, and by kind: ticks, and how often it was published.
static CONTEXT: AtomicU64 = AtomicU64::new(0);
static PLACES: [[AtomicU64; 2]; KINDS] = [const { [const { AtomicU64::new(0) }; 2] }; KINDS];
/// Instructions that counting takes at each publication.
static COST: AtomicU64 = AtomicU64::new(0);
const TRIES: u64 = 16;

/// Adds the time since the last publication of this CPU to what stood there. In: the clock. Interrupts are off.
#[cold]
#[inline(never)]
pub(super) fn count(now: u64, place: Published, context: Option<Context>) {
    let last = &LAST[cpu::id()];
    let (kind, ticks) = (last.kind.load(Relaxed) as usize, now - last.since.load(Relaxed));
    if last.context.load(Relaxed) == CONTEXT.load(Relaxed) {
        add(&PLACES[kind][0], ticks);
        add(&PLACES[kind][1], 1);
    }
    if last.is_idle.load(Relaxed) && kind == THREAD {
        add(&last.idle_ticks, ticks);
    }
    if let Some(context) = context {
        last.context.store(context.id, Relaxed);
        last.is_idle.store(context.idle, Relaxed);
    }
    last.since.store(now, Relaxed);
    last.kind.store(kind_of(place) as u64, Relaxed);
}

/// The counted context runs on one CPU at a time.
fn add(counter: &AtomicU64, ticks: u64) {
    counter.store(counter.load(Relaxed) + ticks, Relaxed);
}

#[inline(always)]
fn kind_of(place: Published) -> usize {
    match place.frame() {
        None => THREAD,
        Some(_) if place.is_user() => USER,
        // SAFETY: the frame of an entry that this CPU is in; the marker is the word above the saved rbp.
        Some(frame) => (unsafe { *(frame as *const u64).add(1) }) as usize % KINDS,
    }
}

/// Counts from here on, for the context that calls this; false where nothing is published, or somebody is
/// counted already.
pub fn start() -> bool {
    if cpu::this().publisher.load(Relaxed).is_null() || COUNTING.load(Relaxed) {
        return false;
    }
    without_interrupts(|| {
        let now = clock::tsc();
        for (last, cpu) in LAST.iter().zip(&CPUS) {
            last.since.store(now, Relaxed);
            last.kind.store(THREAD as u64, Relaxed);
            last.context.store(cpu.context.load(Relaxed), Relaxed);
            last.is_idle.store(cpu.idle.load(Relaxed), Relaxed);
        }
        CONTEXT.store(cpu::this().context.load(Relaxed), Relaxed);
        let publishing = round();
        COUNTING.store(true, Relaxed);
        COST.store((round() - publishing) / TRIES, Relaxed);
        PLACES.iter().flatten().for_each(|counter| counter.store(0, Relaxed));
    });
    true
}

/// Instructions of publishing again and again what is published now, the clock's included.
#[inline(never)]
fn round() -> u64 {
    let place = publish(Published::THREAD, None);
    let start = clock::tsc();
    for _ in 0..TRIES {
        publish(place, None);
    }
    clock::tsc() - start
}

/// What was counted: `places: cpu CPU idle TICKS at TSC` for each CPU that runs threads, `places: counting takes
/// INSTRUCTIONS`, and for each place of the context `places: PLACE TICKS in TIMES`.
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
