//! Measures the frequencies of the TSC and the APIC timer against a counter of known frequency.
//!
//! In: a reference ([`Hpet`] or [`Pit`]). Out: [`Calibration`]. Runs in: ordinary code, once, on a CPU whose timer is
//! not in use. It takes 50 ms and needs no interrupt. All three counters are read at the same two moments, so the
//! result does not depend on how much later the second moment comes. (The requested length of a sleep would be a wrong
//! reference: a sleep can end late, for example under QEMU's `-icount`.) The result is the median of five rounds,
//! because a virtual CPU may be descheduled between two reads.

use crate::apic::{LocalApic, Registers, register};
use core::arch::x86_64::_rdtsc;
use kprof::clock::{Calibration, CalibrationError, Moment, Reference};
use x86_64::instructions::port::Port;

const ROUNDS: usize = 5;
/// How many rounds of measurement would take one second: a round takes a second divided by this.
const ROUNDS_PER_SECOND: u64 = 100;
/// If the reference has not moved enough after this many TSC ticks (more than a second), it is taken to have stopped.
const MAX_TICKS: u64 = 1 << 33;
const DIVIDE_BY_ONE: u32 = 0b1011;
const MASKED: u32 = 1 << 16;

/// A counter of known frequency.
pub trait Counter {
    /// Its frequency and width.
    fn facts(&self) -> Reference;
    /// The present count of the counter, which goes up.
    fn read(&self) -> u64;
}

/// The three counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Counts {
    moment: Moment,
    /// The timer's count, which goes down.
    timer: u32,
}

/// Measures the frequencies of TSC and timer. The timer is masked and stopped afterwards.
///
/// # Errors
/// [`CalibrationError`]: the reference, the TSC or the timer does not count.
pub fn calibrate<R: Registers>(apic: &LocalApic<R>, reference: &impl Counter) -> Result<Calibration, CalibrationError> {
    apic.write(register::DIVIDE, DIVIDE_BY_ONE);
    apic.write(register::TIMER, MASKED);
    let found = rounds(reference.facts(), |is_first| {
        if is_first {
            apic.write(register::INITIAL_COUNT, u32::MAX);
        } else {
            pause();
        }
        // SAFETY: reads a counter.
        let tsc = unsafe { _rdtsc() };
        let moment = Moment { tsc, reference: reference.read() };
        Counts { moment, timer: apic.read(register::CURRENT_COUNT) }
    });
    apic.write(register::INITIAL_COUNT, 0);
    found
}

/// Runs some instructions between two reads, because reading a device is expensive in a virtual machine. (`pause` is
/// not used: under `-icount` it ends this CPU's turn.)
fn pause() {
    for turn in 0..1000 {
        core::hint::black_box(turn);
    }
}

/// The median of some rounds, for each clock. The argument of `read` says whether a round begins.
fn rounds(reference: Reference, mut read: impl FnMut(bool) -> Counts) -> Result<Calibration, CalibrationError> {
    let mut found = [Calibration { tsc_hz: 0, timer_hz: 0 }; ROUNDS];
    for round in &mut found {
        let before = read(true);
        *round = loop {
            let after = read(false);
            let timer = before.timer.saturating_sub(after.timer);
            let mask = u64::MAX >> (64 - reference.bits.clamp(1, 64));
            let counts = after.moment.reference.wrapping_sub(before.moment.reference) & mask;
            let is_over = counts >= reference.hz / ROUNDS_PER_SECOND;
            if is_over || after.moment.tsc.wrapping_sub(before.moment.tsc) > MAX_TICKS {
                break Calibration::of(before.moment, after.moment, reference, timer.into())?;
            }
        };
    }
    let mut middle = |of: fn(&Calibration) -> u64| {
        found.sort_unstable_by_key(of);
        of(&found[ROUNDS / 2])
    };
    Ok(Calibration { tsc_hz: middle(|round| round.tsc_hz), timer_hz: middle(|round| round.timer_hz) })
}

/// The HPET, whose registers are mapped.
#[derive(Clone, Copy, Debug)]
pub struct Hpet {
    base: usize,
}

impl Hpet {
    /// The HPET at `base`; starts its counter.
    ///
    /// # Safety
    /// An HPET's registers (at 0xfed00000 on every PC; ACPI's table `HPET` says where) are mapped at `base`, uncached,
    /// writable, as long as this is used.
    pub unsafe fn new(base: usize) -> Self {
        let hpet = Self { base };
        // SAFETY: the caller's promise. Bit 0 of the register at 0x10 lets it count; the other bits stay.
        unsafe { hpet.register(0x10).write_volatile(hpet.register(0x10).read_volatile() | 1) };
        hpet
    }

    fn register(self, offset: usize) -> *mut u64 {
        (self.base + offset) as *mut u64
    }
}

