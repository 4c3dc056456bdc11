//! How exact the address of a sample is.
//!
//! In: what the kernel, or the tool that samples it, knows of the machine. Out: the value of the fact `precision`. Runs
//! in: any.

/// Where the interrupt of a tick can be taken, and so which address a sample has. (Where this is not the interrupted
/// instruction, perf speaks of skid.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// It is not known.
    #[default]
    Unknown,
    /// At each instruction, as on real processors and in an emulator that counts instructions.
    Instruction,
    /// At the first instruction of a block of code only. An emulator that runs each CPU in a thread of its own is like
    /// this. Ticks are coalesced there when the host runs such a thread too rarely, so they do not count for the
    /// backoff.
    Block,
}

impl Precision {
    /// The value of the fact.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "-",
            Self::Instruction => "instruction",
            Self::Block => "block",
        }
    }
}
