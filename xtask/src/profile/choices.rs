//! The choices for a run, and their names on the test kernel's command line.

use super::bare::{ON_AARCH64, ON_RISCV64, Processor};

/// How a tick reaches a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trigger {
    /// NMI: sees everything; shares per function
    Nmi,
    /// A fixed interrupt: time with interrupts off appears where they are turned on
    Ipi,
    /// Each core publishes where it is, and none is interrupted; shares per entry, not per function
    Published,
    /// Each core's own timer, without a sampler core; code with interrupts off is not seen
    #[value(name = "timer")]
    Timer,
}

/// The processor of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    /// The test kernel, with its workloads
    #[value(name = "x86_64")]
    X86,
    /// The bare kernel for aarch64
    #[value(name = "aarch64")]
    Aarch64,
    /// The bare kernel for riscv64
    #[value(name = "riscv64")]
    Riscv64,
}

impl Arch {
    /// The bare kernel's processor, if that kernel runs.
    pub fn bare(self) -> Option<Processor> {
        match self {
            Self::X86 => None,
            Self::Aarch64 => Some(ON_AARCH64),
            Self::Riscv64 => Some(ON_RISCV64),
        }
    }
}

/// The interval between ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Intervals {
    /// Random, up to a quarter more or less than the period.
    Random,
    /// Always the period.
    Fixed,
}

/// Samples that are recorded only with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Include {
    /// Samples of idle CPUs.
    Idle,
    /// Samples of user code.
    User,
}

impl Include {
    /// Its name on the kernel's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::User => "user",
        }
    }
}

impl Trigger {
    /// Its name on the kernel's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nmi => "nmi",
            Self::Ipi => "ipi",
            Self::Published => "published",
            Self::Timer => "timer",
        }
    }
}
