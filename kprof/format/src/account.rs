//! The account: every tick ends in exactly one place.
//!
//! ```text
//! sent     = taken + coalesced + pending
//! taken    = user + idle + kernel + lost-* + recorded
//! recorded = delivered + overwritten + in-ring
//! ```
//!
//! In: counters by name. Out: the identities that do not hold. Runs in: any. The counters are not corrected; sums do
//! not wrap.

use crate::counter::Counter::{self, *};
use core::fmt;

/// A counter that must be the sum of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The counter that is the sum.
    pub whole: Counter,
    /// The counters that it is the sum of, besides the losses.
    pub parts: &'static [Counter],
    /// Whether every loss is added too.
    pub has_losses: bool,
    /// The sum in words.
    pub words: &'static str,
}

/// The identity of the ticks that were sent.
pub const SENT: Identity = Identity {
    whole: Sent,
    parts: &[Taken, Coalesced, Pending],
    has_losses: false,
    words: "taken + coalesced + pending",
};

/// The identity of the ticks that were taken.
pub const TAKEN: Identity = Identity {
    whole: Taken,
    parts: &[User, Idle, Counter::Kernel, Recorded],
    has_losses: true,
    words: "user + idle + kernel + lost + recorded",
};

/// The identity of the ticks that became samples. It holds only for counters read at one moment, because what is in a
/// ring now was recorded earlier.
pub const RECORDED: Identity = Identity {
    whole: Recorded,
    parts: &[Delivered, Overwritten, InRing],
    has_losses: false,
    words: "delivered + overwritten + in-ring",
};

/// The identities that must hold between the counters of a CPU.
pub const IDENTITIES: [Identity; 3] = [SENT, TAKEN, RECORDED];

/// An identity that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The identity.
    pub identity: Identity,
    /// The value of the counter.
    pub is: u64,
    /// The sum of its parts.
    pub sum: u128,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity: Identity { whole, words, .. }, is, sum } = self;
        write!(f, "{whole} {is} is not {words} = {sum}")
    }
}

impl Identity {
    /// The fault, if the identity does not hold for these counters. A counter that is not among them counts as 0.
    ///
    /// ```
    /// use kprof_format::account::SENT;
    /// let counters = [("sent", 10), ("taken", 8), ("coalesced", 1)];
    /// let fault = SENT.fault(counters.into_iter()).unwrap();
    /// assert_eq!(fault.to_string(), "sent 10 is not taken + coalesced + pending = 9");
    /// ```
    pub fn fault<'a>(&self, counters: impl Iterator<Item = (&'a str, u64)>) -> Option<Fault> {
        let (mut is, mut sum) = (0, 0_u128);
        for (name, value) in counters {
            let counter = Counter::of(name);
            if counter == Some(self.whole) {
                is = value;
            } else if counter.is_some_and(|counter| self.parts.contains(&counter))
                || self.has_losses && Counter::names_a_loss(name)
            {
                sum += u128::from(value);
            }
        }
        (u128::from(is) != sum).then_some(Fault { identity: *self, is, sum })
    }
}

/// The sum of all losses.
pub fn lost<'a>(counters: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    let losses = counters.filter(|(name, _)| Counter::names_a_loss(name));
    losses.fold(0, |sum, (_, value)| sum.saturating_add(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BALANCED: [(&str, u64); 10] = [
        ("sent", 14),
        ("taken", 10),
        ("coalesced", 1),
        ("pending", 3),
        ("user", 2),
        ("idle", 1),
        ("lost-full", 2),
        ("recorded", 5),
        ("delivered", 4),
        ("in-ring", 1),
    ];

    #[test]
    fn a_balanced_account_has_no_fault_and_every_single_change_is_one() {
        assert!(IDENTITIES.iter().all(|identity| identity.fault(BALANCED.into_iter()).is_none()));
        for at in 0..BALANCED.len() {
            let mut changed = BALANCED;
            changed[at].1 = 77;
            assert!(IDENTITIES.iter().any(|identity| identity.fault(changed.into_iter()).is_some()), "{changed:?}");
        }
    }

    #[test]
    fn sums_beyond_64_bits_are_not_taken_for_balanced() {
        let counters = [("sent", 0), ("taken", u64::MAX), ("coalesced", 1)];
        assert_eq!(SENT.fault(counters.into_iter()).map(|fault| fault.sum), Some(1 << 64));
        assert_eq!(lost([("lost-full", u64::MAX), ("lost-torn", 1)].into_iter()), u64::MAX);
    }

    #[test]
    fn a_loss_that_only_a_newer_kernel_knows_counts() {
        let counters = [("taken", 9), ("recorded", 5), ("lost-elsewhere", 4)];
        assert_eq!(TAKEN.fault(counters.into_iter()), None);
        assert_eq!(lost(counters.into_iter()), 4);
    }
}
