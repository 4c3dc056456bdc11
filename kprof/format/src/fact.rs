//! Facts: the keys of the `key value` lines of ctl, which are also the header of a file.
//!
//! In: a fact or its key. Out: the other of the two. Runs in: any.

use crate::table::table;

table! {
    /// A fact of the kernel or of the recording.
    pub enum Fact {
        /// 1 while the streams are claimed, else 0.
        Protocol = "protocol",
        /// The process that has claimed the streams; `-` if none has.
        Reader = "reader",
        /// `stopped`, `running` or `frozen`.
        State = "state",
        /// Id of the boot.
        Boot = "boot",
        /// TSC ticks per second.
        TscHz = "tsc-hz",
        /// What the kernel ran on, in the port's words, as `qemu-10.0.13`. The line is missing if the port is silent.
        Machine = "machine",
        /// The processor: `x86_64`, `aarch64`, `riscv64`.
        Arch = "arch",
        /// `tsc` or `instructions`.
        Clock = "clock",
        /// How exact the addresses of samples are: `instruction`, `block` (the address is that of the first instruction
        /// of a block of code), `-` if it is not known.
        Precision = "precision",
        /// By what the self cost is measured, if not by the clock: `cycles` (by the cycle counter of each CPU), or `-`
        /// (not at all: the clock is too coarse). The line is missing if it is measured by the clock.
        SelfCost = "self-cost",
        /// Number of CPUs.
        Cpus = "cpus",
        /// The sampler CPU; `-` if there is none.
        Sampler = "sampler",
        /// How a tick reaches a CPU.
        Trigger = "trigger",
        /// What a tick is caused by, if it is not time: an event that the processor counts, and after how many of them
        /// a tick comes: `dtlb-load-misses every 200`. The line is missing if ticks are caused by time.
        Event = "event",
        /// The rate that was asked for. The line is missing if ticks are caused by an event.
        Hz = "hz",
        /// The rate now, if `backoff` has lowered it.
        HzNow = "hz-now",
        /// The intervals between ticks: `random 25` or `fixed`.
        Interval = "interval",
        /// The seed of the random intervals.
        Seed = "seed",
        /// What is recorded besides kernel samples: `idle`, `user`, both, or `-`.
        Include = "include",
        /// `kernel` if kernel samples are not recorded: a profile of user code alone, sampled from outside.
        Exclude = "exclude",
        /// Whether the rate is lowered when sampling costs too much or ticks coalesce.
        Backoff = "backoff",
        /// The most frames of a sample.
        Depth = "depth",
        /// `drop` or `overwrite`.
        Mode = "mode",
        /// After how many milliseconds a lockup is reported. The line is missing if none is looked for.
        LockupMs = "lockup-ms",
        /// Build id of the kernel.
        BuildId = "build-id",
        /// The address where the kernel is loaded.
        Load = "load",
        /// The address range of the kernel's code.
        Text = "text",
        /// `NAME=ADDRESS`; this key may appear many times.
        Anchor = "anchor",
        /// Why the last write through this control file was refused. The line is missing if that write was not refused.
        Error = "error",
    }
}

impl Fact {
    /// The facts that appear once in the header of a file, in the order of the header. Anchors come after them.
    pub const HEADER: [Self; 22] = [
        Self::TscHz,
        Self::Boot,
        Self::Machine,
        Self::Arch,
        Self::Cpus,
        Self::Sampler,
        Self::Trigger,
        Self::Event,
        Self::Clock,
        Self::Precision,
        Self::SelfCost,
        Self::Hz,
        Self::Interval,
        Self::Seed,
        Self::Include,
        Self::Exclude,
        Self::Backoff,
        Self::Depth,
        Self::Mode,
        Self::BuildId,
        Self::Load,
        Self::Text,
    ];
}
