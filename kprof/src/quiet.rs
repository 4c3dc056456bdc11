//! A kernel for unit tests in which nothing is sampled: it has no stack.
//!
//! In: calls of the profiler. Out: a profiler that is set up; how often the reader was woken. Runs in: tests.

use crate::config::{Config, Setup};
use crate::cpu_set::CpuSet;
use crate::extension::{Extension, NoExtension};
use crate::kernel::{Kernel, Task};
use crate::ring::tests::memory;
use crate::setup;
use crate::shared::{Instance, Shared};
use crate::slot::CpuSlot;
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

/// A profiler of this kernel with two CPUs, set up with these choices. CPU 1 has registered.
pub(crate) fn instance(config: Config) -> &'static Instance<Quiet> {
    let instance = Box::leak(Box::new(Instance { kernel: Quiet::new(), shared: Shared::new() }));
    set_up(instance, &NoExtension, Config { text: (0x1000, 0x2000), ..config }, &[1]);
    instance
}

/// Sets up a profiler of any kernel with two CPUs, and registers those CPUs.
pub(crate) fn set_up<K: Kernel>(
    instance: &'static Instance<K>,
    extension: &'static dyn Extension,
    config: Config,
    registered: &[usize],
) {
    let slots: &'static [CpuSlot] = vec![CpuSlot::new(), CpuSlot::new()].leak();
    let setup = || Setup { slots, meta: memory(1024), config };
    setup::init(instance, extension, setup, setup::without_events).unwrap();
    registered.iter().for_each(|cpu| setup::register(&instance.shared, *cpu, || memory(1024)).unwrap());
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
