//! The public API: the type that a kernel puts into a `static`, and its methods. The API is the same with the feature
//! `profiling` on and off.
//!
//! In: the kernel's hooks, memory, choices. Out: each method is one call of its stage, in the stage's file. Runs in:
//! each method says where. With the feature off every method does nothing, calls no closure, and adds no byte to the
//! kernel.
#![cfg_attr(not(all(feature = "profiling", feature = "records", feature = "probes")), allow(unused_variables))]

use crate::check::CheckError;
use crate::config::Setup;
use crate::errors::{ExportError, InitError, ReadError, RegisterError, StateError};
#[cfg(all(feature = "profiling", feature = "probes"))]
use crate::events::probes;
#[cfg(all(feature = "profiling", feature = "records"))]
use crate::events::records;
#[cfg(all(feature = "profiling", feature = "points"))]
use crate::events::{points::WAITS, waiting};
use crate::files::{ControlFile, StreamFile};
use crate::kernel::{
    Breakpoint, Event, Image, Interrupted, Kernel, NmiToken, Outcome, OverflowTick, Registers, TimerTick,
};
use crate::publisher::Publisher;
use crate::{Point, PointCounts, ProbeMemory, TaskState, TaskTimes};
#[cfg(feature = "profiling")]
use crate::{
    check,
    control::{self, OpenControl},
    drain::OpenStream,
    errors::StreamName,
    events::points,
    export, handler, sampler, setup,
    state::settings::State,
    state::{Instance, Shared},
    timer,
};
use core::fmt;
use core::mem::MaybeUninit;

/// The body of a call of the scheduler: nothing if nobody wants to know what tasks do, or if the feature is off.
macro_rules! waiting {
    ($call:expr) => {{
        #[cfg(all(feature = "profiling", feature = "points"))]
        if WAITS.is_on() {
            $call;
        }
    }};
}

/// Whether the profiler is compiled in.
pub const ENABLED: bool = cfg!(feature = "profiling");
/// The usual size of a CPU's ring, 256 KiB; 0 with the feature off.
pub const DEFAULT_RING_WORDS: usize = if ENABLED { 32 * 1024 } else { 0 };

/// The profiler of a kernel. Make it in a `static`.
pub struct Profiler<K: Kernel> {
    #[cfg(feature = "profiling")]
    pub(crate) instance: Instance<K>,
    #[cfg(not(feature = "profiling"))]
    _kernel: K,
}

impl<K: Kernel> Profiler<K> {
    /// Makes a profiler, for a `static`.
    pub const fn new(kernel: K) -> Self {
        Self {
            #[cfg(feature = "profiling")]
            instance: Instance { kernel, shared: Shared::new() },
            #[cfg(not(feature = "profiling"))]
            _kernel: kernel,
        }
    }

