//! The cycle counter, by which the self cost is measured where the clock is too coarse for this. The time stamp
//! counter never is, so here there is none. In: nothing. Out: nothing. Runs in: any, NMI included.

/// Whether this processor has a cycle counter besides its clock.
pub(crate) const EXISTS: bool = false;

/// Whether the counter can be read on this CPU, and counts cycles.
pub(crate) fn is_counting() -> bool {
    EXISTS
}

/// The count of now.
#[inline(always)]
pub(crate) fn read() -> u64 {
    0
}
