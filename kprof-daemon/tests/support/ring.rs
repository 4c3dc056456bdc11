//! One ring of the simulated kernel: whole records, positions in words, nothing freed before it is acknowledged.
//!
//! In: records. Out: bytes to a reader. Behaves as kprof's own ring does: a record that does not fit is lost and
//! counted, a new claim reads everything again that was not acknowledged.

use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub struct Ring {
    records: VecDeque<(u64, Vec<u64>)>,
    pub capacity: u64,
    pub head: u64,
    pub tail: u64,
    /// Position of the next record that a reader gets.
    pub read: u64,
    /// Bytes of that record that it has already got, where reads are made to split records.
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

    /// Puts a record in; `make` gets the position. False when it is lost.
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

    /// A new claim: everything that is not acknowledged again.
    pub fn rewind(&mut self) {
        (self.read, self.split) = (self.tail, 0);
    }

    /// Bytes for a reader: at most `most_records`, and cut at `most_bytes` in the middle of a record if `may_split`.
    pub fn read(&mut self, most_bytes: usize, most_records: usize, may_split: bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let first = self.records.partition_point(|(position, _)| *position < self.read);
        for (position, words) in self.records.range(first..).take(most_records) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let rest = &bytes[self.split..];
            let room = most_bytes - out.len();
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

    /// Whether `position` is the end of a record that was read, or was acknowledged before.
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

    pub fn in_ring(&self) -> usize {
        self.records.len()
    }
}
