//! The meta stream: task names, images, marks, settings, counts of events by task. It is written by ordinary code, so a
//! lock is allowed.
//!
//! In: the kernel's calls, ctl commands, the sampler's counts. Out: meta records, which are read like those of a CPU's
//! ring. Runs in: ordinary code, interrupts on or off; never in an NMI. The lock is held with interrupts off, so that
//! no thread can preempt the holder and then wait for it. It is held for as long as one record of at most 136 words
//! takes.
//!
//! Full: as long as nothing has been read under the present claim, the newest records replace the oldest, so that a
//! reader that starts late gets the names of the tasks that exist now. The replaced records count as overwritten. The
//! first read frees half of the ring in this way. After it, a record that does not fit is lost and counted, and a task
//! name is stored only if an eighth of the ring stays free for settings, marks and images. Counts of a point in a
//! replaced record that nobody has read go back to where they came from, and are written again. From then on nobody
//! gets a copy of the replaced record, though its words may still be there: a reader of copies would count twice.

use super::Stream;
use super::copier::Border;
use super::meta_record::MAX_TEXT;
use super::owner::Activity;
use crate::arch::{interrupts, timestamp};
use crate::extension::{Extension, NoExtension};
use crate::format::record::{Header, Kind, MetaHeader};
use crate::patience::Patience;
use crate::ring::{Ring, Sink};
use crate::sync::{AtomicU64, Ordering};
use core::mem::MaybeUninit;

/// How long a record waits while somebody else owns the stream for a moment: a change of the claim or of the state,
/// which takes microseconds, and longer on a virtual CPU that the host pauses. Interrupts are on between two attempts
/// if they were on before. In tests it is so long that no busy host makes a record lost.
const BUSY_WAIT_US: u64 = if cfg!(test) { 100_000_000 } else { 20_000 };

/// Why there is no room for a record.
enum NoRoom {
    /// A reader needs what is in the ring.
    Full,
    /// The oldest records could be replaced, and somebody owns the stream at the moment.
    Busy,
}

/// The largest meta record in words.
const MAX_RECORD_WORDS: u64 = (MetaHeader::WORDS + MAX_TEXT.div_ceil(8)) as u64;

/// The id of a control file; 0 stands for none.
pub(crate) type ClaimId = u64;

/// The meta stream.
pub struct Meta {
    /// The ring and its readers.
    pub stream: Stream,
    /// The control file that has claimed all streams. It is kept here, because under a claim no record of the meta
    /// stream is replaced.
    pub(crate) claim: AtomicU64,
    /// Where counts of replaced records go back to.
    extension: spin::Once<&'static dyn Extension>,
    lock: spin::Mutex<()>,
    lost: AtomicU64,
    overwritten: AtomicU64,
    /// How many accounts of points did not fit when they were written last, or were replaced unread since. Their counts
    /// are kept.
    pub kept: AtomicU64,
    /// The end of the last record whose counts went back: nothing before it may be copied any more. Written under the
    /// lock.
    put_back_until: AtomicU64,
}

