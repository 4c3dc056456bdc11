//! How far the reader of copies has come in one stream.
//!
//! In: `copy 1`, and what was copied. Out: where this reader's next read begins, and how many records were overwritten
//! before it had copied them. Runs in: ordinary code. This is a second reader, beside the one that has claimed the
//! streams. It frees nothing and delays nobody, so neither the producer nor the stream's owner needs to know of it.
//!
//! ```text
//! records before `position`, since boot = copied + overtaken        (those before `copy 1` count as copied)
//! ```

use crate::sync::{AtomicU64, Ordering};

/// The boundary between two records: a position, and the number of records before it since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Border {
    pub(crate) position: u64,
    pub(crate) index: u64,
}

/// How far the process that reads copies has come in one stream.
#[repr(align(128))]
pub(crate) struct Copier {
    /// Protects the other fields: only its holder writes to them. The producer of the meta stream reads the position
    /// without this lock, because it must not wait for a reader.
    pub(crate) lock: spin::Mutex<()>,
    position: AtomicU64,
    index: AtomicU64,
    copied: AtomicU64,
    overtaken: AtomicU64,
}

/// The values of a [`Copier`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Where the next read begins.
    pub(crate) at: Border,
    /// Records that were copied, and those from before `copy 1`.
    pub(crate) copied: u64,
    /// Records that were overwritten before they were copied.
    pub(crate) overtaken: u64,
}

impl Copier {
    pub(crate) const fn new() -> Self {
        Self {
            lock: spin::Mutex::new(()),
            position: AtomicU64::new(0),
            index: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
        }
    }

    pub(crate) fn copies(&self) -> Copies {
        let at = Border { position: self.position(), index: self.index.load(Ordering::Relaxed) };
        let (copied, overtaken) = (self.copied.load(Ordering::Relaxed), self.overtaken.load(Ordering::Relaxed));
        Copies { at, copied, overtaken }
    }

    /// Where the next read begins.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Sets where the reading begins. The records before `at` count as copied, because they were not meant for this
    /// reader.
    pub(crate) fn begin(&self, at: Border) {
        self.go_to(at);
        self.copied.store(at.index, Ordering::Relaxed);
        self.overtaken.store(0, Ordering::Relaxed);
    }

    /// Notes that `records` more records were copied, up to `position`.
    pub(crate) fn has_copied(&self, position: u64, records: u64) {
        let Copies { at, copied, .. } = self.copies();
        self.go_to(Border { position, index: at.index + records });
        self.copied.store(copied + records, Ordering::Relaxed);
    }

    /// Moves the position to `at`, because the records before `at` are overwritten, and counts them. Returns `false`,
    /// and changes nothing, if `at` is not after the present position.
    pub(crate) fn was_overtaken(&self, at: Border) -> bool {
        let before = self.copies();
        if at.position <= before.at.position {
            return false;
        }
        self.overtaken.store(before.overtaken + at.index.saturating_sub(before.at.index), Ordering::Relaxed);
        self.go_to(at);
        true
    }

    fn go_to(&self, at: Border) {
        self.position.store(at.position, Ordering::Relaxed);
        self.index.store(at.index, Ordering::Relaxed);
    }
}
