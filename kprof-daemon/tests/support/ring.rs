//! One ring of the simulated kernel: whole records, positions in words, nothing freed before it is acknowledged.
//!
//! In: records. Out: bytes for a reader. It behaves as kprof's own ring: a record that does not fit is lost and
//! counted, and after a new claim everything that was not acknowledged is read again.

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
}

impl Ring {
    pub fn new(capacity: u64) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Writes a record; `make` gets its position. Returns false if the record is lost.
    pub fn put(&mut self, words: usize, make: impl FnOnce(u64) -> Vec<u64>) -> bool {
        self.taken += 1;
        if self.head + words as u64 - self.tail > self.capacity {
            self.lost_full += 1;
            return false;
        }
        let record = make(self.head);
        assert_eq!(record.len(), words);
        self.records.push_back((self.head, record));
        self.head += words as u64;
        self.recorded += 1;
        true
    }

    /// What a new claim does: everything that is not acknowledged will be read again.
    pub fn rewind(&mut self) {
        (self.read, self.split) = (self.tail, 0);
    }

    /// Bytes for a reader: at most `max_records` records and `max_bytes` bytes. With `may_split` the last record may be
    /// incomplete.
    pub fn read(&mut self, max_bytes: usize, max_records: usize, may_split: bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
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
            (self.read, self.split) = (position + words.len() as u64, 0);
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
        self.records.iter().map(|(_, words)| words[3])
    }

    pub fn in_ring(&self) -> usize {
        self.records.len()
    }
}
