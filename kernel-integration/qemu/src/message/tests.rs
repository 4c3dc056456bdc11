//! Tests: each message is read, and any other bytes are an error.

use super::*;
use crate::calls::Kind;
use crate::totals::Counts;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn messages_are_read_one_after_the_other_and_a_damaged_one_is_an_error() {
    let stream = bytes(&[1 | 3 << 8 | 7 << 32, 5, 10, 0x202, 8, 20, 6, 30, 2 | 1 << 8 | 1 << 32, 9, 3 << 8 | 3]);
    let from = &mut &stream[..];
    let sample = Sample { cpu: 3, time: 5, rip: 10, rflags: 0x202, cs: 8, candidate: 20, end: 6, callers: vec![30] };
    assert_eq!(read(from).unwrap(), Some(Message::Sample(sample)));
    assert_eq!(read(from).unwrap(), Some(Message::Idle { cpu: 1 }));
    assert_eq!(read(from).unwrap(), Some(Message::Coalesced { cpu: 3 }));
    assert_eq!(read(from).unwrap(), None);
    for damaged in [&stream[..60], &stream[..4], &bytes(&[9])[..], &bytes(&[1 | 2000 << 32])[..]] {
        assert!(read(&mut &damaged[..]).is_err(), "{damaged:?}");
    }
}

#[test]
fn counts_are_read_and_a_run_without_all_its_lengths_is_an_error() {
    let lengths = [0x1111_2222_3333_4444, 0x5];
    let run = [5 | 6 << 32, 9, 0x1000, 1, 17, lengths[0], lengths[1]];
    let context = [6 | 4 << 32, 3, 2, 70, 5];
    let totals = [7 | 12 << 32, 100, u64::MAX, 0, 0, 4, 3, 2, 1, 9, 0, 0, 0];
    let stream = bytes(&[&run[..], &context, &totals].concat());
    let from = &mut &stream[..];
    let lengths = [4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 5].to_vec();
    let run = Run { count: 9, start: 0x1000, is_user: true, is_unknown: false, lengths };
    assert_eq!(read(from).unwrap(), Some(Message::Run(run.clone())));
    let stream = bytes(&[5 | 5 << 32, 9, 0x1000, 2, 1, 4]);
    let unknown = Run { is_user: false, is_unknown: true, lengths: vec![4], ..run };
    assert_eq!(read(&mut &stream[..]).unwrap(), Some(Message::Run(unknown)));
    let context = Context { parent: 3, function: 2, instructions: 70, calls: 5 };
    assert_eq!(read(from).unwrap(), Some(Message::Context(context)));
    let counts = Counts { interrupts: 4, faults: 3, told: 2, misguessed: 1, switches: 9, unexplained: 0 };
    let totals = Totals { executed: 100, counts, ..Totals::default() };
    assert_eq!(read(from).unwrap(), Some(Message::Totals(totals)));
    assert_eq!(Totals::read(&totals.words()), Some(totals));
    let stream = bytes(&[8 | 1 << 8 | 3 << 32, 3, 70, 9, 9 | 1 << 8 | 4 << 32, 0x1000, 8, 3, 1]);
    let (from, part) = (&mut &stream[..], Part { cpu: 1, context: 3, instructions: 70, task: 9 });
    assert_eq!(read(from).unwrap(), Some(Message::Part(part)));
    let visit = Visit { cpu: 1, rip: 0x1000, cs: 8, context: 3, is_inside: true };
    assert_eq!(read(from).unwrap(), Some(Message::Visit(visit)));
    assert!(read(&mut &bytes(&[5 | 5 << 32, 9, 0x1000, 1, 17, 0])[..]).is_err());
}

#[test]
fn calls_and_probes_are_read() {
    let words = |kind: u64, all: &[u64]| [&[kind | (all.len() as u64) << 32], all].concat();
    let all = [
        words(10, &[39, 166, 5, 1]),
        words(11, &[4, 39, 7, 166]),
        words(12, &[2, 9, 8, 80, 3, 20]),
        words(13, &[2, 5, 9]),
        words(14, &[2, 11, 99, 1, 2, 3, 4, 5, 6]),
        words(15, &[2, 130, 7]),
        words(16, &[3, 0x1000, 8, 4]),
        words(20, &[]),
        words(19, &[]),
    ];
    let stream = bytes(&all.concat());
    let from = &mut &stream[..];
    let mut next = || read(from).unwrap().unwrap();
    assert_eq!(next(), Message::Call(Call { number: 39, own: 166, interrupts: 5, has_returned: true }));
    let held = Held { kind: Kind::Calls, number: 39, function: 7, instructions: 166 };
    assert_eq!(next(), Message::Held(held));
    let probed = Probed { number: 2, calls: 9, returned: 8, sum: 80, min: 3, max: 20 };
    assert_eq!(next(), Message::Probed(probed));
    assert_eq!(next(), Message::Key(2, 5, 9));
    assert_eq!(next(), Message::Hit(Hit { probe: 2, context: 11, time: 99, arguments: [1, 2, 3, 4, 5, 6] }));
    assert_eq!(next(), Message::Times(2, 130, 7));
    let visit = Visit { cpu: 0, rip: 0x1000, cs: 8, context: 4, is_inside: true };
    assert_eq!(next(), Message::Stop(3, visit));
    assert_eq!(next(), Message::Reset);
    assert_eq!(next(), Message::End);
    assert!(read(&mut &bytes(&words(10, &[39, 166, 5]))[..]).is_err());
}
