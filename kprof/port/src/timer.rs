//! The local APIC's timer: lets the sampler sleep, and starts the next tick of a CPU that samples itself.
//!
//! In: nanoseconds. Out: `hlt` until the timer's interrupt or any other interrupt. Runs in: ordinary code on the CPU
//! whose timer it is ([`Timer::start_ns`]: also in its interrupt). The timer has its own vector, so a kernel whose CPUs
//! share one table keeps the gate of its own timer. The stub at that vector acknowledges
//! ([`LocalApic::end_of_interrupt`]) and does nothing else.
//!
//! **Where QEMU counts instructions** (`-icount`) all CPUs run in turn on one thread. A CPU's turn ends when the next
//! timer of the machine is due, no matter of which CPU. An interrupt does not end the turn of another CPU. So after a
//! one-shot timer has fired, the running CPU continues until some other timer is due: 14 to 51 ticks per second were
//! measured instead of the requested 1000. So under `-icount` the timer is periodic, and a sleep is only a slice of the
//! requested time: the timer that has woken the sampler is due again soon, and ends the turn of the running CPU. On all
//! other machines a sleep is one interrupt of a one-shot timer.
//!
//! **With `-icount` the sampler must be CPU 0.** Up to version 8.0, QEMU lets a CPU run until the timer is due. No
//! time is then left for the next CPU. Only the first CPU of a round gets time of its own, so a busy CPU 0 starves all
//! others (every emulation before QEMU's commit "ensure fairness with icount" of May 2023 does this).
//! `Profiler::check` says how long a sleep takes.

use crate::apic::{Hardware, LocalApic, Registers, register};
use crate::command::FIRST_VECTOR;
use kprof::Clock;
use x86_64::instructions::interrupts;

/// The value of the divide register with which the timer counts at its full clock.
const DIVIDE_BY_ONE: u32 = 0b1011;
const PERIODIC: u32 = 1 << 17;
/// If instructions are counted, a sleep consists of at least this many slices.
const SLICES: u64 = 8;
/// No slice is shorter than this, even if less time is left. Each interrupt takes the sampler some 500 instructions,
/// and a periodic timer that is faster than its handler would keep the CPU in the handler for ever.
const SHORTEST_SLICE_NS: u64 = 2_500;
/// No slice is longer than this, so no turn of another CPU is longer either.
const LONGEST_SLICE_NS: u64 = 100_000;

/// How a CPU sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// One interrupt at the end: on all machines that do not count instructions.
    Whole,
    /// Several interrupts of a periodic timer: if instructions are counted ([`crate::counted::clock`]).
    Sliced,
}

impl From<Clock> for Sleep {
    fn from(clock: Clock) -> Self {
        if clock == Clock::Instructions { Self::Sliced } else { Self::Whole }
    }
}

/// The timer of the current CPU.
#[derive(Clone, Copy, Debug)]
pub struct Timer<R = Hardware> {
    apic: LocalApic<R>,
    hz: u64,
    sleep: Sleep,
}

impl<R: Registers> Timer<R> {
    /// Takes this CPU's timer. It counts `hz` per second ([`crate::calibrate`]), and its interrupts have `vector`. It
    /// is stopped until the first call of `start_ns` or `sleep_ns`.
    ///
    /// # Panics
    /// If `vector` is that of an exception (below 32).
    pub fn take(apic: LocalApic<R>, vector: u8, hz: u64, sleep: Sleep) -> Self {
        assert!(vector >= FIRST_VECTOR, "{vector} is the vector of an exception");
        let mode = if sleep == Sleep::Sliced { PERIODIC } else { 0 };
        apic.write(register::INITIAL_COUNT, 0);
        apic.write(register::DIVIDE, DIVIDE_BY_ONE);
        apic.write(register::TIMER, mode | u32::from(vector));
        Self { apic, hz, sleep }
    }

    /// Starts the timer so that its interrupt comes in `ns`. For a CPU that samples itself, `ns` is
    /// `TimerTick::next_ns`, which `Profiler::on_timer` returns.
    pub fn start_ns(&self, ns: u64) {
        self.apic.write(register::INITIAL_COUNT, count(ns, self.hz));
    }

    /// Sleeps for `ns`, or until any interrupt. If instructions are counted, it sleeps only for a slice of `ns`; the
    /// sampler then calls it again. Interrupts are enabled during the sleep and afterwards are as they were before.
    pub fn sleep_ns(&self, ns: u64) {
        let ns = if self.sleep == Sleep::Sliced { slice_ns(ns) } else { ns };
        let were_on = interrupts::are_enabled();
        // Interrupts are disabled, so that the timer's interrupt cannot come before the `hlt`, which would then wait
        // for another one.
        interrupts::disable();
        self.start_ns(ns);
        interrupts::enable_and_hlt();
        if !were_on {
            interrupts::disable();
        }
    }
}

/// Nanoseconds as a count of a timer: at least 1, because 0 stops it, and at most the largest value of the register.
pub fn count(ns: u64, hz: u64) -> u32 {
    let count = u128::from(ns) * u128::from(hz) / 1_000_000_000;
    count.clamp(1, u32::MAX.into()) as u32
}

/// The part of a sleep after which the sampler checks the time again.
pub fn slice_ns(left_ns: u64) -> u64 {
    (left_ns / SLICES).clamp(SHORTEST_SLICE_NS, LONGEST_SLICE_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Access::Write, Recorded};

    #[test]
    fn a_timer_is_stopped_before_its_mode_changes_and_counts_undivided() {
        let registers = Recorded::xapic();
        Timer::take(LocalApic::with(&registers), 0xe0, 1_000_000_000, Sleep::Whole);
        assert_eq!(registers.taken(), [Write(0x380, 0), Write(0x3e0, 0b1011), Write(0x320, 0xe0)]);
    }

    #[test]
    fn where_instructions_are_counted_it_is_periodic() {
        let registers = Recorded::xapic();
        Timer::take(LocalApic::with(&registers), 0xe0, 1_000_000_000, Sleep::Sliced).start_ns(7);
        assert_eq!(registers.taken()[2..], [Write(0x320, 0x2_00e0), Write(0x380, 7)]);
    }

    #[test]
    fn only_counted_instructions_are_slept_through_in_slices() {
        assert_eq!([Clock::Instructions, Clock::Tsc].map(Sleep::from), [Sleep::Sliced, Sleep::Whole]);
    }

    #[test]
    fn a_count_is_never_0_and_never_more_than_the_register_holds() {
        assert_eq!(count(1_000_000, 62_500_000), 62_500);
        assert_eq!([count(0, 1_000_000_000), count(1, 1000)], [1, 1]);
        assert_eq!(count(u64::MAX, u64::MAX), u32::MAX);
    }

    #[test]
    fn a_slice_is_a_part_of_the_sleep_but_never_shorter_than_the_timers_handler() {
        assert_eq!(slice_ns(400_000), 50_000);
        assert_eq!(slice_ns(20_000_000), LONGEST_SLICE_NS);
        assert_eq!([slice_ns(16_000), slice_ns(1), slice_ns(0)], [SHORTEST_SLICE_NS; 3]);
    }
}
