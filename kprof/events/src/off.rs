//! The types of events with the feature `profiling` off: empty, so that the kernel's calls and statics compile to
//! nothing, and the allocator is the inner one.
//!
//! In: nothing; calls of the allocator. Out: types that take no memory; the same calls of the inner allocator. Runs in:
//! wherever the kernel allocates.

use crate::events::Events;
use crate::kernel::EventKernel;
use core::alloc::{GlobalAlloc, Layout};
use core::marker::PhantomData;
use kprof::RegisterError;
use kprof::format::point::{Unit, is_name};

/// Makes types that are empty.
macro_rules! empty {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name;

        impl $name {
            /// Nothing.
            pub const fn new() -> Self {
                Self
            }
        }

        const _: () = assert!(size_of::<$name>() == 0, "it takes no memory");
    )*};
}

empty! {
    /// One CPU's part of events; empty.
    EventSlot;
    /// Memory for what one CPU counts of one point; empty.
    PointCounts;
    /// Memory for an allocation that has a record; empty.
    AllocSample;
    /// What a task does with its time; empty.
    TaskTimes;
}

impl TaskTimes {
    /// Nothing.
    pub const fn idle() -> Self {
        Self
    }
}

/// A place in the kernel whose hits are counted; empty.
#[derive(Debug)]
pub struct Point;

impl Point {
    /// A point with this name and unit.
    ///
    /// # Panics
    /// If the name is not 1 to 64 visible ASCII characters without `*`; for a `static`, the compiler says so.
    pub const fn new(name: &'static str, _: Unit) -> Self {
        assert!(is_name(name), "the name of a point is 1 to 64 visible ASCII characters without `*`");
        Self
    }

    /// Always `false`.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        false
    }
}

/// Memory for dynamic probes; empty.
#[derive(Debug)]
pub struct ProbeMemory<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize>;

impl<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize> ProbeMemory<FUNCTIONS, PLACES, CALLS> {
    /// Nothing.
    #[allow(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        Self
    }
}

/// A kernel's global allocator; the inner one alone.
pub struct Alloc<A, K: EventKernel> {
    inner: A,
    kernel: PhantomData<fn() -> K>,
}

impl<A, K: EventKernel> Alloc<A, K> {
    /// Makes an allocator, for a `static` with `#[global_allocator]`.
    pub const fn new(inner: A, _: &'static Events<K>) -> Self {
        Self { inner, kernel: PhantomData }
    }

    /// The inner allocator.
    #[inline(always)]
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Does nothing.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn register(&'static self, _: impl FnOnce() -> &'static [AllocSample]) -> Result<(), RegisterError> {
        Ok(())
    }
}

// SAFETY: every call is passed on to the inner allocator, which fulfils the contract, with the same arguments, and its
// result is returned.
unsafe impl<A: GlobalAlloc, K: EventKernel> GlobalAlloc for Alloc<A, K> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.inner.dealloc(block, layout) };
    }

    #[inline(always)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe { self.inner.realloc(block, layout, new_size) }
    }
}
