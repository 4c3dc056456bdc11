//! Facts: the keys of ctl's lines `key value`, which are also the header of a file.
//!
//! In: a fact or its key. Out: the other of the two. Runs in: any.

use crate::table::table;

table! {
    /// A fact of the kernel or of the recording.
    pub enum Fact {
        /// 1 while the streams are claimed, else 0.
        Protocol = "protocol",
        /// `stopped`, `running` or `frozen`.
        State = "state",
        /// Id of the boot.
        Boot = "boot",
        /// TSC ticks in a second.
        TscHz = "tsc-hz",
        /// `tsc` or `instructions`.
        Clock = "clock",
        /// What runs the kernel: `kvm`, `icount`, `tcg`; `-`: not known.
        Accel = "accel",
        /// Number of CPUs.
        Cpus = "cpus",
        /// The sampler CPU, `-` where there is none.
        Sampler = "sampler",
        /// How a CPU is made to take a sample.
        Trigger = "trigger",
        /// The rate asked for.
        Hz = "hz",
        /// The rate while `backoff` has lowered it.
        HzNow = "hz-now",
        /// Distances of the ticks: `random 25` or `fixed`.
        Interval = "interval",
        /// Of the random distances.
        Seed = "seed",
        /// What is recorded besides kernel samples: `idle`, `user`, both, or `-`.
        Include = "include",
        /// Whether the rate is lowered where ticks coalesce.
        Backoff = "backoff",
        /// Most callers of a sample.
        Depth = "depth",
        /// `drop` or `overwrite`.
        Mode = "mode",
        /// Build id of the kernel.
        BuildId = "build-id",
        /// Where the kernel is loaded.
        Load = "load",
        /// Its code.
        Text = "text",
        /// `NAME=ADDRESS`, many times.
        Anchor = "anchor",
        /// Why the last write through this file was refused; empty where none was.
        Error = "error",
    }
}

impl Fact {
    /// The facts that stand once in the header of a file, in its order. Anchors come after them.
    pub const HEADER: [Self; 17] = [
        Self::TscHz,
        Self::Boot,
        Self::Cpus,
        Self::Sampler,
        Self::Trigger,
        Self::Clock,
        Self::Accel,
        Self::Hz,
        Self::Interval,
        Self::Seed,
        Self::Include,
        Self::Backoff,
        Self::Depth,
        Self::Mode,
        Self::BuildId,
        Self::Load,
        Self::Text,
    ];
}
