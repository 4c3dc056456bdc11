//! The kernel's heap on a machine with more CPUs than the table of the heap has places for: each CPU counts for itself,
//! and its records are those of its own allocations.
#![cfg(feature = "profiling")]

mod array_kernel;
#[path = "array_kernel/reader.rs"]
mod reader;

use array_kernel::*;
use kprof::{Config, CpuSlot, Profiler};
use kprof_events::{Alloc, AllocSample, Events, PointCounts};
use reader::{Reader, account, records};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Once;
use std::sync::atomic::Ordering;

static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static EVENTS: Events<ArrayKernel> = Events::new(&PROFILER);
static BOTH: Both = Both { profiler: &PROFILER, events: &EVENTS };
static HEAP: Alloc<System, ArrayKernel> = Alloc::new(System, &EVENTS);
static SAMPLES: [AllocSample; 1024] = [const { AllocSample::new() }; 1024];
static SLOTS: [CpuSlot; 131] = [const { CpuSlot::new() }; 131];

/// CPUs with memory. 66 has none, and neither has 2, whose number is the same modulo 64.
const CPUS: [usize; 3] = [1, 65, 130];

fn reader(state: &str) -> Reader {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        set_up(&BOTH, &SLOTS, Config::new());
        HEAP.register(|| &SAMPLES).unwrap();
        for cpu in CPUS {
            EVENTS.register_points(cpu, || Vec::leak((0..8).map(|_| PointCounts::new()).collect())).unwrap();
            EVENTS.register_events(cpu, || memory(1 << 16)).unwrap();
        }
    });
    CPU.store(1, Ordering::Relaxed);
    Reader::begin(&PROFILER, state)
}

/// Allocates and frees on a CPU.
fn on(cpu: usize, times: usize, bytes: usize) {
    CPU.store(cpu, Ordering::Relaxed);
    let layout = Layout::from_size_align(bytes, 8).unwrap();
    // SAFETY: not empty, and freed once with the same layout.
    (0..times).for_each(|_| unsafe { HEAP.dealloc(HEAP.alloc(layout), layout) });
    CPU.store(1, Ordering::Relaxed);
}

#[test]
fn every_cpu_counts_for_itself_whatever_its_number_is() {
    let _alone = alone();
    for (state, asked) in [("count", None), ("by-weight 10000", Some(100_000))] {
        let reader = reader(&format!("event heap.* {state}"));
        [65, 130].into_iter().for_each(|cpu| on(cpu, 1000, 100));
        let accounts = reader.accounts(&PROFILER);
        assert_eq!(accounts.len(), 4, "{accounts:?}");
        for cpu in [65, 130] {
            let account = &accounts[&("heap.alloc".to_owned(), cpu)];
            assert_eq!((account["weight"], account.get("asked-weight").copied()), (100_000, asked));
            assert_eq!(accounts[&("heap.free".to_owned(), cpu)]["weight"], 100_000);
        }
    }
}

#[test]
fn a_cpu_without_memory_loses_hits_and_counts_them_on_no_other() {
    let _alone = alone();
    let reader = reader("event heap.* count");
    [66, 2, 131, 1 << 20].into_iter().for_each(|cpu| on(cpu, 1, 40));
    let (lost, no_cpu) = (account(&[("lost", 4), ("weight", 160)]), kprof::format::record::NO_CPU);
    let expected = ["heap.alloc", "heap.free"].map(|name| ((name.to_owned(), no_cpu), lost.clone()));
    assert_eq!(reader.accounts(&PROFILER), expected.into());
}

#[test]
fn each_recorded_allocation_has_its_free_and_chance_chooses_by_bytes() {
    let _alone = alone();
    let recorded = reader("event heap.* record");
    let stream = PROFILER.open_events(130, 1).unwrap();
    // Those of another test, which nobody has acknowledged.
    records(&stream);
    on(130, 10, 48);
    assert_eq!(records(&stream).len(), 20);
    recorded.ctl.write(format!("ack event-130 {}", control(&PROFILER)["event.130.position-in"]).as_bytes()).unwrap();
    drop((recorded, stream));
    // 2000 allocations of a tenth of the mean: 190 are expected, with a standard deviation of 13.
    let reader = reader("event heap.* by-weight 1000");
    let before = reader.accounts(&PROFILER);
    assert!(before.is_empty(), "{before:?}");
    on(130, 2000, 100);
    let account = &reader.accounts(&PROFILER)[&("heap.alloc".to_owned(), 130)];
    assert!((110..270).contains(&account["recorded"]), "{account:?}");
    assert_eq!(account["recorded"] + account["unsampled"], 2000);
}
