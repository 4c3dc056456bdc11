//! What every comparison is based on: the rate, the counted instructions, and the bound of a row.
//!
//! In: the number of rows. Out: z of their bounds.

use std::collections::BTreeMap;

/// The probability that any row is called wrong although all shares are right.
const CHANCE: f64 = 0.001;
/// Samples per second and CPU. The intervals vary by two rounds of the mix, so that no sample depends on the one
/// before.
pub const HZ: u64 = 20_000;

/// The instructions of the pieces of one mix, by name.
pub type Counted = BTreeMap<String, u64>;

/// The bound in standard deviations at which `rows` rows hold together.
pub fn z(rows: usize) -> f64 {
    (2.0 * (2.0 * rows as f64 / CHANCE).ln()).sqrt()
}
