//! A nested NMI inside the handler: at each place where the handler calls the kernel, with and without ticks for the
//! nested NMI, in several combinations. No record is torn, and each tick is counted once.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Outcome, Profiler, Setup, Task};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel in which NMIs arrive inside the functions that the handler calls.
struct Interrupted;

/// `UNTIL` is the number of hook calls until an NMI comes. `TICKS` is the number of ticks of each nested NMI, and
/// `CAME` the number of nested NMIs.
static UNTIL: AtomicUsize = AtomicUsize::new(usize::MAX);
static TICKS: AtomicUsize = AtomicUsize::new(1);
static CAME: AtomicUsize = AtomicUsize::new(0);

fn hook() {
    if UNTIL.fetch_sub(1, Ordering::Relaxed) == 0 {
        CAME.fetch_add(1, Ordering::Relaxed);
        (0..TICKS.load(Ordering::Relaxed)).for_each(|_| SLOTS[1].raise_tick());
        note(PROFILER.on_nmi(&token(), &registers()));
    }
}

/// How often each outcome was returned: sampled, lost, spurious, foreign.
static OUTCOMES: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

fn note(outcome: Outcome) {
    let all = [Outcome::Sampled, Outcome::Lost, Outcome::Spurious, Outcome::Foreign];
    let place = all.into_iter().position(|known| known == outcome).expect("nothing is filtered");
    OUTCOMES[place].fetch_add(1, Ordering::Relaxed);
}

// SAFETY: one thread is the only CPU, with number 1. Stack and text are `ArrayKernel`'s statics.
unsafe impl Kernel for Interrupted {
    fn cpu(&self) -> usize {
        hook();
        1
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        hook();
        ArrayKernel.stack_range(address)
    }
    fn is_text(&self, _address: u64) -> bool {
        hook();
        false
    }
    fn task(&self) -> Task {
        hook();
        Task { id: 7, idle: false }
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        hook();
        false
    }
    fn sleep_ns(&self, _ns: u64) {}
}

static PROFILER: Profiler<Interrupted> = Profiler::new(Interrupted);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

fn counter(name: &str) -> u64 {
    let mut text = String::new();
    PROFILER.write_status(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu.1.{name} ")));
    line.expect("a counter").parse().unwrap()
}

#[test]
fn a_nested_nmi_costs_its_own_tick_and_nothing_else() {
    PROFILER
        .init(|| Setup {
            slots: &SLOTS,
            meta: memory(1024),
            config: Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), running: true, ..Config::new() },
        })
        .unwrap();
    PROFILER.register(1, || memory(1024)).unwrap();
    let (token, at) = (token(), registers());
    let mut buffer = vec![0; 8192];
    let (mut sent, mut places) = (0, 0);
    for ticks in [0, 1, 3] {
        TICKS.store(ticks, Ordering::Relaxed);
        for place in (0..40).step_by(if cfg!(miri) { 9 } else { 1 }) {
            UNTIL.store(place, Ordering::Relaxed);
            CAME.store(0, Ordering::Relaxed);
            SLOTS[1].raise_tick();
            let nested_before = counter("lost-nested");
            note(PROFILER.on_nmi(&token, &at));
            UNTIL.store(usize::MAX, Ordering::Relaxed);
            let came = CAME.load(Ordering::Relaxed) as u64;
            sent += 1 + came * ticks as u64;
            places += came;
            // A nested NMI before the handler has entered its critical part runs as a handler of its own, without loss.
            let lost = counter("lost-nested") - nested_before;
            assert!(lost <= came.min(ticks as u64), "place {place}, {ticks} ticks: {lost} lost");
            assert_eq!(counter("sent"), sent);
            assert_eq!(counter("sent"), counter("taken") + counter("coalesced"), "place {place}, {ticks} ticks");
            assert_eq!(counter("taken"), counter("lost-nested") + counter("recorded"), "place {place}, {ticks} ticks");
            let counted = ["recorded", "lost-nested", "spurious", "foreign"].map(counter);
            let returned = OUTCOMES.each_ref().map(|count| count.load(Ordering::Relaxed) as u64);
            assert_eq!(counted, returned, "place {place}, {ticks} ticks");
            let daemon = Daemon::claim(&PROFILER, 1);
            let bytes = daemon.stream.read(&mut buffer).unwrap();
            for record in records(&buffer[..bytes]) {
                assert_eq!(record.stack(), [text(30), text(20), text(40)]);
            }
            daemon.acknowledge(counter("position-in")).unwrap();
        }
    }
    assert!(places > if cfg!(miri) { 2 } else { 20 }, "only {places} nested NMIs");
    assert!(OUTCOMES.iter().all(|count| count.load(Ordering::Relaxed) > 0) || cfg!(miri), "{OUTCOMES:?}");
    PROFILER.stop().unwrap();
    assert!(cfg!(miri) || counter("lost-nested") > 5);
}
