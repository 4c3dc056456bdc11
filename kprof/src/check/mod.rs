//! The check at boot: tests whether this port is right, as far as this is possible before the first tick.
//!
//! In: the kernel's answers, its descriptor tables, a sleep. Out: `Ok`, or a message about the first thing that is
//! wrong. Runs in: ordinary code, on each CPU. Allocates nothing. Changes nothing, except that the sampler CPU sends a
//! tick where nothing else shows whether NMIs arrive. The steps are in `steps.rs`.

#[cfg(feature = "profiling")]
mod steps;
mod vectors;

#[cfg(feature = "profiling")]
pub(crate) use steps::check;

pub use vectors::Vectors;

use core::fmt;

/// What is wrong with a port, found by [`crate::Profiler::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// [`crate::Profiler::init`] has not been called, or was refused.
    NotReady,
    /// [`crate::Kernel::cpu`] returns a number for which there is no slot.
    Cpu(usize),
    /// The CPU of this number has not registered. (The check on the sampler CPU waits a second for all others.)
    NotRegistered(usize),
    /// There is no interrupt gate for vector 2.
    NoGate,
    /// The gate of vector 2 leads to an address outside of the kernel's text.
    GateOutsideText(u64),
    /// The gate of vector 2 names no interrupt stack.
    NoInterruptStack,
    /// This entry of the interrupt stack table is not set on this CPU, or is not a multiple of 16.
    EmptyInterruptStack {
        /// The entry, 1 to 7.
        ist: u8,
        /// The value of the entry; `None`: there is no task state segment.
        end: Option<u64>,
    },
    /// Another vector uses the NMI's interrupt stack too.
    SharedInterruptStack {
        /// The entry, 1 to 7.
        ist: u8,
        /// The other vector.
        vector: u8,
    },
    /// The NMI's interrupt stack, as [`crate::Kernel::stack_range`] declares it, is too small.
    SmallInterruptStack {
        /// The size of the stack.
        bytes: u64,
    },
    /// Entries of other vectors, of which neither [`crate::Kernel::is_entry_code`] nor
    /// [`crate::Kernel::compiled_entry`] knows.
    UnknownEntries {
        /// Stubs in assembly.
        stubs: Vectors,
        /// Functions that the compiler has made entries.
        compiled: Vectors,
    },
    /// [`crate::Kernel::stack_range`] returns `None` for this address, which is in the stack that the check runs on.
    NoStack(u64),
    /// [`crate::Kernel::stack_range`] returns an invalid range.
    BadStackRange {
        /// The address that was asked for.
        address: u64,
        /// The answer.
        start: u64,
        /// The answer.
        end: u64,
    },
    /// [`crate::Config::tsc_hz`] is not a plausible frequency of a TSC.
    Clock(u64),
    /// A sleep of 1 ms takes at least this long, in microseconds.
    SleepsLong(u64),
    /// Sleeps return at once, again and again.
    SleepsNot,
    /// The tick that was sent to the CPU of this number has not arrived.
    NoTick(usize),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("init was not called, or was refused"),
            Self::Cpu(cpu) => write!(f, "Kernel::cpu says {cpu}, for which there is no slot"),
            Self::NotRegistered(cpu) => {
                write!(f, "cpu {cpu} has not registered: call register there, after its IDT is loaded")
            }
            Self::NoGate => {
                f.write_str("there is no interrupt gate for vector 2: the first NMI would be a triple fault")
            }
            Self::GateOutsideText(address) => write!(
                f,
                "the gate of vector 2 leads to {address:x}, outside of the kernel's text: does the stub say its \
                 section?"
            ),
            Self::NoInterruptStack => f.write_str("the gate of vector 2 names no interrupt stack (IST)"),
            Self::EmptyInterruptStack { ist, end: None } => {
                write!(f, "the NMI's stack is IST {ist}, and this CPU has loaded no task state segment")
            }
            Self::EmptyInterruptStack { ist, end: Some(end) } => {
                write!(f, "the NMI's stack is IST {ist}, which is {end:x} on this CPU: not the end of a stack")
            }
            Self::SharedInterruptStack { ist, vector } => {
                write!(f, "the NMI's stack, IST {ist}, is that of vector {vector} too: one would overwrite the other")
            }
            Self::SmallInterruptStack { bytes } => {
                write!(f, "the NMI's stack has {bytes} bytes: give it {} or more", MIN_STACK_BYTES)
            }
            Self::UnknownEntries { stubs, compiled } => unknown_entries(*stubs, *compiled, f),
            Self::NoStack(address) => {
                write!(f, "stack_range says None for {address:x}, on the stack in use: every sample here has one frame")
            }
            Self::BadStackRange { address, start, end } => {
                write!(f, "stack_range says {start:x}-{end:x} for {address:x}: it must hold it, in multiples of 8")
            }
            Self::Clock(hz) => write!(f, "tsc_hz is {hz}, which no TSC has: calibrate it"),
            Self::SleepsLong(us) => write!(
                f,
                "sleep_ns takes {us} us for 1 ms: is the timer calibrated? Under QEMU -icount the sampler must be cpu 0"
            ),
            Self::SleepsNot => {
                f.write_str("sleep_ns comes back at once, again and again: does another interrupt wake it?")
            }
            Self::NoTick(cpu) => no_tick(*cpu, f),
        }
    }
}

/// What to do about entries that the kernel does not know.
fn unknown_entries(stubs: Vectors, compiled: Vectors, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("what these entries interrupt would vanish from the stacks:")?;
    if !stubs.is_empty() {
        write!(f, " stubs of vectors {stubs} (say yes in is_entry_code, and describe them);")?;
    }
    if !compiled.is_empty() {
        write!(f, " compiled handlers of vectors {compiled} (answer compiled_entry);")?;
    }
    f.write_str(" see docs/porting-processors.md")
}

/// What is missing for NMIs here, and what the other trigger does not see.
fn no_tick(cpu: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    #[cfg(feature = "profiling")]
    let why = crate::arch::tables::WHY_NO_NMI;
    #[cfg(not(feature = "profiling"))]
    let why = "does its entry call on_nmi?";
    write!(f, "the NMI sent to cpu {cpu} does not arrive: {why} ")?;
    f.write_str("Trigger::Ipi needs none of this, and has no samples of code that runs with interrupts masked")
}

/// The smallest stack on which an NMI can be handled.
pub(crate) const MIN_STACK_BYTES: u64 = 4096;
