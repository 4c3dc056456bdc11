//! The kernel's heap: counts are exact, each recorded allocation has its free, and what is sampled by bytes estimates
//! the whole without a bias.
#![cfg(feature = "profiling")]

mod array_kernel;
#[path = "array_kernel/reader.rs"]
mod reader;

use array_kernel::*;
use kprof::format::event::Event;
use kprof::format::point::PointState;
use kprof::{Config, CpuSlot, Profiler, RegisterError};
use kprof_events::{Alloc, AllocSample, Events, PointCounts};
use reader::{Account, Reader, account};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator, which refuses if it is asked to.
struct Inner;

static REFUSES: AtomicBool = AtomicBool::new(false);
static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static EVENTS: Events<ArrayKernel> = Events::new(&PROFILER);
static BOTH: Both = Both { profiler: &PROFILER, events: &EVENTS };
static HEAP: Alloc<Inner, ArrayKernel> = Alloc::new(Inner, &EVENTS);
static SAMPLES: [AllocSample; 64] = [const { AllocSample::new() }; 64];
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

// SAFETY: the system's allocator fulfils the contract; no memory is a permitted answer.
unsafe impl GlobalAlloc for Inner {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if REFUSES.load(Ordering::Relaxed) {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Sets the heap up, once, and returns a reader. Before that, nothing of this heap is counted.
fn reader(state: &str) -> Reader {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        set_up(&BOTH, &SLOTS, Config::new());
        free(allocate(8), 8);
        HEAP.register(|| &SAMPLES).unwrap();
        EVENTS.register_points(1, || Vec::leak((0..8).map(|_| PointCounts::new()).collect())).unwrap();
        EVENTS.register_events(1, || memory(1 << 16)).unwrap();
    });
    CPU.store(1, Ordering::Relaxed);
    Reader::begin(&PROFILER, state)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 8).unwrap()
}

fn allocate(bytes: usize) -> *mut u8 {
    // SAFETY: no layout in this file is empty.
    unsafe { HEAP.alloc(layout(bytes)) }
}

fn free(block: *mut u8, bytes: usize) {
    // SAFETY: the tests free each block once, with its size.
    unsafe { HEAP.dealloc(block, layout(bytes)) }
}

fn grow(block: *mut u8, bytes: usize, to: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { HEAP.realloc(block, layout(bytes), to) }
}

type Accounts = BTreeMap<(String, u64), Account>;

fn of<'a>(accounts: &'a Accounts, name: &str) -> &'a Account {
    &accounts[&(name.to_owned(), 1)]
}

/// The events of a point: number, weight, state.
fn events(read: &[(Event, Vec<u64>)], of_frees: bool) -> Vec<(u64, u64, PointState)> {
    let first = read.iter().map(|(event, _)| event.point).min().unwrap_or(0);
    let is_wanted = |event: &&(Event, Vec<u64>)| (event.0.point != first) == of_frees;
    let all = read.iter().filter(is_wanted);
    all.map(|(event, _)| (event.arguments.as_slice()[0], event.weight, event.state)).collect()
}

#[test]
fn counts_are_exact_and_frees_have_no_histogram() {
    let _alone = alone();
    let reader = reader("event heap.* count");
    for bytes in [1, 64, 64, 5000] {
        free(allocate(bytes), bytes);
    }
    // A block that grows is freed and allocated; the default of `realloc` does not come back to the outer allocator.
    free(grow(allocate(10), 10, 30), 30);
    let kept = allocate(7);
    let mut buckets = HashMap::new();
    array_kernel::point_accounts(&PROFILER, &reader.ctl, &reader.meta, |line| {
        let count = |prefix: &str| -> u64 {
            line.counters.in_text().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
        };
        buckets.insert(line.point.to_string(), (line.weight, count("filtered"), count("log2-")));
    });
    assert_eq!(buckets["heap.alloc"], (1 + 64 + 64 + 5000 + 10 + 30 + 7, 7, 7));
    assert_eq!(buckets["heap.free"], (1 + 64 + 64 + 5000 + 10 + 30, 6, 0));
    reader.ctl.write(b"event * off").unwrap();
    free(grow(kept, 7, 9), 9);
    assert!(reader.accounts(&PROFILER).is_empty(), "nothing is counted while the points are off");
}

