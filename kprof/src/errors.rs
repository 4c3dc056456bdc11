//! Every error that the kernel can get from kprof, and what to do about it. The types are the same with the feature
//! `profiling` on and off.
//!
//! In: nothing. Out: values whose `Display` is one sentence. Runs in: any.

use core::fmt;

use crate::format::command::BadCommand;
pub(crate) use crate::format::command::MAX_DEPTH;
pub use crate::format::command::StreamName;
/// The greatest frequency of the TSC, so that no time in its ticks overflows.
pub(crate) const MAX_TSC_HZ: u64 = 1_000_000_000_000;
/// The least number of words of a ring: a record of the greatest length fits.
pub(crate) const MIN_RING_WORDS: usize = crate::format::record::MAX_WORDS;

/// Why `init` refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// `init` was called before. The first call is in force.
    Twice,
    /// There are no slots.
    NoSlots,
    /// The slot of this CPU belongs to another profiler.
    SlotTaken(usize),
    /// `Config::depth` must be 1 to 250.
    Depth(u16),
    /// `Config::hz` must be 1 to 100 000.
    Hz(u32),
    /// `Config::tsc_hz` is 0 or more than 10^12: calibrate the TSC first (`kprof::clock`).
    TscHz(u64),
    /// `Config::text` is empty or begins after its end: every stack would be truncated at once.
    Text((u64, u64)),
    /// `Config::sampler_cpu` has no slot.
    SamplerCpu(usize),
    /// `Config::sampler_cpu` is `None`, but only [`crate::Trigger::Timer`] needs no sampler CPU.
    NoSampler,
    /// `Config::lockup_ms` needs a sampler CPU that sends the ticks: any trigger but [`crate::Trigger::Timer`].
    Lockup,
    /// `lockup_ms` without events.
    NoEvents,
    /// Fewer slots for events than for the profiler.
    FewEventSlots {
        /// The number of the profiler's slots.
        cpus: usize,
        /// The number of slots for events.
        slots: usize,
    },
    /// `Config::event` needs [`crate::Trigger::Timer`], a name of 1 to 32 visible ASCII characters, and a period of 1
    /// to 2^40.
    Event,
    /// The only CPU is the sampler CPU, which is never sampled: use [`crate::Trigger::Timer`].
    OnlySampler,
    /// The meta memory is not a power of two of at least 1024 words.
    MetaMemory(BadMemory),
    /// [`crate::Trigger::Published`] needs [`crate::Kernel::foreign_stacks`].
    NoForeignStacks,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("init was called before; the first call is in force"),
            Self::NoSlots => f.write_str("there are no slots: give one for each CPU"),
            Self::SlotTaken(cpu) => write!(f, "the slot of cpu {cpu} belongs to another profiler"),
            Self::Depth(depth) => write!(f, "depth must be 1 to {MAX_DEPTH}, is {depth}"),
            Self::Hz(hz) => write!(f, "hz must be 1 to 100000, is {hz}"),
            Self::TscHz(hz) => {
                write!(f, "tsc_hz is {hz}, not 1 to {MAX_TSC_HZ}: calibrate the TSC first (kprof::clock)")
            }
            Self::Text((start, end)) => write!(f, "the text range {start:x}-{end:x} is empty"),
            Self::SamplerCpu(cpu) => write!(f, "the sampler CPU {cpu} has no slot"),
            Self::NoSampler => f.write_str("without a sampler CPU every CPU must sample itself: use Trigger::Timer"),
            Self::NoEvents => f.write_str("lockup_ms needs events: call `Events::init` instead of `Profiler::init`"),
            Self::FewEventSlots { cpus, slots } => {
                write!(f, "{slots} event slots for {cpus} CPUs: each slot of the profiler needs one for events")
            }
            Self::Lockup => f.write_str("lockup_ms needs a sampler CPU that sends the ticks: not Trigger::Timer"),
            Self::Event => f.write_str("event needs Trigger::Timer, a name without spaces and a period of 1 to 2^40"),
            Self::OnlySampler => f.write_str("the only CPU is the sampler CPU, never sampled: use Trigger::Timer"),
            Self::MetaMemory(bad) => write!(f, "meta memory: {bad}"),
            Self::NoForeignStacks => f.write_str("Trigger::Published needs the kernel's `foreign_stacks`"),
        }
    }
}

/// Why `register` refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// `init` has not been called, or gave this CPU no slot.
    NoSlot(usize),
    /// Another CPU is registering under this number at the same time, or this CPU has memory for points already.
    Twice(usize),
    /// The ring memory is not a power of two of at least 1024 words.
    Memory(BadMemory),
    /// The memory for the points of this CPU belongs to another CPU.
    PointsTaken(usize),
    /// Another heap of this kernel is registered, or this one is for the second time.
    HeapTwice,
    /// The profiler has memory for probes already, or the memory belongs to another profiler.
    ProbesTwice,
    /// The number of places for allocations is not a power of two, or is less than 64.
    HeapPlaces(usize),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot(cpu) => write!(f, "cpu {cpu} has no slot: was init called, with a slot for each CPU?"),
            Self::Twice(cpu) => write!(f, "cpu {cpu} is registered twice: do two CPUs have this number?"),
            Self::Memory(bad) => write!(f, "ring memory: {bad}"),
            Self::PointsTaken(cpu) => write!(f, "the memory for the points of cpu {cpu} belongs to another CPU"),
            Self::HeapTwice => f.write_str("a heap is registered already, and there is only one"),
            Self::ProbesTwice => f.write_str("there is memory for probes already, or another profiler has this memory"),
            Self::HeapPlaces(count) => {
                write!(f, "{count} places for allocations: it must be a power of two of at least 64")
            }
        }
    }
}

