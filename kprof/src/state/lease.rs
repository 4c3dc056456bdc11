//! A lease: the settings that were made and the sampling that was started through one control file are undone when that
//! file is closed, also when its process is killed.
//!
//! In: the choices before and after each write to the control file that holds the lease (the holder). Out: the choices
//! to restore. Runs in: ordinary code, under the writer's lock. A choice that was changed through another file since
//! then is not restored.

use super::choices::{Choices, Key};
use super::owner::ClaimId;
use super::settings::State;

/// One control file's lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) holder: ClaimId,
    before: Choices,
    /// The keys that the holder has set. `set` holds the values.
    keys: Key,
    set: Choices,
    /// The holder has started sampling.
    has_started: bool,
    /// The holder has closed its file.
    pub(crate) has_expired: bool,
}

impl Lease {
    pub(crate) fn new(holder: ClaimId, now: Choices) -> Self {
        Self { holder, before: now, keys: Key::empty(), set: now, has_started: false, has_expired: false }
    }

    /// Notes that the holder has set these keys to the values of `now`.
    pub(crate) fn note(&mut self, keys: Key, now: &Choices) {
        self.keys |= keys;
        self.set.take_over(now, keys);
    }

    /// Notes that the holder has changed the state.
    pub(crate) fn note_state(&mut self, before: State, after: State) {
        match (before, after) {
            (State::Stopped, State::Running) => self.has_started = true,
            (_, State::Stopped) => self.has_started = false,
            _ => {}
        }
    }

    /// Whether the holder has changed the list of CPUs.
    pub(crate) fn has_set_cpus(&self) -> bool {
        self.keys.contains(Key::CPUS)
    }

    /// Whether the holder has changed the state of a point.
    pub(crate) fn has_set_points(&self) -> bool {
        self.keys.contains(Key::POINTS)
    }

    /// The choices after the lease: a value that the holder has set, and that is still in force, goes back to the value
    /// before the lease.
    pub(crate) fn restored(&self, now: &Choices) -> Choices {
        let mut restored = *now;
        restored.take_over(&self.before, self.keys - now.differences(&self.set));
        restored
    }

    /// The state after the lease.
    pub(crate) fn restored_state(&self, now: State) -> State {
        if self.has_started && now == State::Running { State::Stopped } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn what_the_holder_has_set_is_put_back_and_what_others_have_set_stays() {
        let before = Choices::of(&Config::new());
        let mut lease = Lease::new(7, before);
        let set = Choices { hz: 5000, include_user: true, depth: 8, ..before };
        lease.note(Key::HZ | Key::USER | Key::DEPTH, &set);
        lease.note_state(State::Stopped, State::Running);
        // Meanwhile another file has changed the depth again, and the seed.
        let now = Choices { depth: 20, seed: 9, ..set };
        assert_eq!(lease.restored(&now), Choices { depth: 20, seed: 9, ..before });
        assert_eq!(lease.restored_state(State::Running), State::Stopped);
    }

    #[test]
    fn sampling_that_ran_before_the_lease_goes_on() {
        let mut lease = Lease::new(7, Choices::of(&Config::new()));
        lease.note_state(State::Running, State::Running);
        assert_eq!(lease.restored_state(State::Running), State::Running);
    }
}
