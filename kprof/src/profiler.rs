//! The public API: the type that a kernel puts into a `static`, and its methods. The API is the same with the feature
//! `profiling` on and off.
//!
//! In: the kernel's hooks, memory, choices. Out: each method is one call of its stage, in the stage's file. Runs in:
//! each method says where. With the feature off every method does nothing, calls no closure, and adds no byte to the
//! kernel.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

use crate::check::CheckError;
use crate::config::Setup;
use crate::errors::{ExportError, InitError, ReadError, RegisterError, StateError};
use crate::files::{ControlFile, StreamFile};
use crate::kernel::{Image, Interrupted, Kernel, NmiToken, Outcome, OverflowTick, Registers, TimerTick};
use crate::publisher::Publisher;
#[cfg(feature = "profiling")]
use crate::{
    check,
    control::{self, OpenControl},
    drain::OpenStream,
    errors::StreamName,
    export,
    extension::NoExtension,
    handler,
    live::State,
    sampler, setup,
    shared::{Instance, Shared},
    timer,
};
use core::fmt;
use core::mem::MaybeUninit;

/// Whether the profiler is compiled in.
pub const ENABLED: bool = cfg!(feature = "profiling");
/// The usual size of a CPU's ring, 256 KiB; 0 with the feature off.
pub const DEFAULT_RING_WORDS: usize = if ENABLED { 32 * 1024 } else { 0 };

/// The profiler of a kernel. Make it in a `static`.
pub struct Profiler<K: Kernel> {
    /// For packages above this one.
    #[doc(hidden)]
    #[cfg(feature = "profiling")]
    pub instance: Instance<K>,
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

    /// Sets the profiler up, without events (with them: `Events::init` of `kprof-events`). Runs in: the boot CPU, once,
    /// as soon as memory and the choices are available. `setup` is not called with the feature off, nor by a second
    /// call of `init`.
    ///
    /// # Errors
    /// [`InitError`] says what is wrong with the setup; the profiler then has no CPUs, and every later call does
    /// nothing.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn init(&'static self, setup: impl FnOnce() -> Setup) -> Result<(), InitError> {
        feature!(setup::init(&self.instance, &NoExtension, setup, setup::without_events); else Ok(()))
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

    /// Excludes a CPU that is about to be stopped. It gets no more ticks. A tick that is on its way is waited for,
    /// up to 10 ms; no change waits for one that the CPU does not take, which stays in `pending`. Its ring can still be
    /// read. Runs in: ordinary code, on any CPU; from its end until `register` the CPU must not call
    /// [`Profiler::on_nmi`] or [`Profiler::on_timer`].
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
    /// has no slot, or if the cargo feature `profiling` is off. Runs in: ordinary code, after [`Profiler::init`].
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
    /// [`ExportError`]: a reader has claimed the streams, another owner works on one, or the sink failed (records that
    /// were not written completely are not freed).
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn export(&self, out: &mut dyn fmt::Write) -> Result<(), ExportError> {
        feature!(export::export(&self.instance.shared, out); else Ok(()))
    }

    /// Writes the newest `last` samples of every CPU, and all records of the meta stream (task names, images, marks,
    /// settings, event counts). Frees nothing; takes no lock. Runs in: any, a panic handler too. It needs 6 KiB of
    /// stack.
    ///
    /// # Errors
    /// Those of the sink.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn export_last(&self, out: &mut dyn fmt::Write, last: usize) -> fmt::Result {
        feature!(export::export_last(&self.instance.shared, out, last); else Ok(()))
    }
}