/// Why memory cannot be used as a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMemory {
    /// The number of words is not a power of two.
    NotPowerOfTwo(usize),
    /// The memory has fewer than 1024 words.
    TooSmall(usize),
    /// The ring has memory already.
    Twice,
}

impl core::fmt::Display for BadMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotPowerOfTwo(words) => write!(f, "{words} words are not a power of two"),
            Self::TooSmall(words) => write!(f, "{words} words are fewer than {MIN_RING_WORDS}"),
            Self::Twice => f.write_str("there is memory already"),
        }
    }
}

/// Why a change of state was not carried out, or not completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// A CPU has not taken all ticks that were sent to it. If the change was a `stop`, sampling has stopped even so.
    Pending {
        /// The first such CPU.
        cpu: usize,
        /// How many ticks it has not taken; 0 if its handler is still running.
        ticks: u64,
    },
    /// The sampler CPU has not finished sending a tick. If the change was a `stop`, sampling has stopped even so.
    Sampler,
    /// Another reader or an export uses this stream and has not finished in time.
    StreamBusy(StreamName),
    /// Another change was in progress and has not finished in time.
    Busy,
    /// `init` was not called yet, or was refused. It sets the state and all settings, so a change before it would have
    /// no effect.
    NotReady,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { cpu, ticks } => write!(
                f,
                "cpu {cpu} has not taken {ticks} ticks within a second: does its NMI entry call on_nmi, is it offline?"
            ),
            Self::Sampler => f.write_str("the sampler CPU has not come back from sending a tick within a second"),
            Self::StreamBusy(stream) => write!(f, "somebody reads or exports {stream}: try again"),
            Self::Busy => f.write_str("another change of state is under way: try again"),
            Self::NotReady => f.write_str("the kernel has not set the profiler up yet, or could not"),
        }
    }
}

/// A write to ctl that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: CommandError,
}

/// Why a command is refused. Nothing has changed then, except if a `stop` or `freeze` was carried out and some ticks
/// stayed pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Not a command of this version.
    Unknown,
    /// A value is missing, is not of the right kind, or is out of its range.
    Value(&'static str),
    /// The command does not fit the present state.
    State(&'static str),
    /// Another control file holds the claim or the lease. (EBUSY)
    Claimed,
    /// The change could not be made in time.
    Change(StateError),
    /// The kernel was built without the feature `profiling`.
    Off,
}

impl From<BadCommand> for CommandError {
    fn from(bad: BadCommand) -> Self {
        match bad {
            BadCommand::Unknown => Self::Unknown,
            BadCommand::Value(expected) => Self::Value(expected),
        }
    }
}

impl From<StateError> for CommandError {
    fn from(error: StateError) -> Self {
        Self::Change(error)
    }
}

impl ControlError {
    /// Whether another reader holds the claim. A kernel with error numbers returns EBUSY in this case and EINVAL for
    /// all other refusals.
    pub fn is_busy(&self) -> bool {
        self.reason == CommandError::Claimed
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.reason {
            CommandError::Unknown => f.write_str("no such command"),
            CommandError::Value(expected) => write!(f, "expected {expected}"),
            CommandError::State(reason) => f.write_str(reason),
            CommandError::Claimed => f.write_str("another reader holds the claim or the lease"),
            CommandError::Change(error) => write!(f, "{error}"),
            CommandError::Off => f.write_str("this kernel was built without the feature `profiling`"),
        }
    }
}

/// Why a read returned nothing. No record is consumed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// There is no such CPU, or it has not registered.
    NoStream,
    /// The next record needs a buffer of this many bytes.
    TooSmall(usize),
    /// Another process has claimed the streams. (EBUSY)
    Claimed,
    /// Another reader or an export works on this stream and has not finished within a second. (EAGAIN)
    Busy,
    /// The function of [`StreamFile::read_to`](crate::StreamFile::read_to) has not taken the records. The next read
    /// gets them, if they stay until they are acknowledged. (EFAULT)
    NotTaken,
    /// Raw words cannot be read from a running flight recorder: freeze it, or use `protocol 1`.
    Recorder,
    /// There are no raw words of the meta stream and of event streams. Claim the streams with `protocol 1`.
    NotClaimed,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStream => f.write_str("no such cpu, or it has not registered"),
            Self::TooSmall(bytes) => write!(f, "the next record needs a buffer of {bytes} bytes"),
            Self::Claimed => f.write_str("another process has claimed the streams"),
            Self::Busy => f.write_str("somebody else reads or exports this stream"),
            Self::NotTaken => f.write_str("the records could not be copied to the reader"),
            Self::Recorder => f.write_str("the flight recorder is running: freeze it, or use protocol 1"),
            Self::NotClaimed => f.write_str("this stream has no raw words: claim the streams with `protocol 1`"),
        }
    }
}

/// Why an export ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// A process has claimed the streams (`protocol 1`), so that process gets the records, and the export does not.
    Claimed,
    /// Another reader or an export uses this stream and has not finished within a second.
    Busy(StreamName),
    /// The sink failed. Records that were not written completely are not freed.
    Sink,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claimed => f.write_str("a reader has claimed the streams, and gets the records"),
            Self::Busy(stream) => write!(f, "somebody else reads or exports {stream}"),
            Self::Sink => f.write_str("the sink failed"),
        }
    }
}

impl From<fmt::Error> for ExportError {
    fn from(fmt::Error: fmt::Error) -> Self {
        Self::Sink
    }
}
