//! The layers of the settings: a base value of each, and on top the values that the holder of the lease has set. In
//! force is the top one.
//!
//! In: what a write sets, with or without the lease; the end of the lease. Out: the values in force. Runs in: ordinary
//! code, under the lock of changes. A write without the lease sets the base and removes the lease's value of the same
//! setting, because the last who spoke is heard. The end of a lease removes its layer, whatever others have set
//! meanwhile, and so touches nothing that they have set.
//!
//! The lists of CPUs are kept in the slots, with two layers; here is only whether the lease has set them. What an
//! extension keeps has its own two layers there.

use crate::format::settings::{Choices, Keys};
use crate::live::State;
use crate::stream::meta::ClaimId;

/// The settings of both layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layers {
    base: Values,
    lease: Option<Lease>,
}

/// A value of each setting that is kept here.
#[derive(Clone, Copy, Debug)]
struct Values {
    choices: Choices,
    state: State,
}

/// The layer of one control file's lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    holder: ClaimId,
    /// What it has set; `values` has no meaning for other settings.
    keys: Keys,
    values: Values,
}

impl Values {
    fn take_over(&mut self, from: &Self, keys: Keys) {
        self.choices.take_over(&from.choices, keys);
        if keys.contains(Keys::STATE) {
            self.state = from.state;
        }
    }
}

impl Layers {
    pub(crate) const fn new(choices: Choices, state: State) -> Self {
        Self { base: Values { choices, state }, lease: None }
    }

    /// The control file with the lease.
    pub(crate) fn holder(&self) -> Option<ClaimId> {
        self.lease.map(|lease| lease.holder)
    }

    /// Begins a lease, if there is none.
    pub(crate) fn begin_lease(&mut self, holder: ClaimId) {
        let (keys, values) = (Keys::empty(), self.base);
        self.lease.get_or_insert(Lease { holder, keys, values });
    }

    /// Ends the lease. Returns which settings it had set.
    pub(crate) fn end_lease(&mut self) -> Keys {
        self.lease.take().map_or(Keys::empty(), |lease| lease.keys)
    }

    /// Sets these settings to the values of `choices` and `state`.
    pub(crate) fn set(&mut self, by_lease: bool, keys: Keys, choices: &Choices, state: State) {
        let values = Values { choices: *choices, state };
        match &mut self.lease {
            Some(lease) if by_lease => {
                lease.keys |= keys;
                lease.values.take_over(&values, keys);
            }
            lease => {
                self.base.take_over(&values, keys);
                if let Some(lease) = lease {
                    lease.keys -= keys;
                }
            }
        }
    }

    /// The values in force.
    pub(crate) fn in_force(&self) -> (Choices, State) {
        let mut values = self.base;
        if let Some(lease) = &self.lease {
            values.take_over(&lease.values, lease.keys);
        }
        // What was frozen was a recorder that the lease had started.
        if values.state == State::Frozen && !values.choices.overwrites() {
            values.state = State::Stopped;
        }
        (values.choices, values.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const NONE: Choices = Config::new().choices();

    fn with_lease() -> Layers {
        let mut layers = Layers::new(NONE, State::Stopped);
        layers.begin_lease(7);
        layers
    }

    #[test]
    fn what_the_holder_has_set_goes_with_the_lease_and_what_others_have_set_stays() {
        let mut layers = with_lease();
        let set = Choices { hz: 5000, include_user: true, depth: 8, ..NONE };
        layers.set(true, Keys::HZ | Keys::USER | Keys::DEPTH | Keys::STATE, &set, State::Running);
        assert_eq!(layers.in_force(), (set, State::Running));
        // Meanwhile another file has changed the depth again, and the seed.
        let now = Choices { depth: 20, seed: 9, ..set };
        layers.set(false, Keys::DEPTH | Keys::SEED, &now, State::Running);
        assert_eq!(layers.in_force(), (now, State::Running));
        assert_eq!(layers.end_lease(), Keys::HZ | Keys::USER | Keys::STATE);
        assert_eq!(layers.in_force(), (Choices { depth: 20, seed: 9, ..NONE }, State::Stopped));
    }

    #[test]
    fn a_value_that_somebody_else_sets_stays_though_the_lease_has_set_the_same_one() {
        let mut layers = with_lease();
        let set = Choices { hz: 5000, ..NONE };
        layers.set(true, Keys::HZ | Keys::STATE, &set, State::Running);
        layers.set(false, Keys::HZ | Keys::STATE, &set, State::Running);
        layers.end_lease();
        assert_eq!(layers.in_force(), (set, State::Running));
    }

    #[test]
    fn sampling_that_ran_before_the_lease_goes_on_though_the_lease_has_stopped_it() {
        let mut layers = Layers::new(NONE, State::Running);
        layers.begin_lease(7);
        layers.set(true, Keys::STATE, &NONE, State::Stopped);
        assert_eq!(layers.in_force().1, State::Stopped);
        layers.end_lease();
        assert_eq!(layers.in_force().1, State::Running);
    }

    #[test]
    fn what_was_frozen_is_stopped_when_it_is_no_recorder_any_more() {
        let mut layers = with_lease();
        let recorder = Choices { mode: crate::config::Mode::Overwrite, ..NONE };
        layers.set(true, Keys::MODE | Keys::STATE, &recorder, State::Running);
        layers.set(false, Keys::STATE, &recorder, State::Frozen);
        assert_eq!(layers.in_force().1, State::Frozen);
        layers.end_lease();
        assert_eq!(layers.in_force(), (NONE, State::Stopped));
    }
}
