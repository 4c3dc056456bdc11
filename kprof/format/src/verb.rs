//! The first words of the commands of ctl, and the answer to a wrong command.
//!
//! In: a word. Out: the verb that it names. Runs in: any. What follows a verb is parsed by [`crate::command`], and that
//! of a setting by [`crate::settings`], which both use this file.

use crate::table::table;

table! {
    /// The first word of a command.
    pub enum Verb {
        /// Claims the streams, or gives the claim up.
        Protocol = "protocol",
        /// Begins or ends reading copies of the streams, beside the reader that has claimed them.
        Copy = "copy",
        /// Begins a lease: what this control file sets from here on is undone when the file is closed.
        Lease = "lease",
        /// Starts sampling.
        Start = "start",
        /// Stops sampling.
        Stop = "stop",
        /// Sets the rate.
        Hz = "hz",
        /// Chooses random or fixed intervals between ticks.
        Interval = "interval",
        /// Sets the seed of the random intervals.
        Seed = "seed",
        /// Adds to what is recorded besides kernel samples.
        Include = "include",
        /// Removes from what is recorded besides kernel samples.
        Exclude = "exclude",
        /// Sets whether the rate is lowered when sampling costs too much or ticks coalesce.
        Backoff = "backoff",
        /// Sets the most frames of a sample.
        Depth = "depth",
        /// Chooses the CPUs that are sampled.
        Cpus = "cpus",
        /// Chooses what happens when a ring is full.
        Mode = "mode",
        /// Sets after which time a CPU that is locked up is reported.
        Lockup = "lockup",
        /// Stops the flight recorder, which keeps its samples.
        Freeze = "freeze",
        /// Lets a frozen flight recorder continue.
        Thaw = "thaw",
        /// Writes a mark into the meta stream.
        Mark = "mark",
        /// Writes the counts of events by task into the meta stream now, instead of at the end of the second.
        Flush = "flush",
        /// Sets what becomes of the hits of points.
        Event = "event",
        /// Puts a probe on a function of the kernel.
        Probe = "probe",
        /// Removes probes.
        Unprobe = "unprobe",
        /// Acknowledges records that were read.
        Ack = "ack",
        /// Waits for records.
        Wait = "wait",
    }
}

/// Why a line is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCommand {
    /// Not a command of this version.
    Unknown,
    /// A value is missing, is not of the right kind, or is out of its range: what was expected.
    Value(&'static str),
}
