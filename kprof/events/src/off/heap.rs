//! The kernel's global allocator, with the feature off: the inner allocator alone.
//!
//! In: the calls of the allocator. Out: the same calls of the inner allocator. Runs in: wherever the kernel allocates.

use crate::events::Events;
use crate::kernel::EventKernel;
use core::alloc::{GlobalAlloc, Layout};
use core::marker::PhantomData;
use kprof::RegisterError;

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

/// Memory for an allocation that has a record; empty.
#[derive(Debug, Default)]
pub struct AllocSample;

impl AllocSample {
    /// Nothing.
    pub const fn new() -> Self {
        Self
    }
}

const _: () = assert!(size_of::<AllocSample>() == 0, "it takes no memory");