#[test]
fn a_refused_reallocation_frees_nothing_and_a_refused_allocation_counts_as_one() {
    let _alone = alone();
    let reader = reader("event heap.* record");
    let block = allocate(10);
    REFUSES.store(true, Ordering::Relaxed);
    assert!(grow(block, 10, 20).is_null() && allocate(3).is_null());
    REFUSES.store(false, Ordering::Relaxed);
    free(block, 10);
    let read = reader.read();
    let (made, freed) = (events(&read, false), events(&read, true));
    assert_eq!(made.iter().map(|(_, bytes, _)| *bytes).collect::<Vec<_>>(), [10, 3]);
    assert_eq!(freed, [made[0]], "its free is still recognized");
    let accounts = reader.accounts(&PROFILER);
    assert_eq!(of(&accounts, "heap.free"), &account(&[("recorded", 1), ("asked-weight", 10), ("weight", 10)]));
}

#[test]
fn every_recorded_allocation_has_its_free_and_no_other_free_has_a_record() {
    let _alone = alone();
    let reader = reader("event heap.* count");
    let before = allocate(100);
    reader.ctl.write(b"event heap.* record").unwrap();
    let blocks: Vec<_> = (1..=20).map(|bytes| (allocate(bytes), bytes)).collect();
    let (first, size) = blocks[0];
    let grown = grow(first, size, 50);
    blocks[1..].iter().for_each(|(block, bytes)| free(*block, *bytes));
    free(before, 100);
    let read = reader.read();
    let (made, freed) = (events(&read, false), events(&read, true));
    assert_eq!((made.len(), freed.len()), (21, 20));
    assert_eq!(freed[0], made[0], "the block that has grown");
    assert_eq!(freed[1..], made[1..20]);
    assert_eq!(made[20].1, 50);
    // While frees are not watched nobody knows what is freed: all older allocations are forgotten.
    reader.ctl.write(b"event heap.free off").unwrap();
    free(grown, 50);
    let unwatched = allocate(60);
    assert_eq!(events(&reader.read(), false).last().map(|(_, bytes, _)| *bytes), Some(60));
    reader.acknowledge(&PROFILER);
    reader.ctl.write(b"event heap.free record").unwrap();
    free(unwatched, 60);
    let again: Vec<_> = (0..40).map(|_| allocate(50)).collect();
    again.iter().for_each(|block| free(*block, 50));
    let read = reader.read();
    let numbers = |events: Vec<(u64, u64, PointState)>| {
        let mut numbers: Vec<u64> = events.iter().map(|(number, ..)| *number).collect();
        numbers.sort_unstable();
        numbers
    };
    assert!(events(&read, true).iter().all(|(number, ..)| *number > made[20].0));
    assert_eq!(numbers(events(&read, true)), numbers(events(&read, false)));
}

#[test]
fn frees_of_recorded_allocations_are_recorded_while_the_heap_is_only_counted() {
    let _alone = alone();
    let reader = reader("event heap.* record");
    let blocks: Vec<_> = (0..10).map(|_| allocate(48)).collect();
    reader.ctl.write(b"event heap.* count").unwrap();
    let unrecorded = allocate(48);
    blocks.into_iter().for_each(|block| free(block, 48));
    free(unrecorded, 48);
    reader.ctl.write(b"event heap.* record").unwrap();
    let read = reader.read();
    assert_eq!(events(&read, true), events(&read, false));
    assert_eq!(events(&read, true).len(), 10);
}

#[test]
fn what_is_recorded_after_frees_were_not_watched_has_a_number_of_another_time() {
    use kprof::format::memory::time_of;
    let _alone = alone();
    let reader = reader("event heap.* record");
    let old = allocate(48);
    reader.ctl.write(b"event heap.* off").unwrap();
    free(old, 48);
    reader.ctl.write(b"event heap.* record").unwrap();
    free(allocate(48), 48);
    let read = reader.read();
    let times: Vec<u64> = events(&read, false).iter().map(|(number, ..)| time_of(*number)).collect();
    assert!(times.len() == 2 && times[0] < times[1], "{times:?}");
    assert_eq!(events(&read, true), events(&read, false)[1..]);
}

#[test]
fn an_enormous_allocation_that_is_refused_does_not_end_the_choice_of_others() {
    let _alone = alone();
    // Each one of 1000 is chosen, except once in e^1000 runs.
    for enormous in [1 << 62, isize::MAX as usize - 7] {
        let reader = reader("event heap.* by-weight 1");
        REFUSES.store(true, Ordering::Relaxed);
        assert!(allocate(enormous).is_null());
        REFUSES.store(false, Ordering::Relaxed);
        (0..10).for_each(|_| free(allocate(1000), 1000));
        assert_eq!(events(&reader.read(), true).len(), 10);
        reader.accounts(&PROFILER);
    }
}

