//! The kernel's global allocator, with a look at each allocation and free.
//!
//! In: the calls of the allocator. Out: the same calls of the inner allocator, unchanged and in the same order; hits of
//! the points `heap.alloc` and `heap.free`. Runs in: wherever the kernel allocates, never in an NMI. While the points
//! are off, each call is one load and a branch. An allocation or a free that is not recorded takes no lock and needs a
//! dozen instructions; what is recorded costs as much as a recorded hit of any point. Nothing here allocates.
//!
//! An allocation is looked at after the inner allocator has made it, before anybody else knows its address; a free
//! before the address can be used again. So the address of a recorded allocation is never in the table twice.

use crate::events::Events;
use crate::kernel::EventKernel;
use crate::points::{AllocSample, HEAP, Heap, POINTS, Sample, place};
use core::alloc::{GlobalAlloc, Layout};
use core::num::NonZeroU64;
use kprof::RegisterError;
use kprof::format::point::PointState;
use kprof::internals::{Direct, interrupts, own_frame};

/// A kernel's global allocator whose allocations kprof counts and records. With the cargo feature `profiling` off
/// it is the inner allocator alone.
pub struct Alloc<A, K: EventKernel> {
    inner: A,
    events: &'static Events<K>,
    heap: Heap,
}

impl<A, K: EventKernel> Alloc<A, K> {
    /// Makes an allocator, for a `static` with `#[global_allocator]`. Nothing is counted before [`Alloc::register`].
    pub const fn new(inner: A, events: &'static Events<K>) -> Self {
        Self { inner, events, heap: Heap::new() }
    }

    /// The inner allocator.
    #[inline(always)]
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Makes the points `heap.alloc` and `heap.free` known. `samples` returns memory for the allocations that have a
    /// record and were not freed yet: a power of two of at least 64. It is not called with the feature off. Runs in:
    /// ordinary code, once, after [`Events::init`]; each CPU also needs memory for these two points
    /// ([`Events::register_points`]), before or after.
    ///
    /// # Errors
    /// [`RegisterError`]: [`Events::init`] has not succeeded yet, there is a heap already, or the memory cannot be
    /// used. Nothing has changed then.
    pub fn register(&'static self, samples: impl FnOnce() -> &'static [AllocSample]) -> Result<(), RegisterError> {
        let state = &self.events.state;
        if state.slots().is_empty() {
            return Err(RegisterError::NoSlot(0));
        }
        HEAP.set(&self.heap, samples(), state.slots())?;
        for counted in [self.heap.allocs(), self.heap.frees()] {
            POINTS.list(&counted.point);
            state.note_point(&counted.point);
        }
        HEAP.give_places(state.slots());
        Ok(())
    }

    #[inline(always)]
    fn cpu(&self) -> usize {
        self.events.kernel().cpu()
    }

    /// Counts an allocation of this layout, if that is all that it needs. Returns whether it is done.
    #[inline(always)]
    fn is_done(&self, layout: Layout) -> bool {
        // SAFETY: the caller of an allocator gives no layout of size 0, says `GlobalAlloc`.
        let bytes = unsafe { NonZeroU64::new_unchecked(layout.size() as u64) };
        !self.heap.allocs().is_on() || self.heap.count_alloc(self.cpu(), bytes)
    }

    /// Allocates what may get a record. It is a function of its own, so that the walk can begin at its frame, and so
    /// that other allocations need no register for it.
    ///
    /// # Safety
    /// As of `make`, which is a function of the inner allocator.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_slowly(&self, layout: Layout, make: unsafe fn(&A, Layout) -> *mut u8) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let block = unsafe { make(&self.inner, layout) };
        allocated(self.events, Block::of(block, layout.size()), own_frame::pointer());
        block
    }

    /// Frees what may have a record.
    ///
    /// # Safety
    /// As of `dealloc`.
    #[cold]
    #[inline(never)]
    unsafe fn free_slowly(&self, block: *mut u8, layout: Layout)
    where
        A: GlobalAlloc,
    {
        let freed = Block::of(block, layout.size());
        free(self.events, freed, self.heap.samples.take(freed.address), own_frame::pointer());
        // SAFETY: passed on to the caller.
        unsafe { self.inner.dealloc(block, layout) };
    }

    /// Reallocates while something is counted: a free and an allocation, if it succeeds.
    ///
    /// # Safety
    /// As of `realloc`.
    #[inline(never)]
    unsafe fn realloc_counted(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8
    where
        A: GlobalAlloc,
    {
        let (old, samples) = (Block::of(block, layout.size()), &self.heap.samples);
        let held = if samples.ask(old.address).may_have_record() { samples.hold(old.address) } else { None };
        // SAFETY: passed on to the caller.
        let made = unsafe { self.inner.realloc(block, layout, new_size) };
        // If there is no memory, the old block stays.
        let sample = held.map(|held| samples.end(held, !made.is_null()));
        if made.is_null() {
            return made;
        }
        if self.heap.frees().is_on() {
            free(self.events, old, sample, own_frame::pointer());
        }
        if !NonZeroU64::new(new_size as u64)
            .is_some_and(|bytes| !self.heap.allocs().is_on() || self.heap.count_alloc(self.cpu(), bytes))
        {
            allocated(self.events, Block::of(made, new_size), own_frame::pointer());
        }
        made
    }
}

