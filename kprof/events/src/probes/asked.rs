//! What a probe asks of the calls of its function: arguments for the records, and conditions.
//!
//! In: the command `probe`. Out: whether a call meets the conditions; the arguments that its record gets. Runs in:
//! `set` in ordinary code, under the writer's lock, while the probe is removed; the rest in the breakpoint handler. A
//! handler that has seen the probe before it was removed may read words of the next one, so it checks afterwards that
//! the place still has the same owner.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use kprof::format::command::{ArgumentTypes, Condition, MAX_CONDITIONS, ProbePlaces};
use kprof::format::event::MAX_ARGUMENTS;

/// The registers in which a function gets its first arguments, in their order.
pub(super) type Registers = [u64; MAX_ARGUMENTS];

/// What a probe asks for.
pub(super) struct Asked {
    /// [`ArgumentTypes::encode`]
    types: AtomicU32,
    /// [`Condition::encode`]; the first word is 0 where there is none.
    conditions: [[AtomicU64; 2]; MAX_CONDITIONS],
    /// Whether there are arguments or conditions: 0 or 1.
    is_any: AtomicU32,
}

impl Asked {
    pub(super) const fn new() -> Self {
        Self {
            types: AtomicU32::new(0),
            conditions: [const { [const { AtomicU64::new(0) }; 2] }; MAX_CONDITIONS],
            is_any: AtomicU32::new(0),
        }
    }

    /// Sets what the command asks for.
    pub(super) fn set(&self, wanted: ProbePlaces<'_>) {
        // After the removal of the probe, for a handler that sees one of these words.
        fence(Ordering::Release);
        self.types.store(wanted.arguments.encode(), Ordering::Relaxed);
        let mut conditions = wanted.conditions();
        for words in &self.conditions {
            let condition = conditions.next().map_or([0; 2], Condition::encode);
            words.iter().zip(condition).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        }
        let is_any = wanted.arguments != ArgumentTypes::default() || wanted.conditions().next().is_some();
        self.is_any.store(is_any.into(), Ordering::Relaxed);
    }

    /// Whether this is what the command asks for.
    pub(super) fn is(&self, wanted: ProbePlaces<'_>) -> bool {
        let same = Self::new();
        same.set(wanted);
        let words = |asked: &Self| {
            asked.conditions.each_ref().map(|words| words.each_ref().map(|word| word.load(Ordering::Relaxed)))
        };
        same.types() == self.types() && words(&same) == words(self)
    }

    /// Whether there are arguments or conditions.
    #[inline(always)]
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed) != 0
    }

    /// The arguments that a record gets, in the order of the registers.
    pub(super) fn types(&self) -> ArgumentTypes {
        ArgumentTypes::decode(self.types.load(Ordering::Relaxed))
    }

    /// Whether a call with these arguments meets all conditions.
    pub(super) fn is_met(&self, registers: Registers) -> bool {
        self.conditions.iter().all(|words| {
            let words = [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)];
            Condition::decode(words).is_none_or(|condition| condition.holds(registers))
        })
    }
}