    /// Sets the profiler up. Runs in: the boot CPU, once, as soon as memory and the choices are available. `setup` is
    /// not called with the feature off, nor by a second call of `init`.
    ///
    /// # Errors
    /// [`InitError`] says what is wrong with the setup; the profiler then has no CPUs, and every later call does
    /// nothing.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn init(&'static self, setup: impl FnOnce() -> Setup) -> Result<(), InitError> {
        feature!(setup::init(&self.instance.shared, &self.instance, setup); else Ok(()))
    }

    /// Gives a CPU its ring. From then on the CPU gets ticks. Runs in: that CPU, after it has an NMI
    /// entry, and again when it comes back after [`Profiler::offline`]. `ring` returns the memory, a power of two of at
    /// least 1024 words. It is not called with the feature off, nor if the CPU already has a ring.
    ///
    /// # Errors
    /// [`RegisterError`]: the CPU has no slot, or the memory cannot be used as a ring. The CPU gets no ticks then.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register(
        &'static self,
        cpu: usize,
        ring: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
    ) -> Result<(), RegisterError> {
        feature!(setup::register(&self.instance.shared, cpu, ring); else Ok(()))
    }

    /// Checks that the port is right, as far as this is possible before the first tick: on a sampled CPU, after
    /// `register`, its NMI gate, stacks and entry stubs; on the sampler CPU, before `run_sampler`, the clock, the
    /// sleep, and whether every CPU has registered (for which it waits up to a second). On a processor without a table
    /// of interrupt gates, it also sends every CPU a tick by [`crate::Trigger::Nmi`] if sampling is on, and waits up to
    /// a second for it. Runs in: ordinary code, on that CPU.
    ///
    /// # Errors
    /// [`CheckError`]: the first thing that is wrong. Nothing else is changed.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn check(&'static self) -> Result<(), CheckError> {
        feature!(check::check(&self.instance); else Ok(()))
    }

    /// Excludes a CPU that is about to be stopped. It gets no more ticks, and no change waits for ticks that it has not
    /// taken; they stay in `pending`. Its ring can still be read. Runs in: ordinary code, on any CPU; from then until
    /// `register` the CPU must not call [`Profiler::on_nmi`] or [`Profiler::on_timer`].
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn offline(&self, cpu: usize) {
        feature!(setup::offline(&self.instance.shared, cpu); else ());
    }

    /// Runs the sampler. Returns at once, having done nothing, if `cpu` is not [`crate::Config::sampler_cpu`], if a
    /// sampler runs already, or with the feature off. Otherwise it never returns.
    ///
    /// Runs in: the sampler CPU, in its own thread or instead of a scheduler. It must be able to take its timer
    /// interrupt.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn run_sampler(&'static self, cpu: usize) {
        feature!(sampler::run(&self.instance, cpu); else ());
    }

    /// Handles one timer interrupt of a CPU that samples itself: with [`crate::Trigger::Timer`], and with every trigger
    /// until the sampler runs.
    ///
    /// Runs in: the timer's interrupt handler, interrupts off.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn on_timer(&'static self, _token: &NmiToken, at: &Registers) -> TimerTick {
        feature!(timer::on_timer(&self.instance, at); else TimerTick { outcome: Outcome::Foreign, next_ns: u64::MAX })
    }

    /// Handles the interrupt of a counter that has overflowed: a tick that is caused by `Config::event`. The CPU
    /// samples itself, as with [`Profiler::on_timer`], but every overflow is a tick.
    ///
    /// Runs in: the counter's interrupt handler, interrupts off.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn on_overflow(&'static self, _token: &NmiToken, at: &Registers) -> OverflowTick {
        feature!(timer::on_overflow(&self.instance, at); else OverflowTick {
            outcome: Outcome::Foreign,
            next_events: u64::MAX,
        })
    }

    /// The handler: takes the tick of an NMI and records the sample. The kernel's NMI entry calls it with the
    /// interrupted registers. (With [`crate::Trigger::Ipi`], the entry of that interrupt calls it.) [`Outcome`] says
    /// what became of the NMI. Runs in: NMI.
    #[inline]
    pub fn on_nmi(&self, _token: &NmiToken, at: &impl Interrupted) -> Outcome {
        feature!(handler::on_nmi(&self.instance, at); else Outcome::Foreign)
    }

    /// Numbers a tick of this CPU without sending anything: for tests and benchmarks that then call the handler
    /// themselves.
    #[cfg(all(feature = "profiling", feature = "testing"))]
    pub fn raise_tick(&self, cpu: usize) {
        if let Some(slot) = self.instance.shared.ready.slot(cpu) {
            slot.raise_tick();
        }
    }

    /// The `Publisher` of a CPU. Keep it where the CPU's entry stubs can reach it without a search. `None` if the CPU
    /// has no slot, or if the cargo feature `profiling` or `published` is off. Runs in: ordinary code, after
    /// [`Profiler::init`].
    #[inline(always)]
    pub fn publisher(&self, cpu: usize) -> Option<&'static Publisher> {
        feature!(self.instance.shared.publisher(cpu); else None)
    }

    /// Starts sampling. Runs in: ordinary code; waits at most 3 s for other changes.
    ///
    /// # Errors
    /// [`StateError`]: sampling has not started.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn start(&self) -> Result<(), StateError> {
        feature!(control::change_state(&self.instance.shared, State::Running); else Ok(()))
    }

    /// Stops sampling, and returns after every tick sent has been taken. Runs in: ordinary code on any CPU; with
    /// [`crate::Trigger::Ipi`] interrupts must be on. Waits at most 3 s for other changes and 1 s for ticks.
    ///
    /// # Errors
    /// [`StateError`]: a CPU did not take its ticks in time (sampling is stopped even so), another change did not end
    /// in time, or [`Profiler::init`] has not succeeded yet.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn stop(&self) -> Result<(), StateError> {
        feature!(control::change_state(&self.instance.shared, State::Stopped); else Ok(()))
    }

    /// Counts an event on the CPU that calls this, in the task that [`Kernel::task`] returns now. Does nothing with the
    /// feature `events` off. Runs in: any but NMI.
    #[inline]
    pub fn count(&self, event: Event) {
        feature!({
            let kernel = &self.instance.kernel;
            self.instance.shared.count(event, || kernel.cpu(), || kernel.task().id);
        }; else ());
    }

    /// Gives a CPU memory for what it counts of points: one [`PointCounts`] for each point that the kernel has, in a
    /// static or from its allocator. Without it, and for points beyond it, hits on this CPU are lost, and counted as
    /// lost. `memory` is not called with the feature off, nor if the CPU has its memory already. Runs in: ordinary
    /// code, after [`Profiler::init`], on any CPU.
    ///
    /// # Errors
    /// [`RegisterError`]: the CPU has no slot or has memory already, or the memory belongs to another CPU.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register_points(
        &'static self,
        cpu: usize,
        memory: impl FnOnce() -> &'static [PointCounts],
    ) -> Result<(), RegisterError> {
        feature!(points::register(&self.instance.shared, cpu, memory); else Ok(()))
    }

    /// Gives a CPU its event ring, for the records of hits that a ctl command `event NAME record` asks for. `ring`
    /// returns the memory, a power of two of at least 1024 words. It is not called with the feature `profiling` or
    /// `records` off, nor if the CPU has an event ring already. Without it, such hits are counted, and their records
    /// are lost. Runs in: ordinary code, after [`Profiler::init`], on any CPU.
    ///
    /// # Errors
    /// [`RegisterError`]: the CPU has no slot or has an event ring already, or the memory cannot be used as a ring.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register_events(
        &'static self,
        cpu: usize,
        ring: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
    ) -> Result<(), RegisterError> {
        #[cfg(all(feature = "profiling", feature = "records"))]
        return records::register(&self.instance.shared, cpu, ring);
        #[cfg(not(all(feature = "profiling", feature = "records")))]
        Ok(())
    }

    /// Counts a hit of a point, with a weight in the point's unit, on the CPU that calls this. If the point is off (as
    /// every point is until a ctl command `event NAME count`), this is one load and a branch. If the point is to be
    /// recorded, the hit also gets a record with the stack of the caller; interrupts are off meanwhile. Does nothing
    /// with the feature `points` off. Runs in: any but NMI, with locks held too.
    #[inline(always)]
    pub fn hit(&'static self, point: &'static Point, weight: u64) {
        self.hit_with(point, weight, []);
    }

    /// As [`Profiler::hit`], with up to two numbers that go into the record of the hit, if it gets one.
    #[inline(always)]
    pub fn hit_with<const N: usize>(&'static self, point: &'static Point, weight: u64, arguments: [u64; N]) {
        const { assert!(N <= 2, "a hit has at most two arguments") };
        feature!({
            if point.is_on() {
                points::hit(&self.instance, point, weight, &arguments);
            }
        }; else ());
    }

    /// Gives the profiler memory for dynamic probes (the ctl command `probe`). Does nothing with the feature
    /// `profiling` or `probes` off. Runs in: ordinary code, once.
    ///
    /// # Errors
    /// [`RegisterError::ProbesTwice`].
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn register_probes<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize>(
        &'static self,
        memory: &'static ProbeMemory<FUNCTIONS, PLACES, CALLS>,
    ) -> Result<(), RegisterError> {
        #[cfg(all(feature = "profiling", feature = "probes"))]
        return probes::register(&self.instance, memory);
        #[cfg(not(all(feature = "profiling", feature = "probes")))]
        Ok(())
    }

    /// Handles a breakpoint exception in kernel code (`int3`), if a probe has caused it: counts the call that begins or
    /// ends, and sets `at` to what the registers are after the instruction that the `int3` replaces. `false`, with
    /// nothing changed, if no probe has caused it; the kernel then does what it does with other breakpoints. Always
    /// `false` with the feature `probes` off. `arguments` gives the values of rdi, rsi, rdx, rcx, r8 and r9 when the
    /// exception came; it is called if the probe asks for arguments or has conditions. Runs in: the breakpoint handler,
    /// interrupts off, never in an NMI.
    ///
    /// # Safety
    /// `at` is what a breakpoint exception in kernel code has interrupted on this CPU, and interrupts have been off
    /// since. The eight bytes below the interrupted stack pointer are not in use: the entry stub has moved what the
    /// processor saved there further down. The stub returns with the registers in `at`.
    #[inline(always)]
    pub unsafe fn on_breakpoint(&'static self, at: &mut Breakpoint, arguments: impl FnOnce() -> [u64; 6]) -> bool {
        #[cfg(all(feature = "profiling", feature = "probes"))]
        // SAFETY: the caller's promise.
        return unsafe { probes::on_breakpoint(&self.instance, at, arguments) };
        #[cfg(not(all(feature = "profiling", feature = "probes")))]
        false
    }

    /// Says that a task was created. Until [`Profiler::woken`] or [`Profiler::switched`] is called for it, its time
    /// does not count. Runs in: any but NMI.
    #[inline(always)]
    pub fn created(&'static self, times: &TaskTimes) {
        waiting!(waiting::created(times));
    }

    /// Says that this CPU is about to switch from one task to another, and what the first one does from now on. While
    /// the points `sched.off-cpu`, `sched.blocked` and `sched.latency` are off, this is one load and a branch. Does
    /// nothing with the feature `points` off. Runs in: the scheduler, on the CPU that switches, interrupts off, under
    /// the lock that also orders [`Profiler::woken`] for these tasks.
    #[inline(always)]
    pub fn switched(&'static self, from: &TaskTimes, to: &TaskTimes, becomes: TaskState) {
        waiting!(waiting::switched(&self.instance, from, to, becomes));
    }

    /// Says that a task runs again: hits the points of its time off the CPU, with its stack. Call it after the switch,
    /// with the task's own state, where its stack is the one that it had before. Runs in: the scheduler, in that task.
    #[inline(always)]
    pub fn resumed(&'static self, times: &TaskTimes) {
        waiting!(waiting::resumed(&self.instance, times));
    }

    /// Says that a task that was blocked, or is new, is ready to run. Nothing changes if it was neither. Runs in: any
    /// but NMI, where the task is put into the queue of those that are ready.
    #[inline(always)]
    pub fn woken(&'static self, times: &TaskTimes) {
        waiting!(waiting::woken(times));
    }

    /// Records what a task did with its time since the last call for this task, or since somebody has asked for it:
    /// after a task has ended, before it gets another id, and for each task if a write to ctl returns
    /// [`ControlDone::wants_times`](crate::ControlDone::wants_times). `state` is what the task does now. It may be out
    /// of date if it was right after the command. Runs in: ordinary code.
    #[inline(always)]
    pub fn task_times(&'static self, id: u64, times: &TaskTimes, state: TaskState) {
        #[cfg(all(feature = "profiling", feature = "points"))]
        waiting::report(&self.instance, id, times, state);
    }

    /// Records the name of a task. Call it when the task is created and when its name changes. Runs in: ordinary code.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn task_name(&self, id: u64, name: &str) {
        feature!(self.instance.shared.task_name(id, name); else ());
    }

    /// Records a code image. Call it once for the kernel, and for each module when it is loaded. Runs in: ordinary
    /// code.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn image(&self, image: &Image<'_>) {
        feature!(self.instance.shared.image(image); else ());
    }

    /// Records a mark: a name, with the present time. Runs in: ordinary code.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn mark(&self, name: &str) {
        feature!(self.instance.shared.mark(name); else ());
    }

    /// Opens the control file for a process. Keep the result with the open file, and drop it when that is closed.
    /// `process` is a number that is the same for all files of one process (its id), or 0 for the kernel itself. Runs
    /// in: ordinary code.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn open_control(&'static self, process: u64) -> ControlFile {
        ControlFile {
            #[cfg(feature = "profiling")]
            control: OpenControl::open(&self.instance.shared, process),
        }
    }

    /// Opens a CPU's stream for a process. `process` is the same number as in [`Profiler::open_control`]. Runs in:
    /// ordinary code.
    ///
    /// # Errors
    /// [`ReadError::NoStream`]: there is no such CPU.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn open_stream(&'static self, cpu: usize, process: u64) -> Result<StreamFile, ReadError> {
        feature!(
            OpenStream::open(&self.instance.shared, StreamName::Cpu(cpu), process).map(|stream| StreamFile { stream });
            else Err(ReadError::NoStream)
        )
    }

    /// Opens a CPU's event stream: the records of hits of points. `process` is the same number as in
    /// [`Profiler::open_control`]. Runs in: ordinary code.
    ///
    /// # Errors
    /// [`ReadError::NoStream`]: there is no such CPU. A read gives the same error if the CPU has no event ring.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn open_events(&'static self, cpu: usize, process: u64) -> Result<StreamFile, ReadError> {
        feature!(
            {
                let stream = OpenStream::open(&self.instance.shared, StreamName::Event(cpu), process);
                stream.map(|stream| StreamFile { stream })
            };
            else Err(ReadError::NoStream)
        )
    }

    /// Opens the meta stream: task names, images, marks, settings, counts of events. Runs in: ordinary code.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn open_meta(&'static self, process: u64) -> StreamFile {
        StreamFile {
            #[cfg(feature = "profiling")]
            stream: OpenStream::open_meta(&self.instance.shared, process),
        }
    }

    /// Whether a process has claimed the streams (`protocol 1`), or reads copies of them (`copy 1`). If so, its reads
    /// return framed records. Otherwise reads return raw words, which are freed when they are read. Runs in: any.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn is_claimed(&self) -> bool {
        feature!({
            let shared = &self.instance.shared;
            shared.claim() != 0 || shared.copy_claim() != 0
        }; else false)
    }

    /// Whether a waiting reader should read now, because a ring is half full, or the meta stream a quarter. Runs in:
    /// any.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn reader_due(&self) -> bool {
        feature!(sampler::reader_due(&self.instance.shared); else false)
    }

    /// Writes state, settings and all counters as `key value` lines. Runs in: ordinary code.
    ///
    /// # Errors
    /// Those of the sink.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn write_status(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        feature!(control::write_status(&self.instance.shared, 0, out); else Ok(()))
    }

    /// Writes all samples and meta records that have not been written yet, and frees the samples; they count as
    /// delivered. `out` is a serial port, or [`crate::Bytes`] around a function that takes bytes. Call it repeatedly
    /// from a kernel thread, and at shutdown after `stop`. In overwrite mode nothing is freed. Runs in: ordinary code.
    ///
    /// # Errors
    /// [`ExportError`]: a reader has claimed the streams, another owner works on one, the sink failed (records that
    /// were not written completely are not freed), or the feature `export` is off.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn export(&self, out: &mut dyn fmt::Write) -> Result<(), ExportError> {
        feature!(export::export(&self.instance.shared, out); else Ok(()))
    }

    /// Writes the newest `last` samples of every CPU, and all records of the meta stream (task names, images, marks,
    /// settings, event counts). Frees nothing; takes no lock. Runs in: any, a panic handler too. It needs 6 KiB of
    /// stack. With the feature `export` off, it writes one line that says so.
    ///
    /// # Errors
    /// Those of the sink.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn export_last(&self, out: &mut dyn fmt::Write, last: usize) -> fmt::Result {
        feature!(export::export_last(&self.instance.shared, out, last); else Ok(()))
    }
}