#[test]
fn a_second_heap_and_a_second_call_of_register_are_refused_and_change_nothing() {
    let _alone = alone();
    let reader = reader("event heap.* record");
    let blocks: Vec<_> = (0..10).map(|_| allocate(48)).collect();
    let other: &'static [AllocSample] = Vec::leak((0..4096).map(|_| AllocSample::new()).collect());
    assert_eq!(HEAP.register(|| other), Err(RegisterError::HeapTwice));
    blocks.into_iter().for_each(|block| free(block, 48));
    let read = reader.read();
    assert_eq!(events(&read, true), events(&read, false));
    static EARLY: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static EARLY_EVENTS: Events<ArrayKernel> = Events::new(&EARLY);
    static BEFORE_INIT: Alloc<Inner, ArrayKernel> = Alloc::new(Inner, &EARLY_EVENTS);
    assert_eq!(BEFORE_INIT.register(|| &SAMPLES), Err(RegisterError::NoSlot(0)));
}

#[test]
fn allocations_that_cannot_be_remembered_are_lost_with_their_bytes() {
    let _alone = alone();
    // By weight 1 chooses each allocation of 64 bytes, and by weight 2^40 none.
    for state in ["record", "by-weight 1"] {
        let reader = reader("event heap.* by-weight 1099511627776");
        (0..100).for_each(|_| free(allocate(64), 64));
        reader.ctl.write(format!("event heap.* {state}").as_bytes()).unwrap();
        let blocks: Vec<_> = (0..200).map(|_| allocate(64)).collect();
        blocks.iter().for_each(|block| free(*block, 64));
        let read = reader.read();
        let (made, freed) = (events(&read, false).len() as u64, events(&read, true).len() as u64);
        assert!((8..=64).contains(&made), "{made} in 64 places");
        assert_eq!(made, freed);
        let accounts = reader.accounts(&PROFILER);
        let lost = 200 - made;
        let expected = [("recorded", made), ("lost", lost), ("lost-weight", 64 * lost)];
        let all = [("filtered", 100), ("unsampled", 100), ("asked-weight", 19_200), ("weight", 19_200)];
        assert_eq!(of(&accounts, "heap.alloc"), &account(&[&expected[..], &all].concat()), "{state}");
        let (recorded, counted) = ([("recorded", freed), ("asked-weight", 64 * freed)], [("filtered", 300 - freed)]);
        let expected = account(&[&recorded[..], &counted, &[("weight", 19_200)]].concat());
        assert_eq!(of(&accounts, "heap.free"), &expected, "{state}");
    }
}

#[test]
fn a_change_of_another_point_chooses_no_allocation() {
    let _alone = alone();
    // None of 1000 bytes is chosen, except once in 2^30 runs of this test.
    let reader = reader("event heap.* by-weight 1099511627776");
    for _ in 0..10 {
        free(allocate(100), 100);
        reader.ctl.write(b"event another.* count\nevent another.* off").unwrap();
    }
    assert_eq!(reader.read(), []);
    let expected = [("filtered", 10), ("unsampled", 10), ("asked-weight", 1000), ("weight", 1000)];
    assert_eq!(of(&reader.accounts(&PROFILER), "heap.alloc"), &account(&expected));
}

#[test]
fn a_change_of_another_point_forgets_no_recorded_allocation() {
    let _alone = alone();
    let reader = reader("event heap.* record");
    let block = allocate(10);
    reader.ctl.write(b"event another.* count\nevent another.* off").unwrap();
    free(block, 10);
    let read = reader.read();
    assert_eq!((events(&read, false).len(), events(&read, true).len()), (1, 1));
}

#[test]
fn allocations_and_frees_are_counted_each_by_its_own_choice() {
    let _alone = alone();
    for name in ["heap.alloc", "heap.free"] {
        let reader = reader(&format!("event {name} count"));
        free(allocate(30), 30);
        let expected = account(&[("filtered", 1), ("weight", 30)]);
        assert_eq!(reader.accounts(&PROFILER), BTreeMap::from([((name.to_owned(), 1), expected)]));
    }
}

#[test]
fn frees_in_a_record_that_is_replaced_unread_are_written_again() {
    let _alone = alone();
    drop(reader("event heap.free count"));
    (0..3).for_each(|_| free(allocate(8), 8));
    let ctl = PROFILER.open_control(2);
    ctl.write(b"flush").unwrap();
    (0..40).for_each(|_| PROFILER.mark(&"x".repeat(200)));
    assert_ne!(control(&PROFILER)["meta.kept"], "0");
    let accounts = Reader::claim(&PROFILER).accounts(&PROFILER);
    assert_eq!(of(&accounts, "heap.free"), &account(&[("filtered", 3), ("weight", 24)]));
}

