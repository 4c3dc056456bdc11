//! The points of this kernel: what its hits are, and the memory for their counts and records.
//!
//! In: one call where the thing happens. Out: hits of kprof's points. Runs in: any but NMI. While a point is off, its
//! call is one load and a branch that is not taken.

use kprof::format::block::{self, Request};
use kprof::{DEFAULT_RING_WORDS, ENABLED, Unit};
use kprof_events::{Point, PointCounts};

use super::port::EVENTS;
use super::{probes, system_calls};
use crate::cpu::{self, MAX_CPUS, clock};
use crate::info::info;
use crate::{log, memory};

/// A write to the null device, by its bytes.
static NULL_WRITE: Point = Point::new("null.write", Unit::Bytes);
/// A page fault that was handled, by the time from its entry on.
static PAGE_FAULT: Point = Point::new("page.fault", Unit::Nanoseconds);

/// Requests to a disk, by the time from submission to completion.
static BLOCK_READ: Point = Point::new(block::READ, Unit::Nanoseconds);
static BLOCK_WRITE: Point = Point::new(block::WRITE, Unit::Nanoseconds);

/// How many points this kernel has: its own four, that of the workload `points`, three of what threads wait for, two
/// of the heap, three of locks, those of system calls, and one for each function that can have a probe.
const POINTS: usize = 13 + system_calls::POINTS + probes::FUNCTIONS;
static COUNTS: [[PointCounts; POINTS]; MAX_CPUS] = [const { [const { PointCounts::new() }; POINTS] }; MAX_CPUS];

/// Gives a CPU its memory; the sampler CPU, too.
pub(super) fn register(cpu: usize) {
    if let Err(error) = EVENTS.register_points(cpu, || &COUNTS[cpu]) {
        log!("kprof: cpu {cpu} does not count hits of points: {error}");
    }
    let words = || {
        // While the boot itself is sampled, the boot CPU has little memory: this is the smallest ring.
        let is_early = cpu == 0 && info().option("boot-profile").is_some();
        let usual = if is_early { 1024 } else { DEFAULT_RING_WORDS as u64 };
        // The sampler CPU has few hits, and a very large ring leaves no memory for a second one.
        let most = if cpu::sampler() == Some(cpu) { usual } else { u64::MAX };
        info().number("event-ring-words", usual).min(most) as usize
    };
    // 0 on the command line: as in a port that gives no memory for records.
    if ENABLED
        && words() > 0
        && let Err(error) = EVENTS.register_events(cpu, || memory::allocate_words(words()))
    {
        log!("kprof: cpu {cpu} records no hits of points: {error}");
    }
}

/// Called after a write to the null device.
#[inline]
pub fn null_written(bytes: usize) {
    EVENTS.hit(&NULL_WRITE, bytes as u64);
}

/// Called before a page fault is handled. Returns the time, if it is needed.
#[inline]
pub fn page_fault_begins() -> Option<u64> {
    PAGE_FAULT.is_on().then(clock::now_ns)
}

/// Called after a page fault was handled, with what `page_fault_begins` has returned.
#[inline]
pub fn page_fault_ends(begun_ns: Option<u64>) {
    if let Some(begun_ns) = begun_ns {
        EVENTS.hit(&PAGE_FAULT, clock::now_ns().saturating_sub(begun_ns));
    }
}

/// Called after a disk has completed a read, by the thread that has submitted it. `place` is the first sector and the
/// bytes.
#[inline]
pub fn block_read(device: u16, place: (u64, usize), ns: u64) {
    block_completed(&BLOCK_READ, device, place, ns);
}

/// The same after a write.
#[inline]
pub fn block_written(device: u16, place: (u64, usize), ns: u64) {
    block_completed(&BLOCK_WRITE, device, place, ns);
}

#[inline]
fn block_completed(point: &'static Point, device: u16, (sector, bytes): (u64, usize), ns: u64) {
    let request = Request { device, sector, bytes: bytes as u64 };
    EVENTS.hit_with(point, ns, request.arguments());
}
