//! The feature `heap`: a global allocator that kprof watches, and work that allocates. Runs in: ordinary code.
//!
//! What `remember` allocates is never freed: `kprof-fold flamegraph --event heap.live serial.log bare` shows it.

extern crate alloc;

use alloc::vec::Vec;
use core::hint::black_box;
use core::mem::MaybeUninit;

use kprof::DEFAULT_RING_WORDS;
use kprof_events::{Alloc, AllocSample};
use talc::{TalcLock, source::Manual};

use super::EVENTS;
use crate::profiling::{PROFILER, Port};
use crate::tell;

const ARENA_BYTES: usize = 1 << 20;
/// The bytes that `parse` allocates in a round and frees, and those that `remember` allocates and keeps.
const PARSED_BYTES: usize = 3000;
const KEPT_BYTES: usize = 1000;

/// kprof's allocator around the kernel's own one. (An interrupt handler of this kernel never allocates, so a spin lock
/// is enough.)
#[global_allocator]
static HEAP: Alloc<TalcLock<spin::Mutex<()>, Manual>, Port> = Alloc::new(TalcLock::new(Manual), &EVENTS);

/// Gives the allocator its memory, and has each of its calls recorded. Called once.
pub fn begin(cpu: usize) {
    static mut ARENA: [MaybeUninit<u8>; ARENA_BYTES] = [MaybeUninit::uninit(); ARENA_BYTES];
    static mut RING: [MaybeUninit<u64>; DEFAULT_RING_WORDS] = [MaybeUninit::uninit(); DEFAULT_RING_WORDS];
    static SAMPLES: [AllocSample; 64] = [const { AllocSample::new() }; 64];
    // SAFETY: this function runs once, and no other code can access this static.
    unsafe { HEAP.inner().lock().claim((&raw mut ARENA).cast(), ARENA_BYTES) }.expect("the heap takes its memory");
    tell(HEAP.register(|| &SAMPLES));
    // SAFETY: as above.
    tell(EVENTS.register_events(cpu, || unsafe { (&raw mut RING).as_mut() }.unwrap()));
    tell(PROFILER.open_control(0).write(b"event heap.* record").map(drop));
}

/// Allocates in each round.
pub fn work() {
    parse();
    remember();
}

#[inline(never)]
fn parse() {
    black_box(Vec::<u8>::with_capacity(PARSED_BYTES));
}

#[inline(never)]
fn remember() {
    black_box(Vec::<u8>::with_capacity(KEPT_BYTES)).leak();
}
