//! One stream: a ring, how far its readers have come, and the right to move their positions.
//!
//! Our goal is that several readers and the producer can work on one ring, and that each record is delivered once. The
//! easiest way is one lock for each stream ([`owner`]): whoever holds it has an [`Owned`], and only an `Owned` moves a
//! position. The reader of copies moves nothing and has a lock of its own ([`copier`]).
//!
//! In: a ring, and who has taken its lock. Out: positions, counts, free space. Runs in: ordinary code. At any time the
//! tail is moved by one side only: by the producer while the flight recorder runs, else by the owner. This changes only
//! while a transition owns every stream, so it stays the same during the work of any other owner.

pub(crate) mod copier;
pub(crate) mod meta;
pub(crate) mod meta_record;
pub(crate) mod owner;

use crate::account::Counter;
use crate::ring::{Copy, Ring, TailMover};
use crate::sync::{AtomicU64, Ordering, fence};
use copier::{Border, Copier};
use core::sync::atomic::AtomicBool;
use owner::Owner;

/// How long to wait for an owner's work to end, in microseconds. Reads and acknowledgements take a few milliseconds at
/// most.
pub const OWNER_WAIT_US: u64 = 1_000_000;

/// How often counters are read again, at most, because they changed meanwhile.
pub(crate) const MAX_TRIES: usize = 64;

/// The value of an index that is not known.
const UNKNOWN: u64 = u64::MAX;

/// How far the reader of one stream has come. Only the stream's owner writes here.
#[repr(align(128))]
pub(crate) struct Reader {
    pub(crate) owner: Owner,
    /// Where the next read begins. If this is below the tail, it begins at the tail.
    position: AtomicU64,
    /// The greatest position since boot: whatever begins below it was given to some reader.
    furthest: AtomicU64,
    /// How many records were published before the one at `position`, since boot, or [`UNKNOWN`].
    index: AtomicU64,
    /// How far the `ack` lines of the present write reach: a position. `checked_index` is the number of records before
    /// it.
    checked_position: AtomicU64,
    checked_index: AtomicU64,
    /// The number of records that were acknowledged, read raw, or exported.
    delivered: Counter,
    /// Odd while `delivered` and the ring's tail change together.
    moving: AtomicU64,
}

impl Reader {
    pub(crate) const fn new() -> Self {
        Self {
            owner: Owner::new(),
            position: AtomicU64::new(0),
            furthest: AtomicU64::new(0),
            index: AtomicU64::new(0),
            checked_position: AtomicU64::new(0),
            checked_index: AtomicU64::new(0),
            delivered: Counter::new(),
            moving: AtomicU64::new(0),
        }
    }

    /// Where the next read begins.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// The greatest position that any reader has come to since boot.
    pub(crate) fn furthest(&self) -> u64 {
        self.furthest.load(Ordering::Relaxed)
    }

    /// Sets where the next read begins. Only the owner may call this.
    fn go_to(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
        self.furthest.store(self.furthest().max(position), Ordering::Relaxed);
    }

    /// Returns `delivered`, the number of records that have left the ring, and the position of the oldest record, all
    /// read while the owner frees nothing. The flag is `false` if the owner freed something at every attempt. If the
    /// producer moves the tail too, the caller must exclude or notice that it does so meanwhile.
    pub(crate) fn between_frees(&self, ring: &Ring) -> ((u64, u64, u64), bool) {
        let mut all = (0, 0, 0);
        for _ in 0..MAX_TRIES {
            let before = self.moving.load(Ordering::Acquire);
            all = (self.delivered.get(), ring.removed(), ring.tail());
            // Pairs with the fence in `free`: if a value read above is newer than `before`, the load below sees a newer
            // number.
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.moving.load(Ordering::Relaxed) == before {
                return (all, true);
            }
            core::hint::spin_loop();
        }
        (all, false)
    }
}

/// A ring with its readers.
pub struct Stream {
    /// The ring; without memory at first.
    pub ring: Ring,
    pub(crate) reader: Reader,
    pub(crate) copier: Copier,
    /// So much of the ring is unread that the reader should read, and it has been told. Written by the sampler.
    pub(crate) woken: AtomicBool,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// A stream without memory.
    pub const fn new() -> Self {
        Self { ring: Ring::none(), reader: Reader::new(), copier: Copier::new(), woken: AtomicBool::new(false) }
    }

    /// The right to move the stream's positions, for a caller that has taken its lock, and that leaves it itself unless
    /// `leaves`. `recorder`: the producer moves the tail.
    pub(crate) fn taken(&self, recorder: bool, leaves: bool) -> Owned<'_> {
        Owned { stream: self, recorder, leaves }
    }

    /// Where the oldest record begins that was not freed. `None` without memory, and if records are freed at every
    /// attempt.
    pub(crate) fn oldest(&self) -> Option<Border> {
        let ((_, index, position), is_exact) = self.reader.between_frees(self.ring.get()?);
        is_exact.then_some(Border { position, index })
    }

    /// Where the next record will begin. `None` without memory, and if records are freed meanwhile.
    pub(crate) fn newest(&self) -> Option<Border> {
        let Border { position: from, index } = self.oldest()?;
        let position = self.ring.head();
        Some(Border { position, index: index + self.ring.count(from, position)? })
    }
}