impl Meta {
    pub(crate) const fn new() -> Self {
        Self {
            stream: Stream::new(),
            claim: AtomicU64::new(0),
            extension: spin::Once::new(),
            lock: spin::Mutex::new(()),
            lost: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            put_back_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn install(
        &self,
        memory: &'static mut [MaybeUninit<u64>],
        extension: &'static dyn Extension,
    ) -> Result<(), crate::errors::BadMemory> {
        self.extension.call_once(|| extension);
        self.stream.ring.install(memory)
    }

    /// The extension; before `install` one that does nothing.
    pub(crate) fn extension(&self) -> &'static dyn Extension {
        self.extension.get().copied().unwrap_or(&NoExtension)
    }

    /// Where the oldest record that was not freed begins. `None` without memory, or if records are freed at every
    /// attempt.
    pub(crate) fn oldest(&self) -> Option<Border> {
        // The producer may replace records too, so the lock keeps it out.
        interrupts::without(|| {
            let _only_producer = self.lock.lock();
            self.stream.oldest()
        })
    }

    /// The number of records that were lost because the ring was full.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The number of records that were replaced by newer ones before they were read.
    pub(crate) fn overwritten(&self) -> u64 {
        self.overwritten.load(Ordering::Relaxed)
    }

    /// Writes one record. `false` if there is no space, or if somebody else owns the stream of a full ring: the caller
    /// keeps what it has, and tries again later.
    pub fn put(&self, kind: Kind, values: [u64; 3], text: &str) -> bool {
        self.put_within(timestamp::read(), kind, values, text, None).is_ok()
    }

    /// Writes one record with this TSC, or counts it as lost. Does not wait for longer than `patience`, so that a CPU
    /// that is locked up while it holds the lock does not stop the sampler too.
    pub fn put_patiently(&self, tsc: u64, kind: Kind, values: [u64; 3], text: &str, patience: Patience) {
        self.put_waiting(tsc, kind, values, text, Some(patience));
    }

    /// Writes one record, or counts it as lost. Waits while somebody else owns the stream for a moment.
    fn put_waiting(&self, tsc: u64, kind: Kind, values: [u64; 3], text: &str, for_lock: Option<Patience>) {
        // Before `init` there is no stream that could lose something: a claim repeats settings, points and names.
        if self.stream.ring.get().is_none() {
            return;
        }
        let mut patience = None;
        loop {
            match self.put_within(tsc, kind, values, text, for_lock.clone()) {
                Ok(()) => return,
                Err(NoRoom::Busy) if patience.get_or_insert_with(|| Patience::us(BUSY_WAIT_US, 0)).go_on() => {}
                Err(_) => break,
            }
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes one record. `for_lock`: how long to wait for the lock; `None`: for as long as it takes.
    fn put_within(
        &self,
        tsc: u64,
        kind: Kind,
        values: [u64; 3],
        text: &str,
        for_lock: Option<Patience>,
    ) -> Result<(), NoRoom> {
        let text = truncated(text, MAX_TEXT);
        let words = (MetaHeader::WORDS + text.len().div_ceil(8)) as u64;
        interrupts::without(|| {
            let _only_producer = match for_lock {
                Some(mut patience) => patience.lock(&self.lock).ok_or(NoRoom::Full)?,
                None => self.lock.lock(),
            };
            let ring = self.stream.ring.get().ok_or(NoRoom::Full)?;
            let reserve = if kind == Kind::TaskName { ring.capacity() / 8 } else { 0 };
            let mut sink = self.room(ring, words, reserve)?;
            let (position, [first, second, third], text_bytes) = (ring.head(), values, text.len() as u64);
            let header = MetaHeader { position, tick: 0, tsc, first, second, third, text_bytes };
            header.words().into_iter().chain(words_of(text)).for_each(|word| sink.push(word));
            if sink.is_full() {
                return Err(NoRoom::Full);
            }
            ring.publish(kind, sink.words());
            Ok(())
        })
    }

    /// Called before the first read under a claim: replaces the oldest records until half of the ring is free, so that
    /// new names fit until the reader has written its first batch to the disk and acknowledged it. Later reads find
    /// nothing to replace. The lock is held for about 32 records at a time.
    pub(crate) fn make_room_before_first_read(&self) {
        let Some(ring) = self.stream.ring.get().filter(|_| self.stream.reader.position() == 0) else { return };
        let mut patience = Patience::us(BUSY_WAIT_US, 0);
        while free_words(ring) < ring.capacity() / 2 {
            let made = interrupts::without(|| {
                let _only_producer = self.lock.lock();
                self.room(ring, (free_words(ring) + 256).min(ring.capacity() / 2), 0).map(drop)
            });
            let goes_on = match made {
                Ok(()) => true,
                Err(NoRoom::Busy) => patience.go_on(),
                Err(NoRoom::Full) => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Space for a record of this many words. Replaces the oldest records if no reader needs them, no more than it
    /// takes; if one does, `reserve` more words must stay free.
    fn room<'r>(&self, ring: &'r Ring, words: u64, reserve: u64) -> Result<Sink<'r>, NoRoom> {
        if free_words(ring) >= words + reserve {
            return Ok(ring.room());
        }
        // A reader that has read something under the present claim must get everything that follows, so nothing may be
        // replaced then, even if all that was read has been freed. (A claim begins with the position 0.)
        let owner = &self.stream.reader.owner;
        let is_read = || self.claim.load(Ordering::Acquire) != 0 && self.stream.reader.position() > 0;
        if is_read() {
            return Err(NoRoom::Full);
        }
        owner.take(Activity::Replace).map_err(|_| NoRoom::Busy)?;
        // Checked again: now that the stream is owned here, no reader can read.
        let sink = if is_read() {
            Err(NoRoom::Full)
        } else {
            let unread = self.stream.reader.position();
            while free_words(ring) < words {
                // Records that an export has written out already do not count as overwritten.
                let missed = ring.tail() >= unread;
                let is_unread = ring.tail() >= self.stream.reader.furthest().max(self.stream.copier.position());
                let goes_back = is_unread && self.put_oldest_back(ring);
                let (_, replaced) = ring.reserve_overwriting(free_words(ring) + 1);
                if goes_back {
                    self.put_back_until.store(ring.tail(), Ordering::Relaxed);
                }
                self.overwritten.fetch_add(if missed { replaced } else { 0 }, Ordering::Relaxed);
            }
            Ok(ring.room())
        };
        owner.leave();
        sink
    }

    /// Carries out `commit` if records that were copied from `at` on count for the reader of copies: if none of them
    /// was replaced with its counts put back. Returns whether it has.
    pub(crate) fn commit_copies(&self, at: u64, commit: impl FnOnce()) -> bool {
        interrupts::without(|| {
            // So that no counts go back between the check and the commit.
            let _only_producer = self.lock.lock();
            let counts = at >= self.put_back_until.load(Ordering::Relaxed);
            if counts {
                commit();
            }
            counts
        })
    }

    /// Puts the counts in the oldest record back, if it is the account of a point. Returns whether it is.
    #[cold]
    #[inline(never)]
    fn put_oldest_back(&self, ring: &Ring) -> bool {
        let first = Header::decode(ring.word(ring.tail()));
        let is_account = first.is_ok_and(|header| header.kind == Kind::PointAccount);
        if is_account {
            self.extension().put_back(ring, ring.tail());
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        is_account
    }

    /// Writes one record, or counts it as lost.
    pub fn put_or_lose(&self, kind: Kind, values: [u64; 3], text: &str) {
        self.put_waiting(timestamp::read(), kind, values, text, None);
    }
}

fn free_words(ring: &Ring) -> u64 {
    ring.capacity().saturating_sub(ring.head().saturating_sub(ring.tail()))
}

/// The beginning of a text: at most `max_bytes` bytes, ending at a character boundary.
pub(crate) fn truncated(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The bytes of a text as words, little endian, zero padded.
fn words_of(text: &str) -> impl Iterator<Item = u64> {
    text.as_bytes().chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    })
}

const _: () = assert!(MAX_RECORD_WORDS == 136, "the head of this file says so");

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A meta stream whose ring is empty.
    fn empty() -> Meta {
        let meta = Meta::new();
        meta.install(Vec::leak(vec![MaybeUninit::uninit(); 1024]), &NoExtension).unwrap();
        meta
    }

    /// A meta stream whose ring is full of records that nobody has read.
    fn full() -> Meta {
        let meta = empty();
        (0..200).for_each(|_| meta.put_or_lose(Kind::Mark, [0; 3], "mark"));
        assert_eq!(meta.lost(), 0);
        assert!(meta.overwritten() > 0);
        meta
    }

    /// Calls `work` on another thread while a change of the claim owns the stream, and ends the change once that thread
    /// runs.
    fn beside_a_change(meta: &Meta, work: impl FnOnce() + Send) {
        let (owner, begun) = (&meta.stream.reader.owner, AtomicBool::new(false));
        std::thread::scope(|scope| {
            owner.take(Activity::Transition).unwrap();
            scope.spawn(|| {
                begun.store(true, Ordering::Relaxed);
                work();
            });
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            owner.leave();
        });
    }

    #[test]
    fn a_name_replaces_no_more_than_it_takes_while_nobody_reads() {
        let meta = full();
        let before = meta.overwritten();
        meta.put_or_lose(Kind::TaskName, [7, 0, 0], "mark");
        assert!(meta.overwritten() - before <= 1, "the lock is held with interrupts off meanwhile");
        assert_eq!(meta.lost(), 0);
    }

    #[test]
    fn a_record_waits_for_a_change_of_the_claim_and_is_not_lost() {
        let meta = full();
        beside_a_change(&meta, || meta.put_or_lose(Kind::Mark, [0; 3], "beside"));
        assert_eq!(meta.lost(), 0);
    }

    #[test]
    fn a_full_ring_replaces_no_more_than_the_next_record_needs() {
        // 63 records of 16 words, 8 of them text, leave 16 words of the ring.
        let meta = empty();
        let put = |words: usize| meta.put_or_lose(Kind::Mark, [0; 3], &"x".repeat(words * 8));
        (0..63).for_each(|_| put(8));
        let replaced = [1, 7, 12, 0, 8].map(|words| {
            put(words);
            (meta.overwritten(), 1024 - free_words(&meta.stream.ring))
        });
        assert_eq!(replaced, [(0, 1017), (1, 1016), (2, 1020), (3, 1012), (4, 1012)]);
        assert_eq!(meta.lost(), 0);
    }

    #[test]
    fn the_first_read_replaces_no_more_than_half_of_the_ring() {
        let meta = empty();
        (0..64).for_each(|_| meta.put_or_lose(Kind::Mark, [0; 3], &"x".repeat(64)));
        assert_eq!((free_words(&meta.stream.ring), meta.overwritten()), (0, 0));
        (0..2).for_each(|_| meta.make_room_before_first_read());
        assert_eq!((free_words(&meta.stream.ring), meta.overwritten()), (512, 32));
    }

    #[test]
    fn a_text_that_is_too_long_ends_before_the_character_that_does_not_fit() {
        assert_eq!(["", "kprof", "kpröf"].map(|text| truncated(text, 5)), ["", "kprof", "kprö"]);
        assert_eq!(["€", "a€", "€€"].map(|text| truncated(text, 3)), ["€", "a", "€"]);
    }

    #[test]
    fn the_first_read_has_half_of_the_ring_free_even_if_the_stream_is_busy_at_first() {
        let meta = full();
        beside_a_change(&meta, || meta.make_room_before_first_read());
        let used = meta.stream.ring.head() - meta.stream.ring.tail();
        assert!(used <= 512, "{used} words");
    }
}
