//! One ring of the simulated kernel: whole records, positions in words, nothing freed before it is acknowledged.
//!
//! In: records. Out: bytes for a reader. It behaves as kprof's own ring: a record that does not fit is lost and
//! counted, and after a new claim everything that was not acknowledged is read again. A reader of copies gets the
//! records until they are overwritten, whether they were acknowledged or not.

use kprof_format::record::SampleHeader;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub struct Ring {
    records: VecDeque<(u64, Vec<u64>)>,
    pub capacity: u64,
    pub head: u64,
    pub tail: u64,
    /// Position of the next record that a reader gets.
    pub read: u64,
    /// How many bytes of that record the reader already has, if reads may split records.
    split: usize,
    pub taken: u64,
    pub recorded: u64,
    pub delivered: u64,
    pub lost_full: u64,
    pub copies: Option<Copies>,
    /// As the meta ring of the real kernel: until something is read under a claim, new records replace the oldest ones.
    pub replaces: bool,
    has_read: bool,
}

/// What the reader of copies still has to get.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    records: VecDeque<(u64, Vec<u64>)>,
    pub position: u64,
    pub copied: u64,
    pub overtaken: u64,
}

impl Copies {
    /// The newest record is overwritten before it is copied.
    pub fn overtake_newest(&mut self) {
        self.overtaken += u64::from(self.records.pop_back().is_some());
    }

    /// Bytes for the reader, without a gap between two records.
    pub fn read(&mut self, max_bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.position = self.records.front().map_or(self.position, |(position, _)| *position);
        while let Some((position, words)) = self.records.front()
            && *position == self.position
            && out.len() + 8 * words.len() <= max_bytes
        {
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            self.position += words.len() as u64;
            self.copied += 1;
            self.records.pop_front();
        }
        out
    }

    pub fn in_ring(&self) -> usize {
        self.records.len()
    }
}

impl Ring {
    pub fn new(capacity: u64) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Writes a record; `make` gets its position. Returns false if the record is lost.
    pub fn put(&mut self, words: usize, make: impl FnOnce(u64) -> Vec<u64>) -> bool {
        self.taken += 1;
        self.replace_until_free(words as u64);
        if self.head + words as u64 - self.tail > self.capacity {
            self.lost_full += 1;
            return false;
        }
        let record = make(self.head);
        assert_eq!(record.len(), words);
        self.records.push_back((self.head, record.clone()));
        if let Some(copies) = &mut self.copies {
            copies.records.push_back((self.head, record));
            let kept_from = (self.head + words as u64).saturating_sub(self.capacity);
            let before = copies.records.len();
            copies.records.retain(|(position, _)| *position >= kept_from);
            copies.overtaken += (before - copies.records.len()) as u64;
        }
        self.head += words as u64;
        self.recorded += 1;
        true
    }

    /// Replaces the oldest records until this many words are free, if it may.
    fn replace_until_free(&mut self, words: u64) {
        while self.replaces && !self.has_read && self.head + words - self.tail > self.capacity {
            self.records.pop_front();
            self.tail = self.records.front().map_or(self.head, |(position, _)| *position);
            self.read = self.tail;
        }
    }

    /// What `copy 1` does: the copies begin with the next record, or with the oldest one that was not acknowledged.
    pub fn begin_copies(&mut self, with_oldest: bool) {
        let records = if with_oldest { self.records.clone() } else { VecDeque::new() };
        let position = if with_oldest { self.tail } else { self.head };
        let copied = self.recorded - records.len() as u64;
        self.copies = Some(Copies { records, position, copied, overtaken: 0 });
    }

    /// What a new claim does: everything that is not acknowledged will be read again.
    pub fn rewind(&mut self) {
        (self.read, self.split, self.has_read) = (self.tail, 0, false);
    }

    /// Bytes for a reader: at most `max_records` records and `max_bytes` bytes. With `may_split` the last record may be
    /// incomplete.
    pub fn read(&mut self, max_bytes: usize, max_records: usize, may_split: bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.replace_until_free(self.capacity / 2);
        let first = self.records.partition_point(|(position, _)| *position < self.read);
        for (position, words) in self.records.range(first..).take(max_records) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let rest = &bytes[self.split..];
            let room = max_bytes - out.len();
            if rest.len() > room {
                if may_split {
                    out.extend_from_slice(&rest[..room]);
                    self.split += room;
                } else if out.is_empty() {
                    return None;
                }
                break;
            }
            out.extend_from_slice(rest);
            (self.read, self.split, self.has_read) = (position + words.len() as u64, 0, true);
        }
        Some(out)
    }

    /// Whether `position` is the end of a record that was read, or is already acknowledged.
    pub fn may_acknowledge(&self, position: u64) -> bool {
        let is_end =
            position == self.head || self.records.binary_search_by_key(&position, |(position, _)| *position).is_ok();
        position <= self.tail || (position <= self.read && is_end)
    }

    pub fn acknowledge(&mut self, position: u64) {
        while self.records.front().is_some_and(|(first, _)| *first < position) {
            self.records.pop_front();
            self.delivered += 1;
        }
        self.tail = self.tail.max(position);
    }

    /// The TSCs of the samples that are not acknowledged.
    pub fn tscs(&self) -> impl Iterator<Item = u64> {
        self.records.iter().map(|(_, words)| words[SampleHeader::AT.tsc])
    }

    pub fn in_ring(&self) -> usize {
        self.records.len()
    }
}
