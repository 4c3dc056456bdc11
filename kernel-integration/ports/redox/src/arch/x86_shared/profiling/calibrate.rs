//! Measures the frequencies of TSC and timer by sleeping.
//!
//! In: the HPET, otherwise the PIT. Out: both frequencies. Runs in: the sampler CPU, ordinary code,
//! once.

use core::arch::x86_64::_rdtsc;

use kprof::clock::{Calibration, CalibrationError, Moment, Reference};

use super::sampler_timer::{sleep_to_the_end, ROUGH_COUNT};
use crate::arch::device::hpet::MAIN_COUNTER_OFFSET;

/// The frequencies, as measured against the HPET, otherwise against the PIT.
pub fn calibrate() -> Result<Calibration, CalibrationError> {
    with_hpet().unwrap_or_else(with_pit)
}

fn with_hpet() -> Option<Result<Calibration, CalibrationError>> {
    let hpet = crate::acpi::ACPI_TABLE.hpet.read();
    let hpet = hpet.as_ref()?;
    // SAFETY: the kernel has mapped the registers of the HPET. The first one has the length of a
    // count in femtoseconds.
    let (facts, counter) = unsafe { (hpet.read_u64(0), || hpet.read_u64(MAIN_COUNTER_OFFSET)) };
    let hz = 1_000_000_000_000_000_u64.checked_div(facts >> 32)?;
    let bits = if facts & (1 << 13) != 0 { 64 } else { 32 };
    Some(measure_all(Reference { hz, bits }, &counter)).filter(Result::is_ok)
}

/// Channel 2, which can drive the speaker, counts down from 65535 without sound. The kernel uses
/// channel 0.
fn with_pit() -> Result<Calibration, CalibrationError> {
    // SAFETY: these are the PIT's ports.
    unsafe {
        x86::io::outb(0x61, (x86::io::inb(0x61) & !2) | 1);
        x86::io::outb(0x43, 0xb0);
        x86::io::outb(0x42, 0xff);
        x86::io::outb(0x42, 0xff);
    }
    let counted = || {
        // SAFETY: this latches the count and reads its two bytes.
        let count = unsafe {
            x86::io::outb(0x43, 0x80);
            u16::from_le_bytes([x86::io::inb(0x42), x86::io::inb(0x42)])
        };
        u64::from(!count)
    };
    measure_all(
        Reference {
            hz: 1_193_182,
            bits: 16,
        },
        &counted,
    )
}

/// A virtual CPU may be suspended at any moment. The median of five measurements has the right TSC
/// frequency. Of those that agree with it, the quickest one was not woken late.
fn measure_all(
    reference: Reference,
    read: &dyn Fn() -> u64,
) -> Result<Calibration, CalibrationError> {
    let rough = measure(ROUGH_COUNT, reference, read)?;
    let count = (rough.timer_hz / 50).min(u64::from(u32::MAX)) as u32;
    let mut rounds = [rough; 5];
    for round in &mut rounds {
        *round = measure(count, reference, read)?;
    }
    rounds.sort_unstable_by_key(|round| round.tsc_hz);
    let [_, _, middle, ..] = rounds;
    let agrees = |round: &Calibration| round.tsc_hz.abs_diff(middle.tsc_hz) <= middle.tsc_hz / 100;
    let quickest = rounds
        .into_iter()
        .filter(agrees)
        .max_by_key(|round| round.timer_hz);
    Ok(quickest.unwrap_or(middle))
}

fn measure(
    count: u32,
    reference: Reference,
    read: &dyn Fn() -> u64,
) -> Result<Calibration, CalibrationError> {
    let moment = || {
        let reference = read();
        // SAFETY: reads a counter.
        let tsc = unsafe { _rdtsc() };
        Moment { reference, tsc }
    };
    let before = moment();
    sleep_to_the_end(count);
    Calibration::of(before, moment(), reference, u64::from(count))
}
