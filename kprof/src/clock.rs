//! Calibration: finds the frequencies of the TSC and of the CPU's timer, by reading a counter of known frequency (the
//! reference) at two moments.
//!
//! In: the counts of TSC and reference at both moments, and how far the timer has counted in between. Out: frequencies.
//! Pure; the kernel reads the counters. Runs in: boot CPU.
//!
//! A kernel reads TSC, reference and timer at the same two moments, some milliseconds apart (`kprof_port::calibrate`
//! does so). It may sleep or poll in between: it does not matter how late the second moment comes, also where the TSC
//! counts instructions (QEMU with `-icount`). The requested length of a sleep must not be used, because a sleep can end
//! late.

use core::fmt;

/// The counts of TSC and reference at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time stamp counter.
    pub tsc: u64,
    /// A counter of known frequency: HPET, ACPI PM timer, PIT.
    pub reference: u64,
}

/// The reference counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The frequency of the counter.
    pub hz: u64,
    /// The width of the counter in bits: 24 or 32 for the PM timer, 16 for the PIT, 32 or 64 for the HPET. The counter
    /// may wrap once between the two moments.
    pub bits: u32,
}

/// The frequencies that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// TSC ticks per second.
    pub tsc_hz: u64,
    /// Timer counts per second.
    pub timer_hz: u64,
}

/// Why no frequencies were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalibrationError {
    /// The reference advanced by less than 1000 counts (it stands still, or the time was too short).
    Reference(u64),
    /// The TSC did not advance, or went backwards.
    Tsc,
    /// The timer did not count.
    Timer,
}

impl fmt::Display for CalibrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference(counts) => {
                write!(f, "the reference moved by {counts} counts only: wait longer, or use another")
            }
            Self::Tsc => f.write_str("the TSC did not move"),
            Self::Timer => f.write_str("the timer did not count"),
        }
    }
}

/// The least advance of the reference, so that an error of one count is at most a thousandth.
const MIN_COUNTS: u64 = 1000;

impl Calibration {
    /// Computes the frequencies from two moments, between which the timer has counted `timer_count` counts.
    ///
    /// # Errors
    /// [`CalibrationError`] says which counter could not be used.
    pub fn of(before: Moment, after: Moment, reference: Reference, timer_count: u64) -> Result<Self, CalibrationError> {
        let mask = u64::MAX >> (64 - reference.bits.clamp(1, 64));
        let counts = after.reference.wrapping_sub(before.reference) & mask;
        if counts < MIN_COUNTS {
            return Err(CalibrationError::Reference(counts));
        }
        let tsc = after.tsc.checked_sub(before.tsc).filter(|ticks| *ticks > 0).ok_or(CalibrationError::Tsc)?;
        if timer_count == 0 {
            return Err(CalibrationError::Timer);
        }
        let per_second = |ticks| scale(ticks, reference.hz, counts);
        Ok(Self { tsc_hz: per_second(tsc), timer_hz: per_second(timer_count) })
    }
}

/// Converts TSC ticks to nanoseconds; 0 for a clock that is not calibrated.
pub fn ticks_to_ns(ticks: u64, tsc_hz: u64) -> u64 {
    if tsc_hz == 0 { 0 } else { scale(ticks, 1_000_000_000, tsc_hz) }
}

/// `value * by / over`, rounded to the nearest, without intermediate overflow.
fn scale(value: u64, by: u64, over: u64) -> u64 {
    let exact = (u128::from(value) * u128::from(by) + u128::from(over) / 2) / u128::from(over);
    u64::try_from(exact).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PM_TIMER: Reference = Reference { hz: 3_579_545, bits: 24 };

    #[test]
    fn a_tenth_of_a_second_gives_both_frequencies() {
        let before = Moment { tsc: 5_000, reference: 100 };
        let after = Moment { tsc: 5_000 + 220_000_000, reference: 100 + 357_954 };
        let found = Calibration::of(before, after, PM_TIMER, 100_000_000).unwrap();
        // The error is half a count of the reference in 357954, which is below 1 in 500000.
        assert!(found.tsc_hz.abs_diff(2_200_000_000) < 4_400, "{found:?}");
        assert!(found.timer_hz.abs_diff(1_000_000_000) < 2_000, "{found:?}");
    }

    #[test]
    fn a_reference_that_wraps_once_is_read_right() {
        let before = Moment { tsc: 0, reference: 0xff_ff00 };
        let after = Moment { tsc: 1_000_000, reference: 0x00_ff00 };
        let counts = 0x1_0000;
        let found = Calibration::of(before, after, PM_TIMER, 5).unwrap();
        assert_eq!(found.tsc_hz, (1_000_000_u64 * 3_579_545 + counts / 2) / counts);
    }

    #[test]
    fn counters_that_stand_still_are_named() {
        let moment = Moment { tsc: 7, reference: 7 };
        let later = Moment { tsc: 7, reference: 5007 };
        assert_eq!(Calibration::of(moment, moment, PM_TIMER, 1), Err(CalibrationError::Reference(0)));
        assert_eq!(Calibration::of(moment, later, PM_TIMER, 1), Err(CalibrationError::Tsc));
        assert_eq!(Calibration::of(moment, Moment { tsc: 9, ..later }, PM_TIMER, 0), Err(CalibrationError::Timer));
    }

    #[test]
    fn ticks_become_nanoseconds_without_overflow() {
        assert_eq!(ticks_to_ns(2_200, 2_200_000_000), 1_000);
        assert_eq!(ticks_to_ns(u64::MAX, 1), u64::MAX);
        assert_eq!(ticks_to_ns(5, 0), 0);
    }
}
