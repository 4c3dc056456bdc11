//! What can be chosen for a run, and how the test kernel's command line calls it.

/// How a core is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trigger {
    /// NMI: sees everything; shares per function
    Nmi,
    /// A fixed interrupt: time with interrupts off appears where they are turned on
    Ipi,
    /// Each core says where it is and nobody is interrupted; shares per entry, not per function
    Published,
    /// Each core's own timer, no core is set apart; blind with interrupts off
    #[value(name = "timer")]
    Timer,
}

/// How far apart ticks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Intervals {
    /// A quarter more or less than the period.
    Random,
    /// The period.
    Fixed,
}

/// What is kept by option.
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
