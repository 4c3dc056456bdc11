//! The API of events: the methods of [`Events`]. The API is the same with the feature `profiling` on and off.
//!
//! In: the kernel's memory, and one call where each thing happens. Out: each method is one call of its part. Runs in:
//! each method says where. With the feature off every method does nothing, calls no closure, and adds no byte to the
//! kernel.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

#[cfg(feature = "profiling")]
use super::{points, points::WAITS, probes, records, waiting};
use crate::event::Event;
use crate::events::Events;
use crate::kernel::{EventKernel, TaskState};
use crate::{EventSlot, Point, PointCounts, ProbeMemory, TaskTimes};
use core::mem::MaybeUninit;
use kprof::config::Setup;
#[cfg(feature = "profiling")]
use kprof::internals;
use kprof::{Breakpoint, InitError, RegisterError};

/// The body of a call of the scheduler: nothing if nobody wants to know what tasks do, or if the feature is off.
macro_rules! waiting {
    ($call:expr) => {{
        #[cfg(feature = "profiling")]
        if WAITS.is_on() {
            $call;
        }
    }};
}

impl<K: EventKernel> Events<K> {
    /// Sets the profiler up with its events: call it instead of [`kprof::Profiler::init`]. `slots` returns one slot for
    /// each slot of the profiler. Neither function is called with the feature off, nor by a second call.
    ///
    /// # Errors
    /// [`InitError`]: as of [`kprof::Profiler::init`], or there are too few slots, or another profiler has them.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn init(
        &'static self,
        slots: impl FnOnce() -> &'static [EventSlot],
        setup: impl FnOnce() -> Setup,
    ) -> Result<(), InitError> {
        feature!({
            internals::init(self.instance, self, setup, |cpus, config| self.state.install(slots(), cpus, config))
        }; else Ok(()))
    }

    /// Counts an event on the CPU that calls this, in the task that [`kprof::Kernel::task`] returns now.
    /// Runs in: any but NMI.
    #[inline]
    pub fn count(&self, event: Event) {
        feature!({
            let kernel = self.kernel();
            self.state.count(event, || kernel.cpu(), || kernel.task().id);
        }; else ());
    }

    /// Gives a CPU memory for what it counts of points: one [`PointCounts`] for each point that the kernel has, in a
    /// static or from its allocator. Without it, and for points beyond it, hits on this CPU are lost, and counted as
    /// lost. `memory` is not called with the feature off, nor if the CPU has its memory already. Runs in: ordinary
    /// code, after [`Events::init`], on any CPU.
    ///
    /// # Errors
    /// [`RegisterError`]: the CPU has no slot or has memory already, or the memory belongs to another CPU.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register_points(
        &'static self,
        cpu: usize,
        memory: impl FnOnce() -> &'static [PointCounts],
    ) -> Result<(), RegisterError> {
        feature!(points::register(&self.state, cpu, memory); else Ok(()))
    }

    /// Gives a CPU its event ring, for the records of hits that a ctl command `event NAME record` asks for. `ring`
    /// returns the memory, a power of two of at least 1024 words. It is not called with the feature off, nor if the CPU
    /// has an event ring already. Without it, such hits are counted, and their records are lost. Runs in: ordinary
    /// code, after [`Events::init`], on any CPU.
    ///
    /// # Errors
    /// [`RegisterError`]: the CPU has no slot or has an event ring already, or the memory cannot be used as a ring.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register_events(
        &'static self,
        cpu: usize,
        ring: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
    ) -> Result<(), RegisterError> {
        feature!(records::register(&self.state, cpu, ring); else Ok(()))
    }

    /// Counts a hit of a point, with a weight in the point's unit, on the CPU that calls this. If the point is off (as
    /// every point is until a ctl command `event NAME count`), this is one load and a branch. If the point is to be
    /// recorded, the hit also gets a record with the stack of the caller; interrupts are off meanwhile. Does nothing
    /// with the feature off. Runs in: any but NMI, with locks held too.
    #[inline(always)]
    pub fn hit(&'static self, point: &'static Point, weight: u64) {
        self.hit_with(point, weight, []);
    }

    /// As [`Events::hit`], with up to two numbers that go into the record of the hit, if it gets one.
    #[inline(always)]
    pub fn hit_with<const N: usize>(&'static self, point: &'static Point, weight: u64, arguments: [u64; N]) {
        const { assert!(N <= 2, "a hit has at most two arguments") };
        feature!({
            if let Some(counted) = point.counted() {
                points::hit(self, point, counted, weight, &arguments);
            }
        }; else ());
    }

    /// Gives the profiler memory for dynamic probes (the ctl command `probe`). Does nothing with the feature off. Runs
    /// in: ordinary code, once, after [`Events::init`].
    ///
    /// # Errors
    /// [`RegisterError`]: [`Events::init`] has not succeeded yet, or there is memory already.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register_probes<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize>(
        &'static self,
        memory: &'static ProbeMemory<FUNCTIONS, PLACES, CALLS>,
    ) -> Result<(), RegisterError> {
        feature!(probes::register(self, memory); else Ok(()))
    }

    /// Handles a breakpoint exception in kernel code (`int3`), if a probe has caused it: counts the call that begins or
    /// ends, and sets `at` to what the registers are after the instruction that the `int3` replaces. `false`, with
    /// nothing changed, if no probe has caused it; the kernel then does what it does with other breakpoints. Always
    /// `false` with the feature off. `arguments` gives the values of rdi, rsi, rdx, rcx, r8 and r9 when the
    /// exception came; it is called if the probe asks for arguments or has conditions. Runs in: the breakpoint handler,
    /// interrupts off, never in an NMI.
    ///
    /// # Safety
    /// `at` is what a breakpoint exception in kernel code has interrupted on this CPU, and interrupts have been off
    /// since. The eight bytes below the interrupted stack pointer are not in use: the entry stub has moved what the
    /// processor saved there further down. The stub returns with the registers in `at`.
    #[inline(always)]
    pub unsafe fn on_breakpoint(&'static self, at: &mut Breakpoint, arguments: impl FnOnce() -> [u64; 6]) -> bool {
        // SAFETY: the caller's promise.
        feature!(unsafe { probes::on_breakpoint(self, at, arguments) }; else false)
    }

    /// Says that a task was created. Until [`Events::woken`] or [`Events::switched`] is called for it, its time
    /// does not count. Runs in: any but NMI.
    #[inline(always)]
    pub fn created(&'static self, times: &TaskTimes) {
        waiting!(waiting::created(times));
    }

    /// Says that this CPU is about to switch from one task to another, and what the first one does from now on. While
    /// the points `sched.off-cpu`, `sched.blocked` and `sched.latency` are off, this is one load and a branch. Does
    /// nothing with the feature off. Runs in: the scheduler, on the CPU that switches, interrupts off, under
    /// the lock that also orders [`Events::woken`] for these tasks.
    #[inline(always)]
    pub fn switched(&'static self, from: &TaskTimes, to: &TaskTimes, becomes: TaskState) {
        waiting!(waiting::switched(self, from, to, becomes));
    }

    /// Says that a task runs again: hits the points of its time off the CPU, with its stack. Call it after the switch,
    /// with the task's own state, where its stack is the one that it had before. Runs in: the scheduler, in that task.
    #[inline(always)]
    pub fn resumed(&'static self, times: &TaskTimes) {
        waiting!(waiting::resumed(self, times));
    }

    /// Says that a task that was blocked, or is new, is ready to run. Nothing changes if it was neither. Runs in: any
    /// but NMI, where the task is put into the queue of those that are ready.
    #[inline(always)]
    pub fn woken(&'static self, times: &TaskTimes) {
        waiting!(waiting::woken(times));
    }

    /// Records what a task did with its time since the last call for this task, or since somebody has asked for it:
    /// after a task has ended, before it gets another id, and for each task if a write to ctl returns
    /// [`ControlDone::wants_times`](kprof::ControlDone::wants_times). `state` is what the task does now. It may be out
    /// of date if it was right after the command. Runs in: ordinary code.
    #[inline(always)]
    pub fn task_times(&'static self, id: u64, times: &TaskTimes, state: TaskState) {
        #[cfg(feature = "profiling")]
        waiting::report(self, id, times, state);
    }
}
