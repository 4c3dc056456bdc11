//! The owner of a stream: one word per stream, taken by all code that moves one of its positions.
//!
//! In: a claim (the control file that may read the stream, or none) and an activity (what is being done with it). Out:
//! the right to move positions until the word is left. Runs in: ordinary code, and under the lock of the meta stream.
//! One compare-and-swap checks the claim and takes the stream, so nothing can change between the check and the work.
//!
//! ```text
//!   bit 63 ...                  3 │ 2  1  0
//!   claim: a control file's id,   │ activity: 0 no owner at work
//!   0: not claimed                │
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

/// What is being done with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
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

const ACTIVITY_BITS: u32 = 3;
const ACTIVITY_MASK: u64 = (1 << ACTIVITY_BITS) - 1;

/// The id of the control file that has claimed the streams; 0 if none has.
pub(crate) type ClaimId = u64;

/// No id is greater than this.
pub(crate) const MAX_CLAIM: ClaimId = u64::MAX >> ACTIVITY_BITS;

/// Why a stream could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Another control file has the claim.
    Claimed,
    /// Another owner is at work.
    Busy(Activity),
}

/// The owner word of one stream.
#[derive(Debug)]
pub(crate) struct OwnerWord(AtomicU64);

impl OwnerWord {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The control file that has claimed the stream.
    pub(crate) fn claim(&self) -> ClaimId {
        self.0.load(Ordering::Acquire) >> ACTIVITY_BITS
    }

    /// Takes the stream if `claim` is its claim and no owner is at work.
    pub(crate) fn take(&self, claim: ClaimId, activity: Activity) -> Result<(), Conflict> {
        let free = claim << ACTIVITY_BITS;
        // Acquire: sees what the last owner has stored.
        match self.0.compare_exchange(free, free | activity as u64, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(word) if word >> ACTIVITY_BITS != claim => Err(Conflict::Claimed),
            Err(word) => Err(Conflict::Busy(activity_of(word))),
        }
    }

    /// Takes the stream if no owner is at work, whoever has claimed it.
    pub(crate) fn take_any(&self, activity: Activity) -> Result<(), Conflict> {
        let word = self.0.load(Ordering::Relaxed);
        if word & ACTIVITY_MASK != 0 {
            return Err(Conflict::Busy(activity_of(word)));
        }
        // If the claim changes at this moment, a transition owns the stream.
        self.take(word >> ACTIVITY_BITS, activity).map_err(|_| Conflict::Busy(Activity::Transition))
    }

    /// Whether the stream is taken for `activity`.
    pub(crate) fn is_taken_for(&self, activity: Activity) -> bool {
        self.0.load(Ordering::Relaxed) & ACTIVITY_MASK == activity as u64
    }

    /// Ends the owner's work. Only the owner may.
    pub(crate) fn leave(&self) {
        // Release: the next owner sees what this one has stored. The claim may have been dropped meanwhile.
        self.0.fetch_and(!ACTIVITY_MASK, Ordering::Release);
    }

    /// Changes the claim. Only the owner for [`Activity::Transition`] may.
    pub(crate) fn set_claim(&self, claim: ClaimId) {
        self.0.store(claim << ACTIVITY_BITS | Activity::Transition as u64, Ordering::Release);
    }

    /// Ends the claim `claim`, if it is still in force. An owner that is at work finishes first; the next one can take
    /// the stream after that.
    pub(crate) fn drop_claim(&self, claim: ClaimId) {
        let mut word = self.0.load(Ordering::Relaxed);
        while word >> ACTIVITY_BITS == claim {
            let without = word & ACTIVITY_MASK;
            match self.0.compare_exchange_weak(word, without, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

fn activity_of(word: u64) -> Activity {
    match word & ACTIVITY_MASK {
        1 => Activity::Read,
        2 => Activity::Export,
        3 => Activity::Acknowledge,
        5 => Activity::Replace,
        _ => Activity::Transition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time_and_only_with_the_right_claim() {
        let word = OwnerWord::new();
        assert_eq!(word.take(7, Activity::Read), Err(Conflict::Claimed));
        assert_eq!(word.take(0, Activity::Read), Ok(()));
        assert_eq!(word.take(0, Activity::Export), Err(Conflict::Busy(Activity::Read)));
        assert_eq!(word.take_any(Activity::Transition), Err(Conflict::Busy(Activity::Read)));
        word.leave();
        assert_eq!(word.take_any(Activity::Transition), Ok(()));
        word.set_claim(7);
        word.leave();
        assert_eq!(word.claim(), 7);
        assert_eq!(word.take(0, Activity::Read), Err(Conflict::Claimed));
        assert_eq!(word.take(7, Activity::Acknowledge), Ok(()));
        assert!(word.is_taken_for(Activity::Acknowledge) && !word.is_taken_for(Activity::Read));
    }

    #[test]
    fn who_comes_too_late_learns_what_is_being_done() {
        use Activity::{Acknowledge, Export, Read, Replace, Transition};
        let word = OwnerWord::new();
        for activity in [Read, Export, Acknowledge, Transition, Replace] {
            word.take_any(activity).unwrap();
            assert_eq!(word.take(0, Read), Err(Conflict::Busy(activity)));
            word.leave();
        }
    }

    #[test]
    fn a_claim_that_ends_during_a_read_leaves_the_stream_owned_until_the_read_has_ended() {
        let word = OwnerWord::new();
        word.take_any(Activity::Transition).unwrap();
        word.set_claim(7);
        word.leave();
        word.take(7, Activity::Read).unwrap();
        word.drop_claim(8);
        assert_eq!(word.claim(), 7);
        word.drop_claim(7);
        assert_eq!(word.claim(), 0);
        assert_eq!(word.take_any(Activity::Transition), Err(Conflict::Busy(Activity::Read)));
        word.leave();
        assert_eq!(word.take(0, Activity::Read), Ok(()));
    }
}
