//! When the next round is: how long a session waits, and when it is over.
//!
//! In: what the last rounds have brought, the kernel's state, the clock, signals. Out: a wait of the source, or a
//! pause. Runs in: user process. No wait goes beyond the end of the session, and a signal ends each.

use super::Session;
use crate::error::Error;
use crate::pace::Pace;
use crate::source::{Access, Source, Waited};
use crate::system::System;
use std::time::Duration;

/// The pause between two reads of a stopped kernel that cannot wake the reader.
const REST: Duration = Duration::from_millis(50);
/// A pause is made of sleeps of this length, because a signal does not end a sleep.
pub(super) const SLEEP: Duration = Duration::from_millis(5);

/// The times of a session.
pub(super) struct Times {
    pub began: Duration,
    pace: Pace,
    /// How much of its ring a CPU delivered in the last round, from 0 to 1: the largest value of all CPUs.
    pub fill: f64,
}

impl Times {
    /// A session that begins now.
    pub fn new(now: Duration) -> Self {
        Self { began: now, pace: Pace::default(), fill: 0.0 }
    }
}

impl<S: System, Src: Source<S>> Session<'_, S, Src> {
    /// Whether the session is to end now.
    pub(super) fn is_over(&mut self) -> bool {
        let elapsed = self.system.now().saturating_sub(self.times.began);
        let is_late = self.options.duration.is_some_and(|limit| elapsed >= limit);
        self.signals.stop_wanted() || is_late || self.totals.reached_max
    }

    /// Waits before the next round, at most this long.
    pub(super) fn wait(&mut self, longest: Duration, found_nothing: bool) -> Result<(), Error> {
        if self.source.access() == Access::Copies {
            return self.wait_for_copies(longest);
        }
        if self.ctl.overwrites() && self.ctl.is_running() {
            // A flight recorder's rings are normally full, so the fill level says nothing. There is nothing to do until
            // it is frozen.
            self.pause(longest);
            return Ok(());
        }
        let before = self.system.now();
        let limit = longest.min(self.time_left());
        let waited = self.source.wait(self.system, limit)?;
        // A kernel whose wait returns immediately without data must not turn this into a busy loop.
        let in_vain = found_nothing && self.system.now().saturating_sub(before) < Pace::SHORTEST;
        if !self.ctl.is_running() {
            // The next rate is unknown, so the pauses start short again.
            self.times.pace = Pace::default();
        }
        if waited == Waited::CannotWait || in_vain {
            let pause = if self.ctl.is_running() { self.times.pace.next(self.ctl.fill()) } else { REST };
            self.pause(pause.min(longest));
        }
        Ok(())
    }

    /// The kernel wakes a waiting process when the other reader should read, which says nothing of how many records
    /// wait to be copied. So the wait is as long as the last rounds needed for a quarter of a ring.
    fn wait_for_copies(&mut self, longest: Duration) -> Result<(), Error> {
        let limit = self.times.pace.next(self.times.fill).min(longest).min(self.time_left());
        let before = self.system.now();
        let waited = self.source.wait(self.system, limit)?;
        let passed = self.system.now().saturating_sub(before);
        if waited == Waited::CannotWait || passed < Pace::SHORTEST {
            self.pause(limit.saturating_sub(passed));
        }
        Ok(())
    }

    /// The time until the session ends by its duration.
    fn time_left(&mut self) -> Duration {
        let elapsed = self.system.now().saturating_sub(self.times.began);
        // A kernel takes whole milliseconds, and a wait of 0 would return at once.
        self.options.duration.map_or(Duration::MAX, |all| all.saturating_sub(elapsed).max(Pace::SHORTEST))
    }

    /// Sleeps, until a signal arrives or the session ends by its duration.
    fn pause(&mut self, time: Duration) {
        let mut left = time.min(self.time_left());
        while !left.is_zero() && !self.signals.any() {
            let sleep = if self.options.is_recording { left.min(SLEEP) } else { left };
            // If a signal interrupts the sleep, the flags are only checked earlier.
            let _ = self.system.sleep(sleep);
            left = left.saturating_sub(sleep);
        }
    }
}
