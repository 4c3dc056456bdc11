//! The code of docs/memory.md. In: calls of the allocator. Out: memory, and hits of the points of the heap.

use super::{EVENTS, Port};
use kprof_events::{Alloc, AllocSample};
use std::alloc::{GlobalAlloc, Layout, System};

/// The kernel's own allocator.
struct Talc;

impl Talc {
    const fn new() -> Self {
        Self
    }
}

// SAFETY: the system's allocator fulfils the contract.
unsafe impl GlobalAlloc for Talc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static HEAP: Alloc<Talc, Port> = Alloc::new(Talc::new(), &EVENTS);

static SAMPLES: [AllocSample; 2048] = [const { AllocSample::new() }; 2048];

pub fn register() -> Result<(), kprof::RegisterError> {
    HEAP.register(|| &SAMPLES)?;
    Ok(())
}
