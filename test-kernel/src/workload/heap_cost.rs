//! Measures what the profiler adds to an allocation and to a free that get no record, and what a record costs. Under
//! `-icount` the difference of the TSC is the number of instructions.
//!
//! The log gets lines `heap: counted, 12 instructions more for an allocation, 11 for a free`: beside those of the
//! inner allocator, which does the same work in turns with the kernel's. First with the heap's points off, then
//! counted, sampled at a distance that is never reached, and recorded.

use core::alloc::{GlobalAlloc, Layout};
use core::hint::black_box;

use super::points::{set, shift, spent, whole};
use crate::log;
use crate::profiling::HEAP;

/// The size of the block; always the same one, so that the inner allocator always does the same.
const BYTES: usize = 96;

/// Measures `rounds` allocations and frees in each state.
pub fn measure(rounds: u64) {
    for (what, state) in
        [("off", "off"), ("counted", "count"), ("not sampled", "by-weight 1099511627776"), ("recorded", "record")]
    {
        set("heap.*", state);
        // The first allocation in a state draws the distance.
        free(allocate(layout()), layout());
        mean(what, rounds);
    }
    set("heap.*", "off");
}

fn layout() -> Layout {
    black_box(Layout::new::<[u64; BYTES / 8]>())
}

/// Writes the means, as [`points::more`](super::points::more) computes them.
fn mean(what: &str, rounds: u64) {
    let (mut allocating, mut freeing) = (0, 0);
    for round in 0..rounds {
        let layout = layout();
        x86_64::instructions::interrupts::without_interrupts(|| {
            let mut block = core::ptr::null_mut();
            shift(round);
            allocating -= spent(|| block = inner_alloc(layout)) as i64;
            shift(round / 3);
            freeing -= spent(|| inner_free(black_box(block), layout)) as i64;
            shift(round / 5);
            allocating += spent(|| block = allocate(layout)) as i64;
            shift(round / 7);
            freeing += spent(|| free(black_box(block), layout)) as i64;
        });
    }
    let [allocation, free] = [allocating, freeing].map(|sum| whole(sum, rounds));
    log!("heap: {what}, {allocation} instructions more for an allocation, {free} for a free");
}

/// What the compiler calls for an allocation, if the inner allocator is the global one.
#[inline(never)]
pub fn inner_alloc(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is not empty.
    unsafe { HEAP.inner().alloc(layout) }
}

#[inline(never)]
pub fn inner_free(block: *mut u8, layout: Layout) {
    // SAFETY: the block was allocated with this layout, by the same allocator, and is freed once.
    unsafe { HEAP.inner().dealloc(block, layout) }
}

/// What it calls with the profiler.
#[inline(never)]
pub fn allocate(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is not empty.
    unsafe { HEAP.alloc(layout) }
}

#[inline(never)]
pub fn free(block: *mut u8, layout: Layout) {
    // SAFETY: the block was allocated with this layout and is freed once.
    unsafe { HEAP.dealloc(block, layout) }
}
