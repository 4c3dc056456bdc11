//! Which parts of the profiler are compiled in: a constant for each cargo feature that a kernel can leave out.
//!
//! In: cargo features. Out: constants. Where a constant is `false`, the compiler removes the code of that part. `init`,
//! `export`, and the commands `event`, `flush`, `freeze`, `lockup`, `thaw` and `mode overwrite` are then refused with a
//! name in [`name`]. The public items are the same in every combination.

/// The trigger `published`: cores publish where they are instead of being interrupted.
pub(crate) const PUBLISHED: bool = cfg!(feature = "published");
/// Counts of context switches, page faults and interrupts, by task.
pub(crate) const EVENTS: bool = cfg!(feature = "events");
/// Reports of CPUs that are locked up.
pub(crate) const LOCKUP: bool = cfg!(feature = "lockup");
/// The counts of points.
pub(crate) const POINTS: bool = cfg!(feature = "points");
/// Dynamic probes; on x86_64 only.
pub(crate) const PROBES: bool = cfg!(all(feature = "probes", target_arch = "x86_64"));
/// Records of single hits of points, with their stacks.
pub(crate) const RECORDS: bool = cfg!(feature = "records");
/// The flight recorder: mode overwrite, `freeze` and `thaw`.
pub(crate) const RECORDER: bool = cfg!(feature = "recorder");
/// The serial form, for kernels without user space and for panics.
pub(crate) const EXPORT: bool = cfg!(feature = "export");
/// The raw words of Redox's profiler, for readers that do not claim the streams.
pub(crate) const RAW_WORDS: bool = cfg!(feature = "raw-words");

/// The names of the cargo features, for errors.
pub(crate) mod name {
    pub(crate) const PUBLISHED: &str = "published";
    pub(crate) const EVENTS: &str = "events";
    pub(crate) const LOCKUP: &str = "lockup";
    pub(crate) const POINTS: &str = "points";
    pub(crate) const PROBES: &str = "probes";
    pub(crate) const RECORDS: &str = "records";
    pub(crate) const RECORDER: &str = "recorder";
    pub(crate) const EXPORT: &str = "export";
}
