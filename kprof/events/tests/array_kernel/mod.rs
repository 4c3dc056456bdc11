//! The kernel whose only stack and text are arrays, with events.
#![allow(dead_code, reason = "each test uses its part")]

#[path = "../../../tests/array_kernel/mod.rs"]
mod base;

pub use base::*;
use kprof::{CpuSlot, InitError, Profiler, Setup};
use kprof_events::{EventKernel, EventSlot, Events};
use std::ops::Deref;

/// A profiler with its events.
#[derive(Clone, Copy)]
pub struct Both {
    pub profiler: &'static Profiler<ArrayKernel>,
    pub events: &'static Events<ArrayKernel>,
}

impl Deref for Both {
    type Target = Profiler<ArrayKernel>;

    fn deref(&self) -> &Self::Target {
        self.profiler
    }
}

impl Both {
    /// A profiler and its events, not set up yet.
    pub fn new() -> &'static Self {
        let profiler: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
        Box::leak(Box::new(Self { profiler, events: Box::leak(Box::new(Events::new(profiler))) }))
    }
}

impl SetUp for Both {
    fn init(&'static self, cpus: usize, setup: impl FnOnce() -> Setup) -> Result<(), InitError> {
        self.events.init(|| Vec::leak((0..cpus).map(|_| EventSlot::new()).collect()), setup)
    }
    fn give_ring(&'static self, cpu: usize) {
        self.profiler.give_ring(cpu);
    }
}

/// A profiler with its events and the slots of two CPUs.
pub type Machine = (&'static Both, &'static [CpuSlot; 2]);

/// A machine of its own for a test, not set up yet.
pub fn machine() -> Machine {
    (Both::new(), Box::leak(Box::new([const { CpuSlot::new() }; 2])))
}

impl EventKernel for ArrayKernel {
    const WAIT_REASONS: &'static [&'static str] = &["pipe", "sleep"];
}
