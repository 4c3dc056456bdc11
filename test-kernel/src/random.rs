//! Random numbers for programs (AT_RANDOM, getrandom): splitmix64 (Steele, Lea, Flood 2014). The seed comes from RDRAND
//! and TSC, or from the command line if a run must be repeatable. Not for secrets.

use core::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(1);

/// Sets the state: from `seed`, or from the hardware.
pub fn init(seed: Option<u64>) {
    let from_hardware = || {
        let has_rdrand = raw_cpuid::CpuId::new().get_feature_info().is_some_and(|features| features.has_rdrand());
        let mut word = 0;
        if has_rdrand {
            // SAFETY: the CPU has the instruction. If it fails the word stays 0, and only the TSC is used.
            unsafe { core::arch::asm!("rdrand {}", inout(reg) word, options(nomem, nostack)) };
        }
        // SAFETY: this only reads a counter.
        word ^ unsafe { core::arch::x86_64::_rdtsc() }
    };
    STATE.store(seed.unwrap_or_else(from_hardware), Ordering::Relaxed);
}

/// The state of the generator; see [`repeat`].
#[cfg(feature = "profiling")]
pub fn state() -> u64 {
    STATE.load(Ordering::Relaxed)
}

/// Sets the generator back to this state, so that the same numbers come again.
#[cfg(feature = "profiling")]
pub fn repeat(state: u64) {
    STATE.store(state, Ordering::Relaxed);
}

/// The next number.
pub fn next() -> u64 {
    let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Sixteen random bytes.
pub fn bytes16() -> [u8; 16] {
    (next() as u128 | (next() as u128) << 64).to_le_bytes()
}
