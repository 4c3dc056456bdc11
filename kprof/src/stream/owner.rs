//! The owner of a stream: the lock that all code takes before it moves one of the stream's positions.
//!
//! In: what the owner is about to do. Out: the right to move positions, until the lock is left. Runs in: ordinary code,
//! and under the lock of the meta stream. The lock says what is being done, because nobody waits for an export, which
//! may take minutes. Who may read the stream is decided by the claim (`Shared::claim`), not here.

use crate::patience::Patience;
use core::sync::atomic::{AtomicU8, Ordering};

/// What is being done with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    /// Records are copied to a reader's buffer; raw reads also free them.
    Read = 1,
    /// Records are written to a sink.
    Export = 2,
    /// A write to ctl checks or carries out `ack` lines.
    Acknowledge = 3,
    /// A change of state, mode or claim.
    Transition = 4,
    /// The producer of the meta stream replaces its oldest records.
    Replace = 5,
}

/// The lock of one stream: 0, or the [`Activity`] of its owner.
#[derive(Debug)]
pub(crate) struct Owner(AtomicU8);

impl Owner {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Takes the stream if it has no owner. Otherwise returns the activity of its owner, as a number.
    pub(crate) fn take(&self, activity: Activity) -> Result<(), u8> {
        // Acquire: sees what the last owner has stored.
        self.0.compare_exchange(0, activity as u8, Ordering::Acquire, Ordering::Relaxed).map(drop)
    }

    /// Takes the stream. Waits while another owner does short work. Returns whether it was taken.
    pub(crate) fn take_within(&self, activity: Activity, patience: &mut Patience) -> bool {
        loop {
            match self.take(activity) {
                Ok(()) => return true,
                Err(at_work) if at_work == Activity::Export as u8 || !patience.go_on() => return false,
                Err(_) => {}
            }
        }
    }

    /// Whether the owner has taken the stream for `activity`.
    pub(crate) fn is_taken_for(&self, activity: Activity) -> bool {
        self.0.load(Ordering::Relaxed) == activity as u8
    }

    /// Ends the owner's work. Only the owner may call this.
    pub(crate) fn leave(&self) {
        // Release: the next owner sees what this one has stored.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_owner_at_a_time_and_who_comes_too_late_learns_what_is_being_done() {
        use Activity::{Acknowledge, Export, Read, Replace, Transition};
        let owner = Owner::new();
        for activity in [Read, Export, Acknowledge, Transition, Replace] {
            assert_eq!(owner.take(activity), Ok(()));
            assert_eq!(owner.take(Read), Err(activity as u8));
            assert!(owner.is_taken_for(activity) && (activity == Read || !owner.is_taken_for(Read)));
            owner.leave();
        }
    }

    #[test]
    fn nobody_waits_for_an_export() {
        let (owner, mut long) = (Owner::new(), Patience::us(1 << 50, 0));
        owner.take(Activity::Export).unwrap();
        assert!(!owner.take_within(Activity::Read, &mut long));
        owner.leave();
        owner.take(Activity::Read).unwrap();
        assert!(!owner.take_within(Activity::Read, &mut Patience::us(1, 0)));
    }
}
