//! Dynamic probes with the feature off: an empty type.
//!
//! In: nothing. Out: a zero-sized type, so that a static takes no memory. Runs in: nowhere.

/// Memory for dynamic probes; empty.
#[derive(Debug)]
pub struct ProbeMemory<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize>;

impl<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize> ProbeMemory<FUNCTIONS, PLACES, CALLS> {
    /// Nothing.
    #[allow(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        Self
    }
}
