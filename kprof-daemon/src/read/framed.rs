//! Parses framed records (protocol 1) in order, and skips damage.
//!
//! ```text
//! expected ─► ┌ word 0: magic, version, kind, n ┐
//!             │ word 1: position == expected?   │  a record counts only if it lies where it says,
//!             │ ...                             │  and ends where the next one begins
//! expected+n ►└ next record, or the end of what was read
//! ```
//!
//! In: bytes and the position of the first word. Out: [`Item`]s; `position` and `used_bytes` say how far the bytes have
//! been parsed. Runs in: user process. Positions in one stream have no gaps, so every word is either part of a record
//! or counted as skipped. If some consecutive records agree that records are missing before them (another reader took
//! them), that gap is counted too. A record that is not complete yet is left for the next read.

pub mod plain;

use super::{EventRecord, Item, Meta, Sample, Skipped, Stack, Why, Words};
use kprof_format::event::Event;
use kprof_format::record::{BadHeader, Header, Kind, MAGIC, MetaHeader, POSITION, SampleHeader};

/// How many consecutive records must agree that records are missing before them. One damaged word must not void the
/// records after it, which would all have a lower position than expected.
const AGREEING_RECORDS: usize = 4;

/// Iterates over the records of one read.
#[derive(Debug)]
pub struct Framed<'a> {
    words: Words<'a>,
    at: usize,
    position: Option<u64>,
    item_from: u64,
    /// Whether following the lengths from record to record meets every word that looks like the first word of a record.
    /// Then no length can reach over another record. `None`: this was not needed yet.
    is_clean: Option<bool>,
}

/// Words that are missing before a record.
struct Gap {
    words: u64,
    /// The number of consecutive records whose positions agree that these words are missing, at most
    /// [`AGREEING_RECORDS`].
    records: usize,
    /// Whether the last of these records ends at the end of the bytes that were read, or after it.
    is_the_end: bool,
}

/// What begins at one word.
enum Found {
    Whole { kind: Option<Kind>, unknown: u8, words: usize },
    Incomplete,
    Bad(Why),
}

impl<'a> Framed<'a> {
    /// The records in `bytes`; the first one lies at `position`. `None` means that the position is not known (a ring
    /// that overwrites): the first record's own position is then believed.
    pub fn new(bytes: &'a [u8], position: Option<u64>) -> Self {
        Self { words: Words::new(bytes), at: 0, position, item_from: position.unwrap_or(0), is_clean: None }
    }

    /// Position of the next word, if any record has been seen.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Position of the first word of the last item.
    pub fn item_from(&self) -> u64 {
        self.item_from
    }

    /// Number of bytes that have been parsed. The rest is the beginning of a record whose end has not been read yet.
    pub fn used_bytes(&self) -> usize {
        self.at * 8
    }

    /// The position of word `at`.
    fn expected(&self, at: usize) -> Option<u64> {
        self.position.map(|here| here + (at - self.at) as u64)
    }

    /// The words that are missing before the current word, according to the positions in the records that begin there.
    fn gap(&self) -> Option<Gap> {
        let here = self.words.get(self.at + POSITION)?;
        let words = here.checked_sub(self.position?).filter(|words| *words > 0)?;
        let (mut at, mut records) = (self.at, 0);
        while records < AGREEING_RECORDS
            && let Some(header) = self.words.get(at).and_then(|word| Header::decode(word).ok())
            && self.words.get(at + POSITION) == here.checked_add((at - self.at) as u64)
        {
            at += usize::from(header.words);
            records += 1;
        }
        Some(Gap { words, records, is_the_end: at >= self.words.count() })
    }

    fn skip_gap(&mut self, words: u64) -> Skipped {
        let from = self.position.unwrap_or(0);
        (self.item_from, self.position) = (from, Some(from + words));
        Skipped { from, words, why: Why::Gap }
    }

