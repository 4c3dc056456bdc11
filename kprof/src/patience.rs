//! A wait with a bound, for ordinary code that waits for another CPU.
//!
//! In: a bound in microseconds. Out: whether the caller may check its condition once more. Runs in: ordinary code, with
//! interrupts as the caller has them; never in an NMI. The bound holds on any clock. A TSC that stands still, runs
//! backwards or jumps (because the thread has moved to another CPU, or after a resume) neither ends the wait at once
//! nor makes it endless.

use crate::arch::timestamp;

/// Each read of the clock counts as at least this many TSC ticks, so that the wait ends even if the clock stands still.
const MIN_STEP_TICKS: u64 = 16;
/// Each read of the clock counts as at most one eighth of the bound, so that one jump of the clock does not end the
/// wait.
const MAX_STEP_PART: u64 = 8;

/// What is left of a bounded wait.
#[derive(Debug, Clone)]
pub struct Patience {
    left_ticks: u64,
    max_step_ticks: u64,
    last_tsc: u64,
}

impl Patience {
    /// A wait of about `us` microseconds on a clock of `tsc_hz`. It is longer if the thread is paused, because the time
    /// between two reads of the clock counts as at most an eighth of the bound. For a clock that is not calibrated, 1
    /// GHz is assumed.
    pub fn us(us: u64, tsc_hz: u64) -> Self {
        let hz = if tsc_hz == 0 { 1_000_000_000 } else { tsc_hz };
        let left_ticks = u64::try_from(u128::from(us) * u128::from(hz) / 1_000_000).unwrap_or(u64::MAX);
        Self { left_ticks, max_step_ticks: left_ticks / MAX_STEP_PART + 1, last_tsc: timestamp::read() }
    }

    /// Whether to check once more. Pauses the CPU for a moment.
    pub fn go_on(&mut self) -> bool {
        core::hint::spin_loop();
        self.spend(timestamp::read())
    }

    /// Takes a lock. `None` if it does not become free in this time.
    pub fn lock<'a, T>(&mut self, lock: &'a spin::Mutex<T>) -> Option<spin::MutexGuard<'a, T>> {
        loop {
            let guard = lock.try_lock();
            if guard.is_some() || !self.go_on() {
                return guard;
            }
        }
    }

    fn spend(&mut self, now: u64) -> bool {
        let passed = now.saturating_sub(self.last_tsc).min(self.max_step_ticks).max(MIN_STEP_TICKS);
        self.last_tsc = now;
        self.left_ticks = self.left_ticks.saturating_sub(passed);
        self.left_ticks > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(clock: impl Fn(u64) -> u64) -> u64 {
        let mut patience = Patience { left_ticks: 8000, max_step_ticks: 1001, last_tsc: clock(0) };
        (1..).find(|look| !patience.spend(clock(*look))).unwrap()
    }

    #[test]
    fn a_wait_ends_when_its_time_has_passed() {
        assert_eq!(looks(|look| 1_000_000 + 100 * look), 80);
    }

    #[test]
    fn a_clock_that_stands_still_or_runs_backwards_ends_the_wait_too() {
        assert_eq!(looks(|_| 5), 8000 / MIN_STEP_TICKS);
        assert_eq!(looks(|look| 1_000_000 - 100 * look), 8000 / MIN_STEP_TICKS);
    }

    #[test]
    fn one_jump_of_the_clock_does_not_end_the_wait() {
        assert_eq!(looks(|look| if look > 3 { u64::MAX / 2 + 100 * look } else { 100 * look }), 71);
    }

    #[test]
    fn a_lock_is_taken_once_it_is_free_and_not_waited_for_without_bound() {
        let lock = spin::Mutex::new(());
        let held = Patience::us(1, 0).lock(&lock);
        assert!(held.is_some() && Patience::us(1, 0).lock(&lock).is_none());
        drop(held);
        assert!(Patience::us(1, 0).lock(&lock).is_some());
    }
}