/// The right to read a stream and to move its positions.
pub(crate) struct Owned<'a> {
    pub(crate) stream: &'a Stream,
    recorder: bool,
    leaves: bool,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if self.leaves {
            self.stream.reader.owner.leave();
        }
    }
}

impl Owned<'_> {
    /// Whether the producer moves the tail. If so, records may be overwritten during a read, and none can be freed.
    pub(crate) fn is_recorder(&self) -> bool {
        self.recorder
    }

    /// Where the next read begins.
    pub(crate) fn position(&self) -> u64 {
        self.stream.reader.position().max(self.stream.ring.tail())
    }

    /// How many records were published before the one at [`Owned::position`], since boot, if it is known.
    fn index(&self) -> Option<u64> {
        if self.recorder {
            return None;
        }
        let Stream { reader, ring, .. } = self.stream;
        if reader.position() <= ring.tail() {
            return Some(ring.removed());
        }
        Some(reader.index.load(Ordering::Relaxed)).filter(|index| *index != UNKNOWN)
    }

    /// How many words and records lie from [`Owned::position`] up to `border`, if it is known.
    pub(crate) fn records_before(&self, border: Border) -> Option<Copy> {
        let words = border.position.checked_sub(self.position())?;
        Some(Copy { words, records: border.index.checked_sub(self.index()?)? })
    }

    /// Sets the next read to begin at `position`, which is the end of `records` more records.
    pub(crate) fn has_read(&self, position: u64, records: u64) {
        let index = self.index().map_or(UNKNOWN, |index| index + records);
        self.stream.reader.index.store(index, Ordering::Relaxed);
        self.stream.reader.go_to(position);
    }

    /// Sets the next read to begin at `position`, the end of records that were not counted.
    pub(crate) fn skip_to(&self, position: u64) {
        self.stream.reader.index.store(UNKNOWN, Ordering::Relaxed);
        self.stream.reader.go_to(position);
    }

    /// Sets the next read to begin with the oldest record.
    pub(crate) fn rewind(&self) {
        self.stream.reader.position.store(0, Ordering::Relaxed);
    }

    /// Frees everything below `to`, which is the end of `records` records from the tail on. They count as delivered.
    /// Does nothing while the producer moves the tail.
    pub(crate) fn free(&self, to: u64, records: u64) {
        if self.recorder {
            return;
        }
        let Stream { reader, ring, .. } = self.stream;
        let moving = reader.moving.load(Ordering::Relaxed);
        reader.moving.store(moving + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        reader.delivered.add(records);
        TailMover::of(ring).release(to, records);
        // Release: whoever sees the even number sees both changes.
        reader.moving.store(moving + 2, Ordering::Release);
    }

    /// Begins to check the `ack` lines of a write.
    pub(crate) fn begin_acknowledging(&self) {
        let Stream { reader, ring, .. } = self.stream;
        reader.checked_position.store(ring.tail(), Ordering::Relaxed);
        reader.checked_index.store(ring.removed(), Ordering::Relaxed);
    }

    /// Checks one `ack` line: whether `position` is the end of a record that the reader has been given. A position that
    /// is freed already is accepted. Each line is checked from where the line before ended, so a write with many lines
    /// goes through each record once.
    pub(crate) fn check_acknowledgement(&self, position: u64) -> bool {
        let Stream { reader, ring, .. } = self.stream;
        if position <= ring.tail() {
            return true;
        }
        if position > self.position() {
            return false;
        }
        let checked = reader.checked_position.load(Ordering::Relaxed);
        if position < checked {
            return ring.count(ring.tail(), position).is_some();
        }
        // Nearly always the line acknowledges everything that was read. Those records were counted when they were read.
        let known = (position == self.position()).then(|| self.index()).flatten();
        let counted = || Some(reader.checked_index.load(Ordering::Relaxed) + ring.count(checked, position)?);
        let Some(index) = known.or_else(counted) else { return false };
        reader.checked_position.store(position, Ordering::Relaxed);
        reader.checked_index.store(index, Ordering::Relaxed);
        true
    }

    /// Carries out the acknowledgements that were checked; returns the number of records.
    pub(crate) fn acknowledge(&self) -> u64 {
        let Stream { reader, ring, .. } = self.stream;
        let position = reader.checked_position.load(Ordering::Relaxed);
        let records = reader.checked_index.load(Ordering::Relaxed).saturating_sub(ring.removed());
        if records > 0 {
            self.free(position, records);
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::tests::ring_of;

    #[test]
    fn what_is_read_while_records_are_freed_is_not_of_one_moment() {
        let stream = Stream { ring: ring_of(1024), ..Stream::new() };
        let (owned, Stream { ring, reader, .. }) = (stream.taken(false, false), &stream);
        for frees in 1..3 {
            owned.free(0, 0);
            assert_eq!(reader.moving.load(Ordering::Relaxed), 2 * frees, "each free changes the number");
            assert!(reader.between_frees(ring).1);
        }
        // As between the two changes of `free`.
        reader.moving.store(5, Ordering::Relaxed);
        assert!(!reader.between_frees(ring).1);
    }
}
