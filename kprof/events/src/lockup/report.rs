//! The report of a lockup: what was found, and the newest stack of every CPU, as texts of meta records.
//!
//! In: what was found, the rings. Out: the texts of a record of [`Kind::Lockup`] and of one record of
//! [`Kind::LockupStack`] for each CPU that has a sample. Runs in: the sampler CPU. A stack that is overwritten while it
//! is read is left out.
//!
//! [`Kind::Lockup`]: kprof::format::record::Kind::Lockup
//! [`Kind::LockupStack`]: kprof::format::record::Kind::LockupStack

use super::watch::Found;
use crate::state::State;
use core::fmt::Write as _;
use kprof::format::lockup::{AT_PREFIX, HOLDER_PREFIX, LockupCounter};
use kprof::format::record::SampleHeader;
use kprof::internals::MAX_TEXT;

/// The text of a record.
pub(crate) type Text = heapless::String<MAX_TEXT>;

/// The most words of a stack that are reported: 32 with 17 letters each fit in a record.
const STACK_WORDS: usize = 32;

/// A lockup of one CPU.
pub(crate) struct Report<'a> {
    pub(crate) state: &'a State,
    pub(crate) cpu: usize,
    pub(crate) found: Found,
}

/// The newest stack of a CPU.
pub(crate) struct Stack {
    pub(crate) cpu: u64,
    pub(crate) task: u64,
    pub(crate) text: Text,
}

impl Report<'_> {
    /// For how many milliseconds the CPU is locked up.
    pub(crate) fn ms(&self) -> u64 {
        let ticks = self.found.tsc.saturating_sub(self.found.from);
        u64::try_from(u128::from(ticks) * 1000 / u128::from(self.state.tsc_hz().max(1))).unwrap_or(u64::MAX)
    }

    /// The text of the lockup's own record.
    pub(crate) fn text(&self) -> Text {
        let (mut text, found) = (Text::new(), &self.found);
        // Nothing here can overflow: 16 addresses need 41 bytes each, and a holder 45.
        let _ = write!(text, "{} {}={}", found.reason, LockupCounter::Ticks, found.ticks);
        if found.unknown > 0 {
            let _ = write!(text, " {}={}", LockupCounter::Unknown, found.unknown);
        }
        if let Some((lock, cpu)) = found.holder {
            let _ = write!(text, " {HOLDER_PREFIX}{lock:x}={cpu}");
        }
        for (address, count) in found.places.iter() {
            let _ = write!(text, " {AT_PREFIX}{address:x}={count}");
        }
        text
    }

    /// The newest stack of each CPU that has one.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = Stack> {
        self.state.shared.slots().iter().enumerate().filter_map(|(cpu, slot)| {
            let newest = self.state.slots().get(cpu)?.watch.lock().newest?;
            const WORDS: usize = SampleHeader::WORDS - 1 + STACK_WORDS;
            let (words, length) = slot.stream.ring.get()?.first_words::<WORDS>(newest).ok()??;
            let mut text = Text::new();
            let SampleHeader { tsc, task, address, .. } = SampleHeader::read(|at| words[at]);
            let _ = write!(text, "{tsc:x} {address:x}");
            for word in words.iter().take(length as usize).skip(SampleHeader::WORDS) {
                let _ = write!(text, ",{word:x}");
            }
            Some(Stack { cpu: cpu as u64, task, text })
        })
    }
}
