//! The samples of a read that need no closer look, which nearly all samples are.
//!
//! In: the records of a read. Out: samples whose words are decoded where they are needed. Runs in: user process, the
//! hot path of the daemon. So the loop over the samples keeps few enough values for the registers, and computes nothing
//! for each sample that can be computed once for all. A record that is not plainly a sample, in order and whole, ends
//! the loop and is left to the caller.

use super::{Framed, begins};
use crate::read::{Sample, Stack, Words};
use kprof_format::record::{Header, Kind, MAX_WORDS, SampleHeader};

/// The words of the shortest sample: before its callers.
const SHORTEST: usize = SampleHeader::WORDS;

/// The words of a sample before its callers.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a>(&'a [[u8; 8]; SHORTEST]);

impl Head<'_> {
    #[inline(always)]
    fn word(self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at])
    }

    #[inline(always)]
    fn position(self) -> u64 {
        self.word(SampleHeader::AT.position)
    }

    /// The number of the tick.
    #[inline(always)]
    pub fn tick(self) -> u64 {
        self.word(SampleHeader::AT.tick)
    }

    /// The TSC.
    #[inline(always)]
    pub fn tsc(self) -> u64 {
        self.word(SampleHeader::AT.tsc)
    }

    /// The task id.
    #[inline(always)]
    pub fn task(self) -> u64 {
        self.word(SampleHeader::AT.task)
    }

    /// The first address.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.word(SampleHeader::AT.address)
    }
}

/// A sample of [`Framed::each_plain`]. It is decoded where a word is needed, so that the loop over the samples keeps
/// few values.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    /// The words before the callers.
    pub head: Head<'a>,
    /// Callers and markers, innermost first, undecoded.
    pub callers: &'a [[u8; 8]],
}

impl<'a> Plain<'a> {
    /// The sample.
    pub fn sample(self) -> Sample<'a> {
        let Self { head, callers } = self;
        let stack = Stack { first: head.address(), callers: Words::of(callers) };
        Sample { tick: head.tick(), tsc: head.tsc(), task: head.task(), stack, is_snapshot: false }
    }
}

/// Samples that follow each other, none with a lower TSC than the one before it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// How many there are.
    pub samples: u64,
    /// The first one.
    pub first: Head<'a>,
    /// The last one.
    pub last: Head<'a>,
}

