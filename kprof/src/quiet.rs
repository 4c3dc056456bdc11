//! A kernel for unit tests in which nothing is sampled: it has no stack.
//!
//! In: calls of the profiler. Out: how often the reader was woken. Runs in: tests.

use crate::cpu_set::CpuSet;
use crate::kernel::{Kernel, Task};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// The kernel. The test runs on its CPU 1.
pub(crate) struct Quiet {
    pub(crate) woken: AtomicU64,
}

impl Quiet {
    pub(crate) const fn new() -> Self {
        Self { woken: AtomicU64::new(0) }
    }
}

// SAFETY: no stack is declared, so none is read; the only CPU that runs code is 1.
unsafe impl Kernel for Quiet {
    fn cpu(&self) -> usize {
        1
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, _: u64) -> Option<Range<u64>> {
        None
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 7, idle: false }
    }
    fn sleep_ns(&self, _: u64) {}
    fn wake_reader(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}
