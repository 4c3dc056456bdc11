//! Parses Redox's raw words, and skips records that its ring has damaged.
//!
//! ```text
//! ┌ 0xfedfac00 + n ┬ first address ┬ TSC ┬ task id ┬ callers ... ┐  n words in all, 4 to 255
//! ```
//!
//! In: bytes and the number of words before them. Out: [`Item`]s. Runs in: user process. These words have no positions,
//! so they are counted from the first one that this session has read. Redox's ring may truncate a record, so
//! that its length leads past the beginning of the next one. Such a record is skipped and counted, and so are words
//! that belong to no record.

use kprof_format::record::{REDOX_MAGIC as MAGIC, RawHeader};

use super::{Item, Sample, Skipped, Why, Words};

/// Iterates over the records of one read.
#[derive(Debug)]
pub struct RawRecords<'a> {
    words: Words<'a>,
    at: usize,
    position: u64,
    item_from: u64,
}

impl<'a> RawRecords<'a> {
    /// Records in `bytes`; `position` words came before.
    pub fn new(bytes: &'a [u8], position: u64) -> Self {
        Self { words: Words::new(bytes), at: 0, position, item_from: position }
    }

    /// Number of words up to here.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Number of words before the last item.
    pub fn item_from(&self) -> u64 {
        self.item_from
    }

    /// Number of bytes that have been parsed.
    pub fn used_bytes(&self) -> usize {
        self.at * 8
    }

    /// The length that a record at this word would have.
    fn length(&self, at: usize) -> Option<usize> {
        let length = (self.words.get(at)? ^ MAGIC) as usize;
        (RawHeader::WORDS..=0xff).contains(&length).then_some(length)
    }

    fn next_beginning(&self, before: usize) -> Option<usize> {
        (self.at + 1..before).find(|at| self.length(*at).is_some())
    }

    fn advance(&mut self, end: usize) -> u64 {
        let words = (end - self.at) as u64;
        self.item_from = self.position;
        self.at = end;
        self.position += words;
        words
    }

    fn skip_to(&mut self, end: usize, why: Why) -> Option<Skipped> {
        let words = self.advance(end);
        (words > 0).then_some(Skipped { from: self.item_from, words, why })
    }
}

impl<'a> Iterator for RawRecords<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let count = self.words.count();
        if self.at >= count {
            return None;
        }
        let Some(length) = self.length(self.at) else {
            let end = self.next_beginning(count).unwrap_or(count);
            return self.skip_to(end, Why::NoRecord).map(Item::Skipped);
        };
        let end = self.at + length;
        // If no record begins after this one but one begins inside it, the length is wrong.
        let leads_on = end <= count && (end == count || self.length(end).is_some());
        if !leads_on && let Some(next) = self.next_beginning(end.min(count)) {
            return self.skip_to(next, Why::Length).map(Item::Skipped);
        }
        if end > count {
            return None;
        }
        let record = self.words.range(self.at, end);
        self.advance(end);
        let word = |at| record.get(at).unwrap_or(0);
        // In this layout other words lie between the first address and the callers.
        let RawHeader { address, tsc, task } = RawHeader::read(word);
        let stack = super::Stack { first: address, callers: record.range(RawHeader::WORDS, length) };
        Some(Item::Sample(Sample { tick: 0, tsc, task, stack, is_snapshot: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_cut_record_costs_only_itself() {
        let words = [MAGIC + 5, 1, 2, 3, 4, MAGIC + 6, 11, 12, MAGIC + 4, 21, 22, 23, 99, MAGIC + 5, 31, 32];
        let data = bytes(&words);
        let mut records = RawRecords::new(&data, 100);
        let Some(Item::Sample(first)) = records.next() else { panic!("no first sample") };
        assert_eq!((first.tsc, first.task, first.stack.iter().collect::<Vec<_>>()), (2, 3, vec![1, 4]));
        let Some(Item::Skipped(truncated)) = records.next() else { panic!("the truncated one is not noticed") };
        assert_eq!(truncated, Skipped { from: 105, words: 3, why: Why::Length });
        let Some(Item::Sample(third)) = records.next() else { panic!("no third") };
        assert_eq!(third.stack.iter().collect::<Vec<_>>(), [21]);
        let Some(Item::Skipped(noise)) = records.next() else { panic!("the stray word is not noticed") };
        assert_eq!(noise, Skipped { from: 112, words: 1, why: Why::NoRecord });
        assert!(records.next().is_none());
        assert_eq!((records.position(), records.used_bytes()), (113, 13 * 8));
    }

    #[test]
    fn a_caller_that_looks_like_a_beginning_is_a_caller_if_the_length_leads_to_another_record_or_to_the_end() {
        let record = [MAGIC + 7, 1, 2, 3, MAGIC + 5, 9, 10];
        for rest in [&[][..], &[MAGIC + 4, 21, 22, 23]] {
            let data = bytes(&[&record, rest].concat());
            let mut records = RawRecords::new(&data, 0);
            let Some(Item::Sample(first)) = records.next() else { panic!("it is cut") };
            assert_eq!(first.stack.iter().collect::<Vec<_>>(), [1, MAGIC + 5, 9, 10]);
            assert_eq!(records.count(), rest.len() / 4);
        }
    }
}