    /// Whether a record begins at word `at` whose own position is that of this word.
    fn look(&self, at: usize) -> Found {
        let Some(first) = self.words.get(at) else { return Found::Incomplete };
        let (kind, unknown, words) = match Header::decode(first) {
            Ok(header) => (Some(header.kind), 0, usize::from(header.words)),
            Err(BadHeader::Kind { kind, words }) if words >= 4 => (None, kind, usize::from(words)),
            Err(BadHeader::Version(version)) => return Found::Bad(Why::Version(version)),
            Err(BadHeader::Length(_)) => return Found::Bad(Why::Length),
            Err(BadHeader::Magic(_) | BadHeader::Kind { .. }) => return Found::Bad(Why::NoRecord),
        };
        let Some(position) = self.words.get(at + POSITION) else { return Found::Incomplete };
        if self.expected(at).is_some_and(|expected| expected != position) {
            return Found::Bad(Why::Position);
        }
        if at + words > self.words.count() { Found::Incomplete } else { Found::Whole { kind, unknown, words } }
    }

    /// The first word after the current one and before word `end` at which a record with the right position begins.
    #[inline]
    fn next_sound(&self, end: usize) -> Option<usize> {
        let is_sound = |at| matches!(self.look(at), Found::Whole { .. } | Found::Incomplete);
        let words = self.words.range(self.at + 1, end);
        (self.at + 1..)
            .zip(words.iter())
            .find(|(at, word)| (word >> 32) as u32 == MAGIC && is_sound(*at))
            .map(|(at, _)| at)
    }

    fn skip_to(&mut self, end: usize, why: Why) -> Option<Skipped> {
        let from = self.position.unwrap_or(0);
        self.item_from = from;
        let words = (end - self.at) as u64;
        self.at = end;
        self.position = self.position.map(|position| position + words);
        (words > 0).then_some(Skipped { from, words, why })
    }

    fn damaged(&mut self, why: Why) -> Option<Item<'a>> {
        let end = self.next_sound(self.words.count()).unwrap_or(self.words.count());
        if self.position.is_none() {
            // The record after the damage says where both lie.
            let next = self.words.get(end + POSITION);
            self.position = next.and_then(|next| next.checked_sub((end - self.at) as u64));
        }
        self.skip_to(end, why).map(Item::Skipped)
    }

    /// Whether a record may begin at word `at`: its magic or its position is right, or nothing has been read there yet.
    /// One damaged word can destroy one of the two, not both.
    fn may_begin(&self, at: usize) -> Option<bool> {
        let Some(first) = self.words.get(at) else { return Some(true) };
        if (first >> 32) as u32 == MAGIC {
            return Some(true);
        }
        let position = self.words.get(at + POSITION)?;
        Some(self.expected(at) == Some(position))
    }

    fn item(kind: Kind, record: Words<'a>) -> Option<Item<'a>> {
        let word = |at| record.get(at).unwrap_or(0);
        if kind.is_meta() {
            let MetaHeader { tsc, first, second, third, text_bytes, .. } = MetaHeader::read(word);
            let length = usize::try_from(text_bytes).ok()?;
            let text = record.range(MetaHeader::WORDS, record.count());
            if length.div_ceil(8) != text.count() {
                return None;
            }
            return Some(Item::Meta(Meta { kind, tsc, values: [first, second, third], text: text.bytes(length)? }));
        }
        if kind == Kind::Event {
            let (event, stack) = Event::of(word, record.count())?;
            return Some(Item::Event(EventRecord { event, stack: record.range(stack, record.count()) }));
        }
        let SampleHeader { tick, tsc, task, address, .. } = SampleHeader::read(word);
        let stack = Stack { first: address, callers: record.range(SampleHeader::WORDS, record.count()) };
        Some(Item::Sample(Sample { tick, tsc, task, stack, is_snapshot: kind == Kind::SnapshotSample }))
    }
}

