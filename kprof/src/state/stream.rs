//! One stream: a ring, its reader's positions, and the right to move them.
//!
//! In: a ring and a claim. Out: [`Owned`], the right without which nobody may read the stream's records or move its
//! positions. (The reader of copies needs no right: it moves nothing.) Runs in: ordinary code. At any time the tail is
//! moved by one side only: by the producer while the flight recorder runs, else by the owner. This changes only while a
//! transition owns every stream, so it stays the same during the work of any other owner.

use super::copier::Border;
use super::owner::{Activity, ClaimId, Conflict, OwnerWord};
use crate::patience::Patience;
use crate::ring::{Copy, Ring, TailMover};
use crate::state::account::Counter;
use crate::sync::{AtomicU64, Ordering, fence};

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
    owner: OwnerWord,
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
            owner: OwnerWord::new(),
            position: AtomicU64::new(0),
            furthest: AtomicU64::new(0),
            index: AtomicU64::new(0),
            checked_position: AtomicU64::new(0),
            checked_index: AtomicU64::new(0),
            delivered: Counter::new(),
            moving: AtomicU64::new(0),
        }
    }

    pub(crate) fn owner(&self) -> &OwnerWord {
        &self.owner
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

/// A ring and its reader.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    pub ring: &'a Ring,
    pub(crate) reader: &'a Reader,
}

impl<'a> Stream<'a> {
    /// Takes the stream for a caller whose claim is `claim` (0: it has none). `recorder` returns whether the producer
    /// moves the tail.
    pub(crate) fn take(
        self,
        claim: ClaimId,
        activity: Activity,
        mut patience: Patience,
        recorder: impl FnOnce() -> bool,
    ) -> Result<Owned<'a>, Conflict> {
        take_within(&mut patience, || self.reader.owner.take(claim, activity))?;
        // `recorder` is called after the stream was taken, because its answer cannot change from then on.
        Ok(Owned { stream: self, recorder: recorder(), leaves: true })
    }

    /// The stream, for a caller that has taken its owner word already and will leave it later.
    pub(crate) fn taken(self, recorder: bool) -> Owned<'a> {
        Owned { stream: self, recorder, leaves: false }
    }
}

/// The right to read a stream and to move its positions.
pub(crate) struct Owned<'a> {
    stream: Stream<'a>,
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
        let (reader, ring) = (self.stream.reader, self.stream.ring);
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
        let (reader, ring) = (self.stream.reader, self.stream.ring);
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
        let (reader, ring) = (self.stream.reader, self.stream.ring);
        reader.checked_position.store(ring.tail(), Ordering::Relaxed);
        reader.checked_index.store(ring.removed(), Ordering::Relaxed);
    }

    /// Checks one `ack` line: whether `position` is the end of a record that the reader has been given. A position that
    /// is freed already is accepted. Each line is checked from where the line before ended, so a write with many lines
    /// goes through each record once.
    pub(crate) fn check_acknowledgement(&self, position: u64) -> bool {
        let (reader, ring) = (self.stream.reader, self.stream.ring);
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
        let (reader, ring) = (self.stream.reader, self.stream.ring);
        let position = reader.checked_position.load(Ordering::Relaxed);
        let records = reader.checked_index.load(Ordering::Relaxed).saturating_sub(ring.removed());
        if records > 0 {
            self.free(position, records);
        }
        records
    }
}

/// Takes an owner word by `attempt`, waiting while another owner does short work. It does not wait for an export, which
/// may take minutes.
pub(crate) fn take_within(patience: &mut Patience, attempt: impl Fn() -> Result<(), Conflict>) -> Result<(), Conflict> {
    loop {
        match attempt() {
            Err(Conflict::Busy(at_work)) if at_work != Activity::Export && patience.go_on() => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::tests::ring_of;

    #[test]
    fn what_is_read_while_records_are_freed_is_not_of_one_moment() {
        let (ring, reader) = (ring_of(1024), Reader::new());
        let owned = Stream { ring: &ring, reader: &reader }.taken(false);
        for frees in 1..3 {
            owned.free(0, 0);
            assert_eq!(reader.moving.load(Ordering::Relaxed), 2 * frees, "each free changes the number");
            assert!(reader.between_frees(&ring).1);
        }
        // As between the two changes of `free`.
        reader.moving.store(5, Ordering::Relaxed);
        assert!(!reader.between_frees(&ring).1);
    }
}
