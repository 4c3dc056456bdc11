//! The feature `lockup`: the sampler CPU reports a CPU that is locked up, while it is. Here the other CPU spins with
//! interrupts off for a while. `kprof-fold lockups serial.log bare` shows where it was.

use core::hint::black_box;

use kprof_events::{Event, Lockup};
use x86_64::instructions::interrupts;

use super::EVENTS;
use crate::profiling::PROFILER;
use crate::{Log, machine, tell};

/// A kernel for real work takes seconds.
const LOCKUP_MS: u64 = 200;
/// The round in which the CPU is locked up.
const ROUND: u64 = 20;

/// Asks for reports.
pub fn begin() {
    tell(PROFILER.open_control(0).write(b"lockup 200").map(drop));
}

/// Says that a round has ended: without such progress, kernel code of one task is taken for a lockup after a while.
pub fn work(round: u64) {
    EVENTS.count(Event::ContextSwitch);
    if round == ROUND {
        interrupts::without_interrupts(spin);
    }
}

/// Much longer than what is reported.
#[inline(never)]
fn spin() {
    machine::wait_ns(black_box(3 * LOCKUP_MS * 1_000_000));
}

/// Runs on the sampler CPU, while the other one spins. The log needs no lock, so nobody is waited for.
pub fn report(lockup: &Lockup<'_>) {
    use core::fmt::Write as _;
    tell(writeln!(Log, "bare: {lockup}").and_then(|()| lockup.export(&mut Log)));
}
