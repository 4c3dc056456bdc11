//! Turns under counted instructions: how long QEMU lets one CPU run before the next one.
//!
//! With `-icount` QEMU runs all CPUs on one host thread, each until the next timer deadline of the machine, whoever's it
//! is. Without a deadline in between, a busy CPU runs for a whole time slice while the sampler waits for its turn: ticks
//! come late and merge. The old interval timer (8254), its interrupt masked, makes deadlines: several turns for each CPU
//! between two ticks, of a length that varies, so that turns never fall into step with the work.
//!
//! Only for that mode; on real hardware and with a thread per CPU nothing here is called.

use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::port::Port;

use super::count;
use crate::random;

const PIT_HZ: u64 = 1_193_182;
/// Turns of each CPU between two ticks: the tick is late by at most this part of the gap.
const TURNS_PER_TICK: u64 = 8;
const SHORTEST_TURN_NS: u64 = 5_000;

static COUNTED: AtomicBool = AtomicBool::new(false);

/// Says that instructions are counted. Once, on the boot CPU.
pub fn init(counted: bool) {
    COUNTED.store(counted, Ordering::Relaxed);
}

/// Makes turns short enough for a tick in `gap_ns`. Called on the sampler's CPU before it sleeps.
pub fn shorten_for(gap_ns: u64) {
    if !COUNTED.load(Ordering::Relaxed) {
        return;
    }
    let middle_ns = gap_ns / (TURNS_PER_TICK * count() as u64);
    // Uniform within ±25 %, as the gaps are.
    let turn_ns = (middle_ns * (768 + random::next() % 513) / 1024).max(SHORTEST_TURN_NS);
    let divisor = (turn_ns * PIT_HZ / 1_000_000_000).clamp(2, 0xffff) as u16;
    // SAFETY: the interval timer's ports (Intel 8254 data sheet); channel 0 in mode 2, its interrupt is masked.
    unsafe {
        Port::<u8>::new(0x43).write(0x34);
        Port::<u8>::new(0x40).write(divisor as u8);
        Port::<u8>::new(0x40).write((divisor >> 8) as u8);
    }
}
