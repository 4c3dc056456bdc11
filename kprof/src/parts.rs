//! Which parts of the profiler are compiled in: a constant for each cargo feature that a kernel can leave out.
//!
//! In: cargo features. Out: constants. Where a constant is `false`, the compiler removes the code of that part. `init`,
//! `export`, and the commands `freeze`, `thaw` and `mode overwrite` are then refused with a name in [`name`]. The
//! public items are the same in every combination.

/// The trigger `published`: cores publish where they are instead of being interrupted.
pub(crate) const PUBLISHED: bool = cfg!(feature = "published");
/// The flight recorder: mode overwrite, `freeze` and `thaw`.
pub(crate) const RECORDER: bool = cfg!(feature = "recorder");
/// The serial form, for kernels without user space and for panics.
pub const EXPORT: bool = cfg!(feature = "export");
/// The raw words of Redox's profiler, for readers that do not claim the streams.
pub(crate) const RAW_WORDS: bool = cfg!(feature = "raw-words");

/// The names of the cargo features, for errors.
pub(crate) mod name {
    pub(crate) const PUBLISHED: &str = "published";
    pub(crate) const RECORDER: &str = "recorder";
    pub(crate) const EXPORT: &str = "export";
}
