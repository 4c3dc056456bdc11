//! A storm of the heap: threads on CPUs of their own allocate, reallocate, and free what others have allocated, while
//! somebody changes how the heap is recorded, and takes the records. At the end the counts are exact, and each recorded
//! allocation has its free once, unless the record of one of them was lost and counted as lost.
#![cfg(feature = "profiling")]

mod array_kernel;
#[path = "array_kernel/reader.rs"]
mod reader;
mod storm;

use array_kernel::*;
use kprof::{Config, CpuSlot, Profiler};
use kprof_events::{Alloc, AllocSample, Events, PointCounts};
use reader::{Account, Reader, records};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storm::Random;

const CPUS: usize = 5;
/// About as many blocks exist at a time.
const BLOCKS: usize = 500;

static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static EVENTS: Events<ArrayKernel> = Events::new(&PROFILER);
static BOTH: Both = Both { profiler: &PROFILER, events: &EVENTS };
static HEAP: Alloc<System, ArrayKernel> = Alloc::new(System, &EVENTS);
/// Fewer than blocks exist, so that some find no room.
static SAMPLES: [AllocSample; 256] = [const { AllocSample::new() }; 256];
static SLOTS: [CpuSlot; CPUS] = [const { CpuSlot::new() }; CPUS];

/// What was done: allocations, their bytes, frees, their bytes.
static TRUTH: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 8).unwrap()
}

fn count(at: usize, bytes: usize) {
    TRUTH[at].fetch_add(1, Ordering::SeqCst);
    TRUTH[at + 1].fetch_add(bytes as u64, Ordering::SeqCst);
}

/// A block that exists.
struct Block(usize, usize);

impl Block {
    fn new(bytes: usize) -> Self {
        count(0, bytes);
        // SAFETY: the layout is not empty.
        Self(unsafe { HEAP.alloc(layout(bytes)) }.expose_provenance(), bytes)
    }

    fn resize(&mut self, bytes: usize) {
        let block = std::ptr::with_exposed_provenance_mut(self.0);
        count(2, self.1);
        count(0, bytes);
        // SAFETY: it exists, with this layout.
        *self = Self(unsafe { HEAP.realloc(block, layout(self.1), bytes) }.expose_provenance(), bytes);
    }

    fn free(self) {
        count(2, self.1);
        // SAFETY: it exists, with this layout, and nobody else knows of it.
        unsafe { HEAP.dealloc(std::ptr::with_exposed_provenance_mut(self.0), layout(self.1)) };
    }
}

/// The work of one CPU, up to this number of hits in all.
fn work(mut random: Random, hits: u64, blocks: &Mutex<Vec<Block>>, end: &AtomicBool) {
    while !end.load(Ordering::SeqCst) && TRUTH[0].load(Ordering::SeqCst) + TRUTH[2].load(Ordering::SeqCst) < hits {
        let new = Block::new(1 + random.below(500) as usize);
        let old = {
            let mut all = blocks.lock().unwrap();
            all.push(new);
            if all.len() < BLOCKS {
                continue;
            }
            let at = random.below(all.len() as u64) as usize;
            all.swap_remove(at)
        };
        let mut block = old;
        if random.below(4) == 0 {
            block.resize(1 + random.below(900) as usize);
        }
        block.free();
    }
}

/// What was read: the sums of the accounts by point, and how often each allocation has a record, and its free.
#[derive(Default)]
struct Read {
    sums: BTreeMap<String, Account>,
    records: [HashMap<u64, u64>; 2],
}

impl Read {
    fn drain(&mut self, reader: &Reader, streams: &[kprof::StreamFile]) {
        for (cpu, stream) in streams.iter().enumerate() {
            for (event, _) in records(stream) {
                // The points are in the list in this order; the first argument is the number of the allocation.
                *self.records[event.point as usize].entry(event.arguments.as_slice()[0]).or_default() += 1;
            }
            let end = control(&PROFILER)[&format!("event.{cpu}.position-in")].clone();
            // More may have come meanwhile: the position is refused if it was not read.
            let _ = reader.ctl.write(format!("ack event-{cpu} {end}").as_bytes());
        }
        for ((point, _), account) in reader.accounts(&PROFILER) {
            let sum = self.sums.entry(point).or_default();
            account.into_iter().for_each(|(name, count)| *sum.entry(name).or_default() += count);
        }
    }

    fn of(&self, point: &str, name: &str) -> u64 {
        self.sums[point].get(name).copied().unwrap_or(0)
    }
}

#[test]
fn counts_are_exact_and_each_recorded_allocation_has_its_free_once() {
    let (hits, seed) = storm::begin("heap_storm");
    set_up(&BOTH, &SLOTS, Config::new());
    HEAP.register(|| &SAMPLES).unwrap();
    for cpu in 0..CPUS {
        EVENTS.register_points(cpu, || Vec::leak((0..2).map(|_| PointCounts::new()).collect())).unwrap();
        EVENTS.register_events(cpu, || memory(1 << 14)).unwrap();
    }
    let reader = Reader::begin(&PROFILER, "event heap.* by-weight 3000");
    let streams: Vec<_> = (0..CPUS).map(|cpu| PROFILER.open_events(cpu, 1).unwrap()).collect();
    let (end, blocks, mut read) = (AtomicBool::new(false), Mutex::new(Vec::new()), Read::default());
    std::thread::scope(|scope| {
        let _ends = EndsOthers(&end);
        let cpus: Vec<_> = (1..CPUS)
            .map(|cpu| {
                let (end, blocks) = (&end, &blocks);
                scope.spawn(move || {
                    run_on_own_cpu(cpu);
                    work(Random::new(seed, cpu as u64), hits, blocks, end);
                })
            })
            .collect();
        let mut random = Random::new(seed, 0);
        while !cpus.iter().all(|cpu| cpu.is_finished()) {
            read.drain(&reader, &streams);
            let state = match random.below(5) {
                0 => "count".into(),
                1 => "record".into(),
                2 => format!("every {}", 1 + random.below(50)),
                _ => format!("by-weight {}", 1 + random.below(9000)),
            };
            reader.ctl.write(format!("event heap.* {state}").as_bytes()).unwrap();
        }
    });
    run_on_own_cpu(1);
    blocks.into_inner().unwrap().into_iter().for_each(Block::free);
    (0..2).for_each(|_| read.drain(&reader, &streams));
    let hits = |point| ["recorded", "filtered", "lost"].iter().map(|name| read.of(point, name)).sum::<u64>();
    let counted = ["heap.alloc", "heap.free"].map(|point| [hits(point), read.of(point, "weight")]);
    let truth = TRUTH.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counted.as_flattened(), truth);
    let [made, freed] = &read.records;
    assert!(made.values().chain(freed.values()).all(|records| *records == 1), "none has two records");
    let without = |one: &HashMap<u64, u64>, other: &HashMap<u64, u64>| {
        one.keys().filter(|number| !other.contains_key(number)).count() as u64
    };
    println!("heap_storm: {truth:?}, {} records of allocations and {} of frees", made.len(), freed.len());
    assert!(without(made, freed) <= read.of("heap.free", "lost"), "a free has no record, and none was lost");
    assert!(without(freed, made) <= read.of("heap.alloc", "lost"), "an allocation has no record, and none was lost");
}