// SAFETY: every call is passed on to the inner allocator, which fulfils the contract, with the same arguments, and its
// result is returned. Nothing here unwinds.
unsafe impl<A: GlobalAlloc, K: EventKernel> GlobalAlloc for Alloc<A, K> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.is_done(layout) {
            // SAFETY: passed on to the caller.
            return unsafe { self.alloc_slowly(layout, A::alloc) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !self.is_done(layout) {
            // SAFETY: passed on to the caller.
            return unsafe { self.alloc_slowly(layout, A::alloc_zeroed) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let asked = self.heap.ask(block.addr() as u64);
        if asked.is_only_counted() {
            self.heap.count_free(self.cpu(), layout.size() as u64);
        } else if asked.may_have_record() {
            // SAFETY: passed on to the caller.
            return unsafe { self.free_slowly(block, layout) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.dealloc(block, layout) };
    }

    #[inline(always)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if self.heap.allocs().is_on() || self.heap.frees().is_on() {
            // SAFETY: passed on to the caller.
            return unsafe { self.realloc_counted(block, layout, new_size) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.realloc(block, layout, new_size) }
    }
}

/// A block of memory.
#[derive(Clone, Copy)]
struct Block {
    /// 0: the allocator had none.
    address: u64,
    bytes: u64,
}

impl Block {
    fn of(block: *mut u8, bytes: usize) -> Self {
        Self { address: block.addr() as u64, bytes: bytes as u64 }
    }
}

/// Counts an allocation, and records it if it is chosen. `frame` is the frame pointer of a function that the code that
/// allocates has called.
#[inline(never)]
fn allocated<K: EventKernel>(events: &'static Events<K>, block: Block, frame: u64) {
    let Some(heap) = HEAP.get() else { return };
    let point = &heap.allocs().point;
    let word = point.state_word();
    // Off so that the countdown is that of this CPU all the time.
    let interrupts = interrupts::off();
    match (place(events, point.offset()), PointState::decode(word)) {
        (_, Some(PointState::Off) | None) => {}
        (None, _) => point.lose(block.bytes),
        (Some(place), _) if heap.count_alloc_beyond(place, block.bytes) => {}
        (Some(place), Some(PointState::Count)) => {
            place.count(block.bytes);
            place.asked.distance().choose_none(word);
            heap.counted_down(place, word);
        }
        (Some(place), Some(state)) => {
            if matches!(state, PointState::ByWeight(_)) {
                Heap::count_up(place, block.bytes);
            }
            record(events, heap, block, word, frame);
            heap.counted_down(place, word);
        }
    }
    interrupts::restore(interrupts);
}

/// Records an allocation if it is chosen, and remembers it for its free. What cannot be remembered is lost, because
/// nobody would see its free.
fn record<K: EventKernel>(events: &'static Events<K>, heap: &'static Heap, block: Block, state: u64, frame: u64) {
    let (point, sample) = (&heap.allocs().point, Sample { number: heap.number(), state });
    let is_tracked = heap.is_tracking() && block.address != 0;
    if is_tracked && !heap.samples.insert(block.address, sample) {
        return events.lose_record(point, block.bytes);
    }
    let arguments = [sample.number, block.address];
    if !events.record(point, block.bytes, &arguments, state, frame, Direct) && is_tracked {
        heap.samples.take(block.address);
    }
}

/// Counts a free, and records it if its allocation has a record.
#[inline(never)]
fn free<K: EventKernel>(events: &'static Events<K>, block: Block, sample: Option<Sample>, frame: u64) {
    let Some(heap) = HEAP.get() else { return };
    let point = &heap.frees().point;
    match sample {
        Some(Sample { number, state }) if heap.is_tracking() => {
            events.record(point, block.bytes, &[number, block.address], state, frame, Direct);
        }
        _ => match place(events, point.offset()) {
            Some(place) => place.count_without_histogram(block.bytes),
            None => point.lose(block.bytes),
        },
    }
}
