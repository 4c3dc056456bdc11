//! Turns under counted instructions: how long QEMU lets one CPU run before the next one.
//!
//! With `-icount` QEMU runs all CPUs on one host thread, each until the next timer deadline of the machine, whoever's it
//! is, and then begins again with the first CPU: the next one has its turn only after an interrupt, which makes QEMU go
//! round. So the sampler is the first CPU, and between two ticks its timer interrupts it several times for each CPU. It is
//! a periodic timer, which makes deadlines also while the sampler waits for its own turn, and its period varies, so that
//! turns never fall into step with the work.
//!
//! Only for that mode; on real hardware and with a thread per CPU nothing here is called.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{apic, clock, count};
use crate::random;

/// Turns of each CPU between two ticks: the tick is late by at most this part of the gap.
const TURNS_PER_TICK: u64 = 4;
const SHORTEST_TURN_NS: u64 = 2_300;
const LONGEST_TURN_NS: u64 = 200_000;

static COUNTED: AtomicBool = AtomicBool::new(false);
/// The gap between two ticks that is being slept through, and what was left of it at the last sleep.
static GAP_NS: AtomicU64 = AtomicU64::new(0);
static LEFT_NS: AtomicU64 = AtomicU64::new(0);

/// Says whether instructions are counted. Once, on the boot CPU.
pub fn init(counted: bool) {
    COUNTED.store(counted, Ordering::Relaxed);
}

/// Sleeps on the sampler's CPU: until the end of the gap, or for a turn where instructions are counted.
pub fn sleep_ns(gap_ns: u64) {
    if !COUNTED.load(Ordering::Relaxed) {
        return clock::sleep_once_ns(gap_ns);
    }
    // More to sleep than was left the last time: a new gap. Its length says how long turns are, what is left does not.
    if gap_ns > LEFT_NS.swap(gap_ns, Ordering::Relaxed) {
        GAP_NS.store(gap_ns, Ordering::Relaxed);
    }
    let middle_ns = GAP_NS.load(Ordering::Relaxed) / (TURNS_PER_TICK * count() as u64);
    // Uniform within ±25 %, as the gaps are.
    let turn_ns = (middle_ns * (768 + random::next() % 513) / 1024).min(gap_ns);
    x86_64::instructions::interrupts::disable();
    apic::start_periodic(clock::timer_count(turn_ns.clamp(SHORTEST_TURN_NS, LONGEST_TURN_NS)));
    x86_64::instructions::interrupts::enable_and_hlt();
}
