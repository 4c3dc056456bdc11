//! Measures what one event of each kind costs: a plain hit, a time off the CPU, a lock that is waited for, an
//! allocation and a free, a request to a disk, a system call, a page fault. Under `-icount` the difference of the TSC
//! is the number of instructions.
//!
//! The log gets one line for each kind and state: `cost: page fault, record, 418 instructions`. That is all that the
//! profiler adds where such an event happens: its calls, and the clock where a point needs it. A recorded hit has a
//! stack of sixteen frames; if one has not, the log says so. No reader may have the streams.

use core::alloc::Layout;
use core::hint::black_box;

use kprof::format::event::Event;
use lock_api::{Mutex, RawMutex};

use super::heap_cost;
use super::points::{self, FRAMES, below, frames, hit, set, spent, time_off_cpu};
use crate::log;
use crate::profiling::{self, Watched};

/// What is measured: a function that returns its instructions, and one that returns those of the same work without the
/// profiler.
struct Kind {
    name: &'static str,
    points: &'static str,
    work: fn(u64) -> u64,
    without: fn(u64) -> u64,
    is_recorded_by_it: fn(&Event) -> bool,
}

const KINDS: [Kind; 8] = [
    kind("plain point", "measured.hit", hit),
    kind("time off the CPU", "sched.*", time_off_cpu),
    Kind { without: lock_alone, ..kind("lock that is waited for", "lock.*", lock) },
    Kind { without: allocate_alone, is_recorded_by_it: is_block, ..kind("allocation", "heap.*", allocate) },
    Kind { without: free_alone, is_recorded_by_it: is_block, ..kind("free", "heap.*", free) },
    kind("request to a disk", "block.*", request),
    kind("system call", "syscall.getppid", system_call),
    kind("page fault", "page.fault", page_fault),
];

const STATES: [(&str, &str); 4] =
    [("off", "off"), ("count", "count"), ("not sampled", "by-weight 1099511627776"), ("record", "record")];

/// Bytes of the block; no other allocation of the kernel has this size.
const BYTES: usize = 1368;
const GETPPID: u64 = 110;

const fn kind(name: &'static str, points: &'static str, work: fn(u64) -> u64) -> Kind {
    Kind { name, points, work, without: nothing, is_recorded_by_it: |_| true }
}

/// Measures `rounds` events of each kind in each state.
pub fn measure(rounds: u64) {
    for kind in &KINDS {
        // The first hit lists the point.
        (kind.work)(0);
        set(kind.points, "record");
        below(0, 0, kind.work);
        set(kind.points, "off");
        let more = FRAMES.saturating_sub(frames(kind.is_recorded_by_it).unwrap_or(0));
        for (name, state) in STATES {
            set(kind.points, state);
            // The first hit in a state draws when the next one is chosen.
            below(more, 0, kind.work);
            mean(kind, name, rounds, more);
        }
        set(kind.points, "off");
        match frames(kind.is_recorded_by_it) {
            Some(FRAMES) => {}
            found => log!("cost: {}: the last record has {found:?} frames", kind.name),
        }
    }
}

fn mean(kind: &Kind, state: &str, rounds: u64, more: usize) {
    let [without, work] = [kind.without, kind.work].map(|work| move |round| below(more, round, black_box(work)));
    log!("cost: {}, {state}, {} instructions", kind.name, points::more(rounds, without, work));
}

fn nothing(_: u64) -> u64 {
    0
}

fn is_block(event: &Event) -> bool {
    event.weight == BYTES as u64
}

/// A lock that is always waited for, and not long.
struct Awaited;

// SAFETY: it protects only `()`.
unsafe impl RawMutex for Awaited {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self;
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {}

    fn try_lock(&self) -> bool {
        false
    }

    unsafe fn unlock(&self) {}
}

static ALONE: Mutex<Awaited, ()> = Mutex::new(());
static WATCHED: Mutex<Watched<Awaited>, ()> = Mutex::new(());

#[inline(never)]
fn lock_alone(_: u64) -> u64 {
    spent(|| drop(ALONE.lock()))
}

/// The waiter's hit, and that of the holder at the release.
#[inline(never)]
fn lock(_: u64) -> u64 {
    spent(|| drop(WATCHED.lock()))
}

fn layout() -> Layout {
    black_box(Layout::new::<[u64; BYTES / 8]>())
}

#[inline(never)]
fn allocate_alone(_: u64) -> u64 {
    measured_allocation(heap_cost::inner_alloc, heap_cost::inner_free)
}

#[inline(never)]
fn allocate(_: u64) -> u64 {
    measured_allocation(heap_cost::allocate, heap_cost::free)
}

#[inline(never)]
fn free_alone(_: u64) -> u64 {
    measured_free(heap_cost::inner_alloc, heap_cost::inner_free)
}

#[inline(never)]
fn free(_: u64) -> u64 {
    measured_free(heap_cost::allocate, heap_cost::free)
}

#[inline(always)]
fn measured_allocation(allocate: impl Fn(Layout) -> *mut u8, free: impl Fn(*mut u8, Layout)) -> u64 {
    let (layout, mut block) = (layout(), core::ptr::null_mut());
    let instructions = spent(|| block = allocate(layout));
    free(black_box(block), layout);
    instructions
}

#[inline(always)]
fn measured_free(allocate: impl Fn(Layout) -> *mut u8, free: impl Fn(*mut u8, Layout)) -> u64 {
    let layout = layout();
    let block = black_box(allocate(layout));
    spent(|| free(block, layout))
}

#[inline(never)]
fn request(weight: u64) -> u64 {
    spent(|| profiling::block_read(0, (8, 4096), weight))
}

#[inline(never)]
fn system_call(_: u64) -> u64 {
    spent(|| {
        let begun = profiling::syscall_begins(black_box(GETPPID));
        profiling::syscall_ends(begun);
    })
}

#[inline(never)]
fn page_fault(_: u64) -> u64 {
    spent(|| {
        let begun = profiling::page_fault_begins();
        profiling::page_fault_ends(begun);
    })
}
