//! What is written is read again, and other bytes are an error.
//!
//! In: samples of every shape, and foreign bytes. Out: passed or failed. Runs in: the host's tests.

use super::*;
use crate::marker::MARKER_PAGE;
use std::vec::Vec;

const K: u64 = 0xffff_ffff_8020_0000;

fn write(writer: &mut Writer, times: Times, stack: &[u64]) -> Vec<u8> {
    let mut room = [0; MAX_SAMPLE_BYTES];
    let callers: Vec<[u8; 8]> = stack[1..].iter().map(|word| word.to_le_bytes()).collect();
    let length = writer.write(times, stack[0], &callers, &mut room);
    room[..length].to_vec()
}

/// Checks that the samples are read again. Returns the bytes of each.
fn survive(samples: &[(Times, impl AsRef<[u64]>)]) -> Vec<Vec<u8>> {
    let mut writer = Writer::default();
    let pieces: Vec<Vec<u8>> =
        samples.iter().map(|(times, stack)| write(&mut writer, *times, stack.as_ref())).collect();
    let bytes = pieces.concat();
    let (mut reader, mut rest) = (Reader::default(), &bytes[..]);
    for (times, stack) in samples {
        assert_eq!(reader.read(&mut rest), Some(Ok(*times)));
        assert_eq!(reader.stack(), stack.as_ref());
    }
    assert_eq!(reader.read(&mut rest), None);
    // A truncated input reads as fewer samples or as an error, never as other samples.
    let mut reader = Reader::default();
    for end in 0..bytes.len().min(300) {
        reader.reset();
        let (mut rest, mut count) = (&bytes[..end], 0);
        while let Some(Ok(times)) = reader.read(&mut rest) {
            assert_eq!((times, reader.stack()), (samples[count].0, samples[count].1.as_ref()));
            count += 1;
        }
    }
    pieces
}

#[test]
fn numbers_of_every_length_survive() {
    for shift in 0..64 {
        for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift, 0x9e37_79b9_7f4a_7c15 >> shift] {
            let (block, length) = varint(value);
            let mut bytes = &block[..length];
            assert_eq!((take_varint(&mut bytes), bytes), (Ok(value), &[][..]), "{value:x}");
            assert_eq!(length, ((u64::BITS - (value | 1).leading_zeros()) as usize).div_ceil(7), "{value:x}");
            // The same as differences of TSC, address, tick and task, in both directions.
            let times = |value: u64| Times { tick: value, tsc: value, task: value };
            survive(&[(times(value), [value, K]), (times(0), [0, K]), (times(value.wrapping_neg()), [!value, K])]);
        }
    }
}

#[test]
fn samples_of_every_shape_survive() {
    let times = |tick, tsc, task| Times { tick, tsc, task };
    let long = [K; MAX_STACK_WORDS];
    // Every word as a varint or as itself of ten bytes.
    let far: Vec<u64> = (0..MAX_STACK_WORDS as u64).map(|word| (word % 2) << 63 | word << 40).collect();
    let samples: [(Times, &[u64]); 12] = [
        (times(1, 100, 7), &[K, MARKER_PAGE + 1, K + 5, K + 900]),
        (times(2, 90, 7), &[K + 3, K + 900]),
        (times(u64::MAX, u64::MAX, u64::MAX), &[0]),
        (times(0, 0, 0), &[u64::MAX, MARKER_PAGE, 0x7fff_dead_beef, 1 << 63, 1 << 62, K]),
        (times(5, 1 << 63, 1), &long),
        (times(6, 0, 1), &long),
        (times(6, 0, 1), &[MARKER_PAGE + 0x121]),
        (times(7, 0, 1), &far),
        (times(8, 0, 1), &far[1..]),
        (times(9, 0, 1), &[MARKER_PAGE + 0x121]),
        (times(10, 1, 1), &[K]),
        (times(11, 2, 1), &long),
    ];
    survive(&samples);
}