/// Whether a word looks like the first word of a record.
#[inline(always)]
fn begins(word: &[u8; 8]) -> bool {
    word.last_chunk() == Some(&MAGIC.to_le_bytes())
}

/// Whether one of these words looks like the first word of a record, so that a damaged length may reach over it.
pub fn may_hide_record(callers: &[[u8; 8]]) -> bool {
    callers.iter().any(begins)
}

/// Whether following the lengths meets every word that looks like the first of a record, and no other word. Both halves
/// of a word are compared, because that takes half as many instructions; a lower half that looks like one is rare.
fn is_clean(words: &[[u8; 8]]) -> bool {
    let halves = words.as_flattened().as_chunks().0.iter();
    let beginnings: u32 = halves.map(|half| u32::from(u32::from_le_bytes(*half) == MAGIC)).sum();
    let (mut at, mut met) = (0, 0);
    while let Some(word) = words.get(at) {
        let length = usize::from(u64::from_le_bytes(*word) as u16);
        if !begins(word) || length == 0 {
            return false;
        }
        at += length;
        met += 1;
    }
    met == beginnings
}

impl<'a> Iterator for Framed<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        if self.at >= self.words.count() {
            return None;
        }
        let (kind, unknown, words) = match self.look(self.at) {
            Found::Whole { kind, unknown, words } => (kind, unknown, words),
            Found::Bad(why) => {
                return match self.gap() {
                    Some(Gap { words, records: AGREEING_RECORDS.., .. }) => Some(Item::Skipped(self.skip_gap(words))),
                    // The next read decides.
                    Some(Gap { records: 2.., is_the_end: true, .. }) => None,
                    _ => self.damaged(why),
                };
            }
            // The length reaches past the end of what was read. If it also reaches over a valid record it is damaged;
            // otherwise the rest of the record has not been read yet.
            Found::Incomplete if self.next_sound(self.words.count()).is_some() => return self.damaged(Why::Length),
            Found::Incomplete => return None,
        };
        let end = self.at + words;
        if self.position.is_none() {
            self.position = self.words.get(self.at + POSITION);
            if matches!(self.look(end), Found::Bad(Why::Position)) {
                self.position = None;
                return self.damaged(Why::Position);
            }
        }
        let rest = &self.words.whole()[self.at..];
        if !*self.is_clean.get_or_insert_with(|| is_clean(rest)) && self.next_sound(end).is_some() {
            return self.damaged(Why::Length);
        }
        match self.may_begin(end) {
            Some(true) => {}
            Some(false) => return self.damaged(Why::Length),
            None => return None,
        }
        let record = self.words.range(self.at, end);
        let Some(kind) = kind else { return self.skip_to(end, Why::UnknownKind(unknown)).map(Item::Skipped) };
        let Some(item) = Self::item(kind, record) else { return self.skip_to(end, Why::Body).map(Item::Skipped) };
        self.at = end;
        self.item_from = self.position.unwrap_or(0);
        self.position = self.position.map(|position| position + words as u64);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof_format::record::VERSION;

    /// The words of a sample without callers.
    const W: usize = SampleHeader::WORDS;

    /// Samples at position 0 and after, each with this many callers.
    fn samples(callers: &[usize]) -> Vec<[u8; 8]> {
        let mut words = Vec::new();
        for callers in callers {
            let header = SampleHeader { position: words.len() as u64, address: 0x1000, ..SampleHeader::default() };
            let callers: Vec<u64> = (0x1001..).take(*callers).collect();
            words.extend(header.record(Kind::Sample, &callers));
        }
        words.into_iter().map(u64::to_le_bytes).collect()
    }

    /// The first word of a sample with this length.
    fn first_of(words: usize) -> [u8; 8] {
        Header { kind: Kind::Sample, words: words as u16 }.encode().to_le_bytes()
    }

    fn items(words: &[[u8; 8]]) -> Vec<String> {
        let name = |item| match item {
            Item::Sample(sample) => format!("sample of {}", 1 + sample.stack.callers.count()),
            Item::Skipped(skipped) => format!("{} words: {:?}", skipped.words, skipped.why),
            other => format!("{other:?}"),
        };
        Framed::new(words.as_flattened(), Some(0)).map(name).collect()
    }

    #[test]
    fn a_length_that_reaches_over_another_record_costs_only_its_own() {
        let mut words = samples(&[1, 2, 3]);
        assert_eq!(items(&words), ["sample of 2", "sample of 3", "sample of 4"]);
        words[0] = first_of(W + 1 + W + 2);
        assert_eq!(items(&words), [format!("{} words: Length", W + 1).as_str(), "sample of 3", "sample of 4"]);
    }

    #[test]
    fn a_length_that_is_too_small_costs_only_its_own_record() {
        let mut words = samples(&[3, 2]);
        words[0] = first_of(W + 1);
        assert_eq!(items(&words), [format!("{} words: Length", W + 3).as_str(), "sample of 3"]);
    }

    #[test]
    fn a_word_like_the_first_of_a_record_is_passed_over_if_its_position_is_another() {
        let mut words = samples(&[3, 2]);
        words[0] = [0; 8];
        words[W - 1] = first_of(W);
        assert_eq!(items(&words), [format!("{} words: NoRecord", W + 3).as_str(), "sample of 3"]);
    }

    #[test]
    fn without_a_position_the_record_after_the_damage_says_where_both_lie() {
        let mut words = samples(&[1, 2]);
        let second = W + 1;
        (words[0], words[second + POSITION]) = ([0; 8], (100 + second as u64).to_le_bytes());
        let mut records = Framed::new(words.as_flattened(), None);
        let Some(Item::Skipped(skipped)) = records.next() else { panic!("the damage is not told") };
        assert_eq!(skipped, Skipped { from: 100, words: second as u64, why: Why::NoRecord });
        assert!(matches!(records.next(), Some(Item::Sample(_))));
        let end = 100 + words.len() as u64;
        assert_eq!((records.item_from(), records.position()), (100 + second as u64, Some(end)));
    }

    #[test]
    fn a_record_of_an_unknown_kind_that_is_shorter_than_any_is_no_record() {
        for length in [0, 3] {
            let mut words = samples(&[1, 1]);
            words[W + 1] = (u64::from(MAGIC) << 32 | u64::from(VERSION) << 24 | 0xee << 16 | length).to_le_bytes();
            assert_eq!(items(&words), ["sample of 2", format!("{} words: NoRecord", W + 1).as_str()]);
        }
    }

    #[test]
    fn records_are_clean_if_their_lengths_meet_every_word_that_looks_like_a_beginning_and_no_other() {
        let words = samples(&[1, 2, 3]);
        let second = W + 1;
        assert!(is_clean(&words));
        assert!(is_clean(&words[..3 * W + 2]), "the rest of the last one has not been read yet");
        let [mut hides_one, mut leads_astray, mut stands_still] = [(); 3].map(|()| words.clone());
        hides_one[second - 1] = words[0];
        assert!(!is_clean(&hides_one));
        // As many words are met as look like beginnings, but one of them is not met.
        (leads_astray[second - 1], leads_astray[second]) = (words[0], (W as u64 + 2).to_le_bytes());
        assert!(!is_clean(&leads_astray));
        stands_still[second] = (u64::from(MAGIC) << 32).to_le_bytes();
        assert!(!is_clean(&stands_still));
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_skipped_by_its_length() {
        for length in [4, 5, 6] {
            let mut words = samples(&[1]);
            let first = u64::from(MAGIC) << 32 | u64::from(VERSION) << 24 | 0xee << 16 | length;
            words.extend([first, words.len() as u64].map(u64::to_le_bytes));
            words.extend((2..length).map(u64::to_le_bytes));
            assert_eq!(items(&words), ["sample of 2".to_owned(), format!("{length} words: UnknownKind(238)")]);
        }
    }
}