#[test]
fn what_is_sampled_by_bytes_estimates_the_whole_and_all_of_it_was_asked_for() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 4000 };
    const MEAN: u64 = 4096;
    let _alone = alone();
    let reader = reader("event heap.* count");
    free(allocate(99), 99);
    reader.ctl.write(b"event heap.* by-weight 4096").unwrap();
    let sizes = [16_u64, 300, 4096, 20_000];
    let (mut counts, mut frees) = ([0_u64; 4], 0);
    for _ in 0..ROUNDS {
        for bytes in sizes {
            free(allocate(bytes as usize), bytes as usize);
        }
        let read = reader.read();
        reader.acknowledge(&PROFILER);
        for (_, bytes, state) in events(&read, false) {
            assert_eq!(state, PointState::ByWeight(MEAN));
            counts[sizes.iter().position(|size| *size == bytes).unwrap()] += 1;
        }
        frees += events(&read, true).len() as u64;
    }
    for (bytes, count) in sizes.into_iter().zip(counts) {
        let chance = -(-(bytes as f64) / MEAN as f64).exp_m1();
        let (mean, deviation) = (ROUNDS as f64 * chance, (ROUNDS as f64 * chance * (1.0 - chance)).sqrt());
        let away = (count as f64 - mean).abs();
        assert!(away <= 5.0 * deviation + 1.0, "{bytes} bytes: {count} of {ROUNDS}, {mean} expected");
    }
    let all: u64 = counts.iter().sum();
    assert_eq!(frees, all);
    let accounts = reader.accounts(&PROFILER);
    let (hits, weight) = (4 * ROUNDS, ROUNDS * sizes.iter().sum::<u64>());
    let made = of(&accounts, "heap.alloc");
    assert_eq!((made["weight"], made["asked-weight"]), (weight + 99, weight), "99 bytes were only counted");
    assert_eq!((made["recorded"], made["unsampled"], made["filtered"]), (all, hits - all, hits - all + 1));
    assert_eq!(of(&accounts, "heap.free")["weight"], weight + 99);
}

#[test]
fn threads_on_one_cpu_lose_no_count() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let _alone = alone();
    let reader = reader("event heap.* by-weight 65536");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| free(allocate(48), 48)));
        }
    });
    let accounts = reader.accounts(&PROFILER);
    for name in ["heap.alloc", "heap.free"] {
        let account = of(&accounts, name);
        let count = |name: &str| account.get(name).copied().unwrap_or(0);
        assert_eq!(count("recorded") + count("filtered") + count("lost"), 3 * ROUNDS, "{name}: {account:?}");
        assert_eq!(account["weight"], 3 * ROUNDS * 48);
    }
}

#[test]
fn a_cpu_without_memory_loses_hits_and_there_is_one_heap() {
    let _alone = alone();
    let reader = reader("event heap.* record");
    CPU.store(0, Ordering::Relaxed);
    free(allocate(40), 40);
    CPU.store(1, Ordering::Relaxed);
    let accounts = reader.accounts(&PROFILER);
    let lost = account(&[("lost", 1), ("weight", 40)]);
    let no_cpu = kprof::format::record::NO_CPU;
    assert_eq!(accounts, [("heap.alloc"), ("heap.free")].map(|name| ((name.to_owned(), no_cpu), lost.clone())).into());
    static OTHER: Alloc<Inner, ArrayKernel> = Alloc::new(Inner, &EVENTS);
    assert_eq!(OTHER.register(|| &SAMPLES), Err(RegisterError::HeapTwice));
    static FEW: [AllocSample; 3] = [const { AllocSample::new() }; 3];
    assert_eq!(OTHER.register(|| &FEW), Err(RegisterError::HeapPlaces(3)));
}

#[test]
fn another_profiler_gives_its_cpus_memory_and_the_heap_counts_where_it_did() {
    let _alone = alone();
    let reader = reader("event heap.* count");
    let (other, slots) = machine();
    set_up(other, slots, Config::new());
    other.events.register_points(1, || Vec::leak((0..8).map(|_| PointCounts::new()).collect())).unwrap();
    free(allocate(100), 100);
    let accounts = reader.accounts(&PROFILER);
    for name in ["heap.alloc", "heap.free"] {
        assert_eq!(accounts[&(name.to_owned(), 1)], account(&[("filtered", 1), ("weight", 100)]), "{name}");
    }
}