#[test]
fn a_sample_with_known_callers_costs_a_few_bytes() {
    let stack = [K + 0x1234, MARKER_PAGE + 1, K + 0x88, K + 0x4000, MARKER_PAGE + 0x300, K + 0x9999];
    let other = [K + 0x77_1234, K + 0x4000, MARKER_PAGE + 0x300, K + 0x9999];
    let mut near = stack;
    near[0] += 0x3a;
    let times = |tick| Times { tick, tsc: (1 << 40) + 2_200_000 * tick, task: 3 };
    let pieces = survive(&[(times(1), &stack[..]), (times(2), &other), (times(3), &near), (times(4), &other)]);
    assert_eq!(pieces[2..].iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    // The other callers share their outer words with the first, so only one caller is written.
    assert!(pieces[1].len() <= 14, "{} bytes", pieces[1].len());
}

#[test]
fn callers_that_differ_in_any_word_are_never_taken_for_each_other() {
    // Most of them have the same hash.
    let stacks = (0..9_usize).flat_map(|length| {
        (0..=length).map(move |changed| {
            let mut stack = std::vec![K; length + 1];
            stack[changed] += 1;
            stack
        })
    });
    let stacks: Vec<Vec<u64>> = stacks.collect();
    let order = (0..4000).map(|n: usize| n * n * 7 % stacks.len());
    let samples: Vec<_> =
        order.zip(0..).map(|(at, tick)| (Times { tick, tsc: 50 * tick, task: 0 }, stacks[at].clone())).collect();
    survive(&samples);
}

#[test]
fn any_number_of_callers_survives_and_those_that_repeat_stay_known() {
    for (words, kinds) in [(3, 200), (3, 256), (3, 257), (3, 5000), (40, 150), (41, 200), (1000, 7), (1000, 9)] {
        let samples: Vec<_> = (0..3 * kinds)
            .map(|tick| {
                let mut stack = std::vec![K + tick; words];
                // Return addresses of real code are as irregular.
                stack[1] = K + (tick % kinds + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 0x20_0000;
                stack[2..].fill(K + 0x10 * (tick % kinds));
                (Times { tick, tsc: tick, task: 0 }, stack)
            })
            .collect();
        let pieces = survive(&samples);
        // A few get a second number because others have the same place, so the table must have room for these too.
        let all_fit = kinds <= 200 && kinds * words as u64 <= 7000;
        let new = pieces.iter().filter(|piece| piece[0] & NEW_CALLERS != 0).count() as u64;
        assert!(if all_fit { new < kinds + kinds / 5 } else { new >= kinds }, "{new} new of {kinds}, {words} words");
    }
}

#[test]
fn a_chunk_does_not_depend_on_the_one_before() {
    let samples = |n: u64| [(1, n), (2, n + 1), (3, n)].map(|(tick, at)| (Times { tick, ..Times::default() }, [at, K]));
    let mut writer = Writer::default();
    for n in [K, K + 1, 0] {
        writer.reset();
        let again: Vec<_> = samples(n).iter().map(|(times, stack)| write(&mut writer, *times, stack)).collect();
        assert_eq!(again, survive(&samples(n)));
    }
}

#[test]
fn a_number_without_callers_and_counts_that_are_too_great_are_errors() {
    let whole = [NEW_CALLERS, 5, 8, 1, 0, 0x20];
    let read = |bytes: &[u8]| {
        let (mut reader, mut rest) = (Reader::default(), bytes);
        let mut last = None;
        while let Some(sample) = reader.read(&mut rest) {
            last = Some(sample);
            if sample.is_err() {
                break;
            }
        }
        last
    };
    let is = Times { tick: 2, tsc: u64::MAX - 4, task: 0 };
    assert_eq!(read(&[&whole[..], &[0, 0, 3, 0]].concat()), Some(Ok(is)));
    let bad_words: [&[u8]; 6] = [
        &[0, 1, 3, 0],
        &[0, 255, 3, 0],
        &[NEW_CALLERS, 0, 0, 2, 2],
        &[NEW_CALLERS, 0, 0, 1, 2],
        &[NEW_CALLERS, 0, 0, 0xfb, 7, 0],
        &[NEW_CALLERS, 0, 0, 1, 0, 0x83, 0x40],
    ];
    for more in bad_words {
        assert_eq!(read(&[&whole[..], more].concat()), Some(Err(BadSample::Words)), "{more:?}");
    }
    let long = [&whole[..], &[NEW_CALLERS, 0, 0], &[0xff; 11]].concat();
    assert_eq!(read(&long), Some(Err(BadSample::Number)));
    assert_eq!(read(&[0, 0, 0, 0]), Some(Err(BadSample::Words)));
}

#[test]
fn foreign_bytes_give_an_error_and_never_a_panic() {
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut reader = Reader::default();
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        let mut bytes = [0; 60];
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8 & if state & 1 == 0 { 0x0f } else { 0xff };
        }
        bytes[0] |= NEW_CALLERS;
        reader.reset();
        let mut rest = &bytes[..];
        while let Some(Ok(_)) = reader.read(&mut rest) {
            assert!((1..=MAX_STACK_WORDS).contains(&reader.stack().len()));
        }
    }
}
