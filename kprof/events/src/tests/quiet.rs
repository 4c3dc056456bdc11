//! A kernel for unit tests in which nothing is sampled: it has no stack, and it keeps what it is told of lockups.
//!
//! In: calls of the profiler and its events. Out: the reports as sentences. Runs in: tests.

use crate::events::Events;
use crate::kernel::EventKernel;
use crate::lockup::Lockup;
use crate::slot::EventSlot;
use core::mem::MaybeUninit;
use core::ops::Range;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Profiler, Setup, Task};
use std::sync::Mutex;

/// The kernel. The test runs on its CPU 1.
pub(crate) struct Quiet {
    pub(crate) told: Mutex<Vec<String>>,
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
}

impl EventKernel for Quiet {
    fn locked_up(&self, lockup: &Lockup<'_>) {
        self.told.lock().unwrap().push(lockup.to_string());
    }
}

/// Two CPUs, of which the first is the sampler; the second has a ring.
pub(crate) fn machine(config: Config) -> (&'static Profiler<Quiet>, &'static Events<Quiet>) {
    let quiet = Quiet { told: Mutex::new(Vec::new()) };
    let profiler: &'static Profiler<Quiet> = Box::leak(Box::new(Profiler::new(quiet)));
    let events: &'static Events<Quiet> = Box::leak(Box::new(Events::new(profiler)));
    let event_slots: &'static [EventSlot; 2] = Box::leak(Box::new([const { EventSlot::new() }; 2]));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let memory = || -> &'static mut [MaybeUninit<u64>] { vec![MaybeUninit::uninit(); 1024].leak() };
    let config = Config { text: (1, 2), ..config };
    events.init(|| event_slots, || Setup { slots, meta: memory(), config }).unwrap();
    profiler.register(1, memory).unwrap();
    (profiler, events)
}
