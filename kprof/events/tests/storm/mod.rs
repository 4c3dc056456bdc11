//! What the storms have in common: how long they last, and random numbers that can be had again.

use std::fmt::Debug;
use std::str::FromStr;

/// How many hits a storm has, unless `KPROF_STORM_HITS` says something else: those of a second or two, for every run of
/// the tests.
const HITS: u64 = 5_000_000;

/// The number in a variable of the environment, or `otherwise`.
fn number<T: FromStr<Err: Debug>>(name: &str, otherwise: T) -> T {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error:?}")))
}

/// After how many hits a storm ends, and its seed, which it prints.
pub fn begin(name: &str) -> (u64, u64) {
    let (hits, seed) = (number("KPROF_STORM_HITS", HITS), number("KPROF_STORM_SEED", 1));
    println!("{name}: {hits} hits, KPROF_STORM_SEED={seed}");
    (hits, seed)
}

/// Random numbers (xorshift; Marsaglia 2003).
pub struct Random(u64);

impl Random {
    /// The numbers of one thread of a storm.
    pub fn new(seed: u64, thread: u64) -> Self {
        Self((seed << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
