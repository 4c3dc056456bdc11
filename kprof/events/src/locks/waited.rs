//! The time that a lock was waited for and that was not charged to a holder yet: one word.
//!
//! In: waits that begin and end; releases of the lock. Out: at a release, the time to charge to the holder. Runs in:
//! any but NMI. No lock, no allocation; an end and a charge repeat a step, if a wait begins or ends between their load
//! and their store.
//!
//! With n waiters that began at the times b, the time waited until `now` is n * now - the sum of all b. So the word is
//! n, and that sum modulo 2^48 nanoseconds:
//!
//! ```text
//!   63                               16 15        0
//!  | sum of begins, minus sum of ends  | n waiters |
//! ```
//!
//! A charge of t adds t to the sum, as if all waiters had begun now. The word is 0 exactly if nobody waits and
//! everything was charged: this is what each release looks at. Whatever the order of these steps is, the sum of all
//! charges is the sum of all waits, once the word is 0. That needs no ordering between different words, so all accesses
//! are relaxed: a wait whose begin a release does not see yet is charged to the next one.

#[cfg(not(kprof_loom))]
use super::zero;
use crate::sync::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 16;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// The bits of the sum.
const SUM: u64 = u64::MAX >> COUNT_BITS;
/// By how many nanoseconds clocks that disagree make a charge too large at most: almost five hours. A difference that
/// is as near to 2^48 is below 0; any other is a time.
const MOST_AHEAD: u64 = 1 << 44;

/// The word.
pub(crate) struct Waited(AtomicU64);

/// What a release charges to the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) ns: u64,
    /// How many still wait.
    pub(crate) waiters: u64,
}

impl Waited {
    #[cfg(not(kprof_loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[cfg(kprof_loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether nobody waits and everything was charged.
    #[cfg(not(kprof_loom))]
    #[inline(always)]
    pub(crate) fn is_settled(&self) -> bool {
        zero::is(&self.0)
    }

    #[cfg(kprof_loom)]
    pub(crate) fn is_settled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// A wait begins. Returns how many others wait. At most 65535 may wait at a time.
    pub(crate) fn begin(&self, now_ns: u64) -> u64 {
        self.0.fetch_add(one_from(now_ns), Ordering::Relaxed) & COUNT
    }

    /// Ends a wait, and returns its end. If nobody else waits and holders were charged with more time than was waited
    /// until now, the end is later than `now_ns` by the difference. That happens if a holder's clock is ahead of this
    /// one, or if a holder has read its clock after `now_ns` was read.
    pub(crate) fn end(&self, now_ns: u64) -> u64 {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let new = word.wrapping_sub(one_from(now_ns));
            let ahead = new >> COUNT_BITS;
            let (new, ended) = match new & COUNT == 0 && ahead <= MOST_AHEAD {
                true => (0, now_ns.wrapping_add(ahead)),
                false => (new, now_ns),
            };
            if self.0.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return ended;
            }
        }
    }

    /// Takes the time that was waited until now and not charged yet. `None` if there is none.
    pub(crate) fn charge(&self, now_ns: u64) -> Option<Charge> {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let waiters = word & COUNT;
            let ns = waiters.wrapping_mul(now_ns).wrapping_sub(word >> COUNT_BITS) & SUM;
            // A negative sum means that more was charged than was waited by this clock. A later release charges less.
            if ns == 0 || ns > SUM - MOST_AHEAD {
                return None;
            }
            let new = word.wrapping_add(ns << COUNT_BITS);
            if self.0.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some(Charge { ns, waiters });
            }
        }
    }
}

/// One waiter, from this time on.
fn one_from(now_ns: u64) -> u64 {
    (now_ns << COUNT_BITS) | 1
}

#[cfg(all(test, not(kprof_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_holder_is_charged_with_the_time_from_the_release_before_to_its_own() {
        let waited = Waited::new();
        // A holds. B waits from 100, C from 130. A releases at 150.
        assert_eq!((waited.begin(100), waited.begin(130)), (0, 1));
        assert_eq!(waited.charge(150), Some(Charge { ns: 50 + 20, waiters: 2 }));
        // B has it at 152 and releases at 160: C's 10, and its own 2.
        assert_eq!(waited.end(152), 152);
        assert_eq!(waited.charge(160), Some(Charge { ns: 10 + 2, waiters: 1 }));
        // C has it at 165, and releases at 200.
        assert_eq!(waited.end(165), 165);
        assert!(!waited.is_settled());
        assert_eq!(waited.charge(200), Some(Charge { ns: 5, waiters: 0 }));
        assert!(waited.is_settled());
        assert_eq!(waited.charge(300), None);
    }

    #[test]
    fn clocks_that_disagree_change_times_and_not_their_sum() {
        let waited = Waited::new();
        waited.begin(100);
        assert_eq!(waited.charge(90), None, "the holder's clock is behind the waiter's");
        assert_eq!(waited.charge(110), Some(Charge { ns: 10, waiters: 1 }), "nothing is lost by it");
        assert_eq!(waited.end(105), 110, "the waiter's clock is behind the holder's");
        assert!(waited.is_settled());
        // Two wait, and the clock of the one that ends first is behind, so the next charge is smaller.
        assert_eq!((waited.begin(200), waited.begin(200)), (0, 1));
        assert_eq!(waited.charge(250), Some(Charge { ns: 100, waiters: 2 }));
        assert_eq!(waited.end(240), 240);
        assert_eq!(waited.charge(255), None, "10 ns too many were charged, and the other has waited 5 more");
        assert_eq!(waited.charge(270), Some(Charge { ns: 10, waiters: 1 }));
        assert_eq!((waited.end(270), waited.is_settled()), (270, true));
    }

    #[test]
    fn a_sum_of_72_hours_is_charged_and_lengthens_no_wait() {
        let longest = 72 * 3600 * 1_000_000_000;
        for waiters in [1, 1000] {
            let (waited, ns) = (Waited::new(), longest / waiters);
            (0..waiters).for_each(|_| _ = waited.begin(100));
            (0..waiters).for_each(|_| assert_eq!(waited.end(100 + ns), 100 + ns));
            assert_eq!(waited.charge(200 + ns), Some(Charge { ns: ns * waiters, waiters: 0 }));
            assert!(waited.is_settled());
        }
        let waited = Waited::new();
        waited.begin(100);
        assert_eq!(waited.charge(100 + longest), Some(Charge { ns: longest, waiters: 1 }));
        assert_eq!((waited.end(100 + longest), waited.is_settled()), (100 + longest, true));
    }

    #[test]
    fn times_beyond_the_bits_of_the_sum_are_differences_all_the_same() {
        let waited = Waited::new();
        let from = u64::MAX - 10;
        (0..1000).for_each(|_| {
            waited.begin(from);
        });
        assert_eq!(waited.charge(from.wrapping_add(50)), Some(Charge { ns: 50 * 1000, waiters: 1000 }));
        (0..1000).for_each(|_| assert_eq!(waited.end(from.wrapping_add(50)), from.wrapping_add(50)));
        assert!(waited.is_settled());
    }
}