impl<'a> Framed<'a> {
    /// Passes samples to `take`, up to the first record that needs a closer look, or whose sample `take` refuses. The
    /// next record may then be one of any kind. Nearly every record is passed. `take` must refuse a sample whose
    /// callers [hide the beginning of a record](super::may_hide_record), unless it has taken the same callers before:
    /// the position of a record is one of its words, and no position comes twice, so they do not hide one now. `None`
    /// if no sample was taken.
    #[inline(always)]
    pub fn each_plain(&mut self, mut take: impl FnMut(Plain<'a>) -> bool) -> Option<Run<'a>> {
        const FIRST: u64 = Header { kind: Kind::Sample, words: SHORTEST as u16 }.encode();
        let words = self.words.whole();
        let (mut position, mut rest) = (self.position?, words.get(self.at..)?);
        let first = Head(rest.first_chunk()?);
        let (mut last, mut samples) = (first, 0);
        while let Some((head, behind)) = rest.split_first_chunk() {
            // The number of callers; a greater number than there can be if this is not the first word of a sample.
            let head = Head(head);
            let callers = head.word(0).wrapping_sub(FIRST);
            if callers > (MAX_WORDS - SHORTEST) as u64 || head.position() != position || head.tsc() < last.tsc() {
                break;
            }
            let Some((callers, next)) = behind.split_at_checked(callers as usize) else { break };
            if !next.first().is_none_or(begins) || !take(Plain { head, callers }) {
                break;
            }
            position += u64::from(head.word(0) as u16);
            (rest, last, samples) = (next, head, samples + 1);
        }
        (self.at, self.position) = (words.len() - rest.len(), Some(position));
        (samples > 0).then_some(Run { samples, first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Item;

    /// A sample at this position with its TSC and this many callers.
    fn sample(position: u64, tsc: u64, callers: u64) -> Vec<u64> {
        let header = SampleHeader { position, tick: tsc / 10, tsc, address: 5, ..SampleHeader::default() };
        let callers: Vec<u64> = (0..callers).map(|caller| 0x100 + caller).collect();
        header.record(Kind::Sample, &callers).collect()
    }

    /// The TSCs of the samples that are passed from the beginning of `words`, then of the run, then the words used.
    fn run(words: &[u64], refused: Option<u64>) -> (Vec<u64>, Option<(u64, u64, u64)>, usize) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut records = Framed::new(&bytes, Some(0));
        let mut passed = Vec::new();
        let run = records.each_plain(|plain| {
            let sample = plain.sample();
            assert_eq!((sample.tick, sample.task, sample.stack.first), (sample.tsc / 10, 0, 5));
            assert!(sample.stack.callers.iter().eq(0x100..0x100 + plain.callers.len() as u64));
            let is_taken = refused != Some(sample.tsc);
            passed.extend(is_taken.then_some(sample.tsc));
            is_taken
        });
        let run = run.map(|run| (run.samples, run.first.tsc(), run.last.tsc()));
        (passed, run, records.used_bytes() / 8)
    }

    #[test]
    fn samples_are_passed_up_to_the_first_that_is_not_plain() {
        let (one, two, three) = (sample(0, 30, 0), sample(6, 30, 3), sample(15, 70, 1));
        let all = [one.clone(), two.clone(), three].concat();
        assert_eq!(run(&all, None), (vec![30, 30, 70], Some((3, 30, 70)), 22));
        assert_eq!(run(&all, Some(70)), (vec![30, 30], Some((2, 30, 30)), 15));
        assert_eq!(run(&all, Some(30)), (vec![], None, 0));
        assert_eq!(run(&all[..21], None), (vec![30, 30], Some((2, 30, 30)), 15), "its end has not been read yet");
        assert_eq!(run(&[], None), (vec![], None, 0));
        for (word, value) in [
            (6, Header { kind: Kind::SnapshotSample, words: 9 }.encode()),
            (6, Header { kind: Kind::Event, words: 9 }.encode()),
            (6, Header { kind: Kind::Sample, words: 5 }.encode()),
            (6, Header { kind: Kind::Sample, words: 8 }.encode()),
            (6, Header { kind: Kind::Sample, words: u16::MAX }.encode()),
            (7, 7),
            (9, 29),
        ] {
            let mut damaged = all.clone();
            damaged[word] = value;
            assert_eq!(run(&damaged, None), (vec![30], Some((1, 30, 30)), 6), "word {word} is {value:x}");
        }
        let no_beginning = [one, vec![0], two[1..].to_vec()].concat();
        assert_eq!(run(&no_beginning, None), (vec![], None, 0), "the first one does not lead to another record");
    }

    #[test]
    fn the_longest_sample_is_plain_and_a_lower_tsc_begins_another_run() {
        let longest = (MAX_WORDS - SHORTEST) as u64;
        let words = [sample(0, 50, longest), sample(1024, 40, 0), sample(1030, 60, 0)].concat();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut records = Framed::new(&bytes, Some(0));
        let next = |records: &mut Framed<'_>| records.each_plain(|_| true).map(|run| (run.samples, run.last.tsc()));
        assert_eq!(next(&mut records), Some((1, 50)));
        assert!(matches!(records.next(), Some(Item::Sample(Sample { tsc: 40, .. }))), "it is not lost");
        assert_eq!(next(&mut records), Some((1, 60)));
        assert_eq!(records.used_bytes(), bytes.len());
        let too_long = [sample(0, 50, longest + 1), sample(1025, 60, 0)].concat();
        assert_eq!(run(&too_long, None), (vec![], None, 0));
    }
}
