//! How long to pause between two rounds while the kernel is sampling and cannot wake the reader.
//!
//! In: how full the fullest ring was. Out: a pause. Runs in: user process, pure. The pause aims at reading a ring when
//! it is a quarter full: reads are then rare enough to be cheap, and early enough that a burst of samples at four times
//! the rate loses nothing.

use std::time::Duration;

/// Computes pauses from the fill level.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pause: Self::SHORTEST }
    }
}

impl Pace {
    /// The shortest pause.
    pub const SHORTEST: Duration = Duration::from_millis(1);
    /// The longest pause, and so the longest time until a new sample is read. A round has costs that do not depend on
    /// the number of samples, so rounds are rare.
    pub const LONGEST: Duration = Duration::from_secs(1);
    /// The target fill level.
    const AIM: f64 = 0.25;

    /// The next pause, after a round that found the fullest ring this full (0 to 1).
    pub fn next(&mut self, fill: f64) -> Duration {
        // The pause is at most doubled, so that one quiet round does not make the next one late. When the ring gets
        // full it is shortened immediately.
        let factor = (Self::AIM / fill.max(0.01)).clamp(0.1, 2.0);
        self.pause = self.pause.mul_f64(factor).clamp(Self::SHORTEST, Self::LONGEST);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_settles_where_a_steady_rate_fills_a_quarter() {
        for ring_seconds in [0.05, 0.3, 0.9, 100.0] {
            let mut pace = Pace::default();
            let mut pause = pace.next(0.0);
            for _ in 0..50 {
                pause = pace.next((pause.as_secs_f64() / ring_seconds).min(1.0));
            }
            let fill = pause.as_secs_f64() / ring_seconds;
            assert!((0.2..0.3).contains(&fill) || pause == Pace::LONGEST, "{ring_seconds} s ring: fill {fill}");
        }
    }

    #[test]
    fn a_full_ring_cuts_the_pause_at_once() {
        let mut pace = Pace { pause: Pace::LONGEST };
        assert!(pace.next(1.0) <= Pace::LONGEST / 4);
    }
}
