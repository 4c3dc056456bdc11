//! What a profile is of: the header's facts. Stage: capture.
//!
//! In: the options of the command line, and what is known of the machine. Out: plain values.

use kprof_format::precision::Precision;

/// The code whose samples are recorded; ticks in other code are only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The kernel.
    Kernel,
    /// User programs.
    User,
    /// Both.
    All,
}

impl Code {
    /// Whether user programs are among it.
    pub fn has_user(self) -> bool {
        self != Self::Kernel
    }

    /// Whether the kernel is among it.
    pub fn has_kernel(self) -> bool {
        self != Self::User
    }
}

/// What the header says of the run.
#[derive(Clone, Debug)]
pub struct About {
    /// The guest's processor.
    pub arch: &'static str,
    /// Samples per second; `None` if samples are counted by instructions.
    pub hz: Option<u64>,
    /// Seed of the intervals.
    pub seed: u64,
    /// Where the guest can be sampled.
    pub precision: Precision,
    /// What is recorded.
    pub code: Code,
    /// A number that no other recording has.
    pub boot: u64,
}

impl About {
    /// The boot's number, as the profile has it.
    pub(super) fn boot_id(&self) -> String {
        format!("{:016x}", self.boot)
    }
}
