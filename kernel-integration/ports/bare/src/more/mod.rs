//! Optional parts of the example, each with a cargo feature: `heap` profiles the allocator, `lockup` reports a CPU that
//! is locked up. Without them this file does nothing. In: the rounds of the work. Out: more in the same profile.

#[cfg(feature = "heap")]
mod heap;
#[cfg(feature = "lockup")]
pub mod stuck;

/// On the CPU that works and exports, after the profiler was set up.
pub fn begin(cpu: usize) {
    let _ = cpu;
    #[cfg(feature = "heap")]
    heap::begin(cpu);
    #[cfg(feature = "lockup")]
    stuck::begin();
}

/// In each round of the work.
pub fn work(round: u64) {
    let _ = round;
    #[cfg(feature = "heap")]
    heap::work();
    #[cfg(feature = "lockup")]
    stuck::work(round);
}