impl Counter for Hpet {
    fn facts(&self) -> Reference {
        // SAFETY: what `new` was promised.
        hpet_facts(unsafe { self.register(0).read_volatile() })
    }

    fn read(&self) -> u64 {
        // SAFETY: as above; the counter.
        unsafe { self.register(0xf0).read_volatile() }
    }
}

/// Frequency and width from the first register (IA-PC HPET specification 1.0a, 2.3.4), which has the length of a count
/// in femtoseconds, and whether the counter has 64 bits.
fn hpet_facts(capabilities: u64) -> Reference {
    let femtoseconds = (capabilities >> 32).max(1);
    let bits = if capabilities >> 13 & 1 == 1 { 64 } else { 32 };
    Reference { hz: 1_000_000_000_000_000 / femtoseconds, bits }
}

/// Channel 2 of the PIT, which drives the speaker, counting without a sound: for machines without an HPET. It wraps
/// after 55 ms, so the result is wrong if the CPU is descheduled for longer than that in each round. Use the HPET if
/// there is one.
#[derive(Clone, Copy, Debug)]
pub struct Pit(());

impl Pit {
    /// Starts the counter.
    ///
    /// # Safety
    /// The machine has a PIT at its usual ports, and no other code uses channel 2.
    pub unsafe fn new() -> Self {
        // SAFETY: the caller's promise. Gate on, speaker off; then binary, mode 0, from 65535.
        unsafe {
            let (mut gate, mut command, mut channel) =
                (Port::<u8>::new(0x61), Port::<u8>::new(0x43), Port::<u8>::new(0x42));
            let before = gate.read();
            gate.write(before & !2 | 1);
            command.write(0xb0);
            channel.write(0xff);
            channel.write(0xff);
        }
        Self(())
    }
}

impl Counter for Pit {
    fn facts(&self) -> Reference {
        Reference { hz: 1_193_182, bits: 16 }
    }

    fn read(&self) -> u64 {
        let mut channel = Port::<u8>::new(0x42);
        // SAFETY: what `new` was promised. Latches the count and reads its halves; it counts downwards.
        unsafe {
            Port::<u8>::new(0x43).write(0x80);
            u64::from(!u16::from_le_bytes([channel.read(), channel.read()]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: Reference = Reference { hz: 10_000_000, bits: 32 };

    /// A machine with a TSC of 2 GHz and a timer of 25 MHz; `steps` microseconds pass between two reads.
    fn machine(mut steps: impl FnMut() -> u64) -> impl FnMut(bool) -> Counts {
        let (mut now_us, mut started_us) = (u64::from(u32::MAX) / 10 - 30_000, 0);
        move |is_first| {
            now_us += steps();
            if is_first {
                started_us = now_us;
            }
            let moment = Moment { tsc: now_us * 2000, reference: (now_us * 10) & u64::from(u32::MAX) };
            Counts { moment, timer: u32::MAX - ((now_us - started_us) * 25) as u32 }
        }
    }

    #[test]
    fn both_clocks_are_right_however_late_the_cpu_gets_on_and_across_a_wrap() {
        for step in [3, 31_000] {
            let found = rounds(REFERENCE, machine(|| step)).unwrap();
            assert_eq!(found, Calibration { tsc_hz: 2_000_000_000, timer_hz: 25_000_000 }, "{step}");
        }
    }

    #[test]
    fn a_round_in_which_the_cpu_was_put_aside_between_two_reads_does_not_count() {
        let (mut read, mut looks) = (machine(|| 1000), 0);
        let found = rounds(REFERENCE, |is_first| {
            looks += 1;
            let mut counts = read(is_first);
            // The end of the first round: the reference is read 5 ms after the TSC.
            counts.moment.tsc -= if looks == 11 { 10_000_000 } else { 0 };
            counts
        });
        assert_eq!(found.unwrap().tsc_hz, 2_000_000_000);
    }

    #[test]
    fn what_stands_still_is_named() {
        let mut tsc = 0;
        let found = rounds(REFERENCE, |_| {
            tsc += 1 << 30;
            Counts { moment: Moment { tsc, reference: 5 }, timer: 9 }
        });
        assert_eq!(found, Err(CalibrationError::Reference(0)));
        let mut running = machine(|| 1000);
        let found = rounds(REFERENCE, |is_first| Counts { timer: 9, ..running(is_first) });
        assert_eq!(found, Err(CalibrationError::Timer));
    }

    #[test]
    fn an_hpet_says_how_long_its_counts_are() {
        // QEMU's HPET: 10 ns, 64 bits.
        assert_eq!(hpet_facts(0x0098_9680_8086_a201), Reference { hz: 100_000_000, bits: 64 });
        assert_eq!(hpet_facts(0x0429_b17e_8086_8701).bits, 32);
    }
}
