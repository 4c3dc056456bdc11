//! The profiler switched off: the same names, no code, no memory.
//!
//! In: the calls of a kernel. Out: nothing. Context: any. Every function is empty and inline, every type has no size, and
//! closures that would fetch memory are not called, so that neither a symbol nor a byte is left in the kernel.

use crate::config::Setup;
use crate::kernel::{Context, Event, Image, Interrupted, Kernel, NmiToken, Outcome, Published, Registers};
use core::fmt;
use core::mem::MaybeUninit;

/// Whether the profiler is compiled in.
pub const ENABLED: bool = false;
/// The usual size of a CPU's ring; 0 with the feature off.
pub const DEFAULT_RING_WORDS: usize = 0;

/// One CPU's part of the profiler: nothing.
#[derive(Debug, Default)]
pub struct CpuSlot;

impl CpuSlot {
    /// A slot.
    pub const fn new() -> Self {
        Self
    }
}

/// The CPUs to be signalled: none, ever.
#[derive(Clone, Copy, Debug)]
pub struct CpuSet<'a>(core::marker::PhantomData<&'a ()>);

impl CpuSet<'_> {
    /// Never asked.
    pub fn all_others(&self) -> bool {
        false
    }

    /// Never asked.
    pub fn contains(&self, _cpu: usize) -> bool {
        false
    }

    /// Never asked.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        core::iter::empty()
    }
}

/// The one answer of a profiler that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Off;

impl Off {
    /// Never.
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        false
    }
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this kernel was built without the feature `profiling`")
    }
}

/// Why a write to ctl is refused: there is no profiler.
pub type ControlError = Off;
/// Why a read gives nothing: there is no profiler.
pub type ReadError = Off;
/// Never made.
pub type StopError = Off;

/// A write to ctl that was carried out; never made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDone {
    /// How long the writer wants to sleep.
    pub wait_ms: Option<u64>,
    /// Whether contexts and modules are to be told again.
    pub is_claim: bool,
}

/// What `on_timer` did: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnTick {
    /// Always [`Outcome::Foreign`].
    pub outcome: Outcome,
    /// Never due.
    pub next_ns: u64,
}

/// Where one core would publish what it is at: never had.
#[derive(Debug)]
pub struct Publisher;

impl Publisher {
    /// Does nothing.
    #[inline(always)]
    pub fn publish(&self, _place: Published) -> Published {
        Published::THREAD
    }

    /// Does nothing.
    #[inline(always)]
    pub fn publish_context(&self, _context: Context) -> Published {
        Published::THREAD
    }
}

/// The profiler: only the kernel's own hooks, which are never called.
pub struct Profiler<K: Kernel> {
    _kernel: K,
}

impl<K: Kernel> Profiler<K> {
    /// For a `static`.
    pub const fn new(kernel: K) -> Self {
        Self { _kernel: kernel }
    }

    /// Does nothing; `setup` is not called.
    #[inline(always)]
    pub fn init(&'static self, _setup: impl FnOnce() -> Setup) {}

    /// Does nothing; `ring` is not called.
    #[inline(always)]
    pub fn register(&'static self, _cpu: usize, _ring: impl FnOnce() -> &'static mut [MaybeUninit<u64>]) {}

    /// Returns at once.
    #[inline(always)]
    pub fn run_sampler(&'static self, _cpu: usize) {}

    /// Always [`Outcome::Foreign`].
    #[inline(always)]
    pub fn on_nmi(&self, _token: &NmiToken, _at: &impl Interrupted) -> Outcome {
        Outcome::Foreign
    }

    /// Never due.
    #[inline(always)]
    pub fn on_timer(&'static self, _token: &NmiToken, _at: &Registers) -> OwnTick {
        OwnTick { outcome: Outcome::Foreign, next_ns: u64::MAX }
    }

    /// None.
    #[inline(always)]
    pub fn publisher(&self, _cpu: usize) -> Option<&'static Publisher> {
        None
    }

    /// Does nothing.
    #[inline(always)]
    pub fn start(&self) {}

    /// Nothing to stop.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn stop(&self) -> Result<(), StopError> {
        Ok(())
    }

    /// Does nothing.
    #[inline(always)]
    pub fn count(&self, _event: Event) {}

    /// Does nothing.
    #[inline(always)]
    pub fn context_name(&self, _id: u64, _name: &str) {}

    /// Does nothing.
    #[inline(always)]
    pub fn image(&self, _image: &Image<'_>) {}

    /// Does nothing.
    #[inline(always)]
    pub fn mark(&self, _name: &str) {}

    /// Never.
    #[inline(always)]
    pub fn reader_due(&self) -> bool {
        false
    }

    /// Refused.
    ///
    /// # Errors
    /// Always.
    #[inline(always)]
    pub fn control(&self, _handle: u64, _bytes: &[u8]) -> Result<ControlDone, ControlError> {
        Err(Off)
    }

    /// Does nothing.
    #[inline(always)]
    pub fn close_control(&self, _handle: u64) {}

    /// Writes nothing.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn write_control(&self, _out: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }

    /// Writes nothing.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn export(&self, _out: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }

    /// Writes nothing.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn export_last(&self, _out: &mut dyn fmt::Write, _last: usize) -> fmt::Result {
        Ok(())
    }

    /// Never.
    #[inline(always)]
    pub fn is_claimed(&self) -> bool {
        false
    }

    /// Refused.
    ///
    /// # Errors
    /// Always.
    #[inline(always)]
    pub fn read_stream(&self, _cpu: usize, _buffer: &mut [u8]) -> Result<usize, ReadError> {
        Err(Off)
    }

    /// Refused.
    ///
    /// # Errors
    /// Always.
    #[inline(always)]
    pub fn read_meta(&self, _buffer: &mut [u8]) -> Result<usize, ReadError> {
        Err(Off)
    }
}

const _: () = assert!(size_of::<CpuSlot>() == 0, "a static array of slots takes no room");
