//! Records whose positions do not follow each other: some are missing, or a position is damaged.
//!
//! In: framed records, some of them missing or changed. Out: what the parser gives. It must not take a damaged position
//! for a gap, because every record after it would then have a lower position than expected.

use kprof_daemon::read::framed::Framed;
use kprof_daemon::read::{Item, Skipped, Why};
use kprof_format::record::{Header, Kind};

const WORDS: u64 = 8;

/// The bytes of samples at these positions.
fn bytes(positions: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let header = Header { kind: Kind::Sample, words: WORDS as u16 }.encode();
    let record = |at: u64| [header, at, 1, 2, 3, 4, 5, 6];
    positions.into_iter().flat_map(record).flat_map(u64::to_le_bytes).collect()
}

/// The positions of the samples that are found, and what is skipped. `is_the_end`: nothing more will be read.
fn parse(bytes: &[u8], position: u64, is_the_end: bool) -> (Vec<u64>, Vec<(u64, u64, Why)>, usize) {
    let (mut samples, mut skipped) = (Vec::new(), Vec::new());
    let mut records = Framed::new(bytes, Some(position));
    loop {
        let rest = |records: &mut Framed<'_>| is_the_end.then(|| records.give_up_rest()).flatten().map(Item::Skipped);
        match records.next().or_else(|| rest(&mut records)) {
            Some(Item::Sample(_)) => samples.push(records.item_from()),
            Some(Item::Skipped(Skipped { from, words, why })) => skipped.push((from, words, why)),
            Some(Item::Meta(_) | Item::Event(_)) => panic!("there is none"),
            None => return (samples, skipped, bytes.len() - records.used_bytes()),
        }
    }
}

fn positions(from: u64, records: u64) -> impl Iterator<Item = u64> {
    (0..records).map(move |record| from + record * WORDS)
}

#[test]
fn records_that_are_missing_are_one_gap_and_those_after_it_count() {
    let read = bytes(positions(0, 5).chain(positions(800, 10)));
    let (samples, skipped, left) = parse(&read, 0, false);
    assert_eq!(samples, positions(0, 5).chain(positions(800, 10)).collect::<Vec<_>>());
    assert_eq!((skipped, left), (vec![(40, 760, Why::Gap)], 0));
}

#[test]
fn damaged_positions_that_agree_cost_only_their_records() {
    for damaged in 1..4 {
        let mut all: Vec<u64> = positions(0, 1000).collect();
        // A flipped bit of the same value in consecutive records looks like a gap before them.
        all[100..100 + damaged].iter_mut().for_each(|position| *position |= 1 << 40);
        let (samples, skipped, left) = parse(&bytes(all.iter().copied()), 0, false);
        assert_eq!(samples.len(), 1000 - damaged);
        let words: u64 = skipped.iter().map(|(_, words, _)| words).sum();
        assert_eq!((words, left), (damaged as u64 * WORDS, 0));
        assert!(skipped.iter().all(|(from, _, why)| *from < 8000 && *why == Why::Position), "{skipped:?}");
    }
}

#[test]
fn too_few_records_after_a_gap_are_left_for_the_next_read_or_believed_at_the_end() {
    for records in 2..4 {
        let read = bytes(positions(0, 5).chain(positions(800, records)));
        let (samples, skipped, left) = parse(&read, 0, false);
        assert_eq!((samples.len(), skipped, left as u64), (5, vec![], records * WORDS * 8));
        let more = bytes(positions(800, records + 4));
        let (samples, skipped, left) = parse(&more, 40, false);
        assert_eq!((samples.len() as u64, skipped, left), (records + 4, vec![(40, 760, Why::Gap)], 0));
        let (samples, skipped, left) = parse(&read, 0, true);
        assert_eq!((samples.len() as u64, skipped, left), (5 + records, vec![(40, 760, Why::Gap)], 0));
    }
}
