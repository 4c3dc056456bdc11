//! The account: every tick ends in exactly one place.
//!
//! ```text
//! sent     = taken + coalesced + pending
//! taken    = user + idle + kernel + lost-* + recorded
//! recorded = delivered + overwritten + in-ring
//! ```
//!
//! In: counters by name. Out: the identities that do not hold, and what has become of the ticks. Runs in: any. The
//! counters are not corrected; sums do not wrap.

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

/// What can become of a tick that was sent to a CPU. Every tick has exactly one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Its name in tables and fields.
    pub name: &'static str,
    /// What it means.
    pub words: &'static str,
    /// The counters that it is the sum of.
    parts: &'static [Counter],
}

impl Fate {
    /// Whether a table shows a fate of so many ticks. Most profiles have no ticks of the last two fates.
    pub fn is_shown(&self, ticks: u64) -> bool {
        ticks > 0 || !matches!(self.parts, [] | [Counter::Kernel])
    }
}

const fn fate(name: &'static str, words: &'static str, parts: &'static [Counter]) -> Fate {
    Fate { name, words, parts }
}

/// All fates, in the order in which they are shown. A tick in user code or in the idle task has the same fate whether
/// it was recorded or filtered.
pub const FATES: [Fate; 10] = [
    fate("user", "user", &[User, RecordedUser]),
    fate("irq-on", "kernel, interrupts on", &[IrqOn]),
    fate("irq-off", "kernel, interrupts off", &[IrqOff]),
    fate("interrupt", "interrupt or exception", &[Interrupt]),
    fate("idle", "idle", &[Idle, RecordedIdle]),
    fate("coalesced", "coalesced with the next tick", &[Coalesced]),
    fate("pending", "not taken: the CPU did not answer", &[Pending]),
    fate("lost", "lost", &Counter::LOSSES),
    fate("kernel", "kernel, not recorded", &[Counter::Kernel]),
    fate("other", "recorded, kind of code not told", &[]),
];

/// The index in [`FATES`] of the ticks in user code.
pub const USER: usize = 0;
/// The index in [`FATES`] of the ticks in the idle task.
pub const IDLE: usize = 4;
/// The index in [`FATES`] of the ticks that are pending.
pub const PENDING: usize = 6;
/// The index in [`FATES`] of the ticks of which it is not known what the CPU was doing: a reader of copies, some of
/// which were overwritten first, gets no counters of the kinds of samples.
pub const OTHER: usize = 9;

/// How many ticks have had each of the [`FATES`].
///
/// ```
/// use kprof_format::account::{FATES, fates};
/// let counters = [("sent", 7), ("taken", 7), ("user", 2), ("recorded", 5), ("recorded-user", 4), ("irq-on", 1)];
/// let fates = fates(counters.into_iter());
/// assert_eq!((FATES[0].name, fates[0], fates[1], fates.iter().sum::<u64>()), ("user", 6, 1, 7));
/// ```
pub fn fates<'a>(counters: impl Iterator<Item = (&'a str, u64)>) -> [u64; FATES.len()] {
    let (mut fates, mut recorded, mut known) = ([0_u64; FATES.len()], 0, 0_u64);
    for (name, value) in counters {
        // A loss that this version does not know is one too.
        let counter = Counter::of(name).or(Counter::names_a_loss(name).then_some(LostFull));
        let Some(counter) = counter else { continue };
        if counter == Recorded {
            recorded = value;
        }
        if Counter::RECORDED_KINDS.contains(&counter) {
            known = known.saturating_add(value);
        }
        if let Some(at) = FATES.iter().position(|fate| fate.parts.contains(&counter)) {
            fates[at] = fates[at].saturating_add(value);
        }
    }
    fates[OTHER] = fates[OTHER].saturating_add(recorded.saturating_sub(known));
    fates
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
    fn each_counter_of_a_balanced_account_is_in_one_fate_and_the_fates_add_up_to_the_ticks_sent() {
        let ends = SENT.parts.iter().chain(TAKEN.parts).chain(&Counter::LOSSES).chain(&Counter::RECORDED_KINDS);
        for counter in ends.filter(|counter| ![Taken, Recorded].contains(counter)) {
            let fates = FATES.iter().filter(|fate| fate.parts.contains(counter)).count();
            assert_eq!(fates, 1, "{counter}");
        }
        assert_eq!([USER, IDLE, PENDING, OTHER].map(|at| FATES[at].name), ["user", "idle", "pending", "other"]);
        let kinds = [("irq-on", 1), ("recorded-user", 2), ("recorded-idle", 1)];
        let of = |kinds: &[(&'static str, u64)]| fates(BALANCED.into_iter().chain(kinds.iter().copied()));
        assert_eq!(of(&kinds), [4, 1, 0, 0, 2, 1, 3, 2, 0, 1]);
        // A reader of copies that were overwritten gets no kinds.
        assert_eq!(of(&[]), [2, 0, 0, 0, 1, 1, 3, 2, 0, 5]);
        assert_eq!([of(&kinds), of(&[])].map(|fates| fates.iter().sum::<u64>()), [14; 2]);
        assert_eq!(fates([("lost-elsewhere", 4)].into_iter())[PENDING + 1], 4);
        let (kernel, none) = (fates([("kernel", 3)].into_iter()), [0; FATES.len()]);
        let shown = |fates: [u64; FATES.len()]| FATES.iter().zip(fates).filter(|(fate, ticks)| fate.is_shown(*ticks));
        assert_eq!(shown(kernel).next_back().map(|(fate, _)| fate.name), Some("kernel"));
        assert_eq!(shown(none).next_back().map(|(fate, _)| fate.name), Some("lost"));
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
