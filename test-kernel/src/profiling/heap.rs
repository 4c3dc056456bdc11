//! The kernel's global allocator: kprof's around that of `memory/heap.rs`, and memory for the allocations that have a
//! record.
//!
//! In: the calls of the allocator. Out: the same calls of the inner one; without the feature `profiling` nothing else.
//! Runs in: wherever the kernel allocates, never in an NMI; `register_heap` once, at boot.

use kprof::ENABLED;
use kprof_events::{Alloc, AllocSample};

use super::port::{EVENTS, Port};
use crate::log;
use crate::memory::heap;

/// The profiler counts and records what is allocated; without it this is the inner allocator alone.
#[global_allocator]
pub static HEAP: Alloc<heap::Heap, Port> = Alloc::new(heap::new(), &EVENTS);

/// How many recorded allocations can exist at a time.
const SAMPLES: usize = if ENABLED { 2048 } else { 0 };
static ALLOC_SAMPLES: [AllocSample; SAMPLES] = [const { AllocSample::new() }; SAMPLES];

/// The inner allocator, which needs its memory.
#[inline]
pub fn inner_heap() -> &'static heap::Heap {
    HEAP.inner()
}

/// Called once, after the profiler was set up.
#[inline]
pub fn register_heap() {
    if let Err(error) = HEAP.register(|| &ALLOC_SAMPLES) {
        log!("kprof: the heap is not profiled: {error}");
    }
}
