//! The simulated system on which the tests run the unchanged daemon: a kernel, a disk and a clock; and a reader that
//! shares no code with the daemon.
//!
//! In: the conditions of a test (floods, short reads, a stop at call number n). Out: what the daemon did. Runs in: host
//! tests.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub mod devices;
pub mod disk;
pub mod kernel;
pub mod probes;
pub mod reader;
pub mod recording;
pub mod remote;
pub mod ring;
pub mod scenario;
pub mod system;

/// A small random generator (xorshift64*), so that every run can be repeated from its seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 33) % limit.max(1)
    }

    /// True with a probability of one in `times`; never for 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}
