//! A histogram of times, whose ranges grow with the times. Stage: capture, and in the tool.
//!
//! In: a time in nanoseconds. Out: the number of its range. Up to 255 each time has a range of its own; from there on
//! there are 128 ranges of the same width from each power of two to the next, so a range is at most 1/128 (0.8 %) as
//! wide as the times in it.

/// Ranges between two powers of two.
const STEPS: u64 = 128;

/// The number of the range that a time is in.
pub fn range(time: u64) -> usize {
    // Times of up to 8 digits are not shortened.
    let shift = u64::from((2 * STEPS).leading_zeros() + 1).saturating_sub(u64::from(time.leading_zeros()));
    (STEPS * shift + (time >> shift)) as usize
}

/// The first time of a range.
pub fn first(range: usize) -> u64 {
    match range as u64 {
        range if range < 2 * STEPS => range,
        range => (range % STEPS + STEPS) << (range / STEPS - 1),
    }
}
