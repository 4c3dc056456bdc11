//! Maps from addresses. Stage: symbolize and everything after it.
//!
//! In: addresses, which are spread evenly enough for one multiplication. Out: a hash map that is faster than the
//! standard one, which protects from keys that an attacker chooses; here that would only make one map slow.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hash for addresses: one folded multiplication.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= crate::stacks::hash(bytes);
    }

    // The length of a slice.
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(value ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }
}

/// A map from addresses.
pub type ByAddress<V> = HashMap<u64, V, BuildHasherDefault<AddressHasher>>;
