//! Tests of the lines of the serial form: each kind of meta record, and samples of every length.
//!
//! In: a ring with records. Out: their lines, without numbers and checksums. Runs on a host. Each expected line is made
//! of values that are written here, and never of words that are read from the ring.

use super::*;
use crate::format::marker::{Marker, TruncationReason};
use crate::format::record::MAX_WORDS;
use crate::format::serial;
use crate::ring::tests::ring_of;
use core::sync::atomic::AtomicU64;

/// Writes a record: its first word, then these.
fn put(ring: &Ring, kind: Kind, words: &[u64]) {
    let mut sink = ring.room();
    sink.push(0);
    words.iter().for_each(|word| sink.push(*word));
    assert!(!sink.is_full());
    ring.publish(kind, sink.words());
}

fn put_meta(ring: &Ring, kind: Kind, tsc: u64, values: [u64; 3], text: &str) {
    let mut words = vec![ring.head(), 0, tsc, values[0], values[1], values[2], text.len() as u64];
    words.extend(text.as_bytes().chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }));
    put(ring, kind, &words);
}

fn written(meta: Option<&Ring>, write: impl FnOnce(&mut Lines<'_>)) -> Vec<String> {
    let (mut out, sequence) = (String::new(), AtomicU64::new(0));
    write(&mut Lines { out: &mut out, sequence: &sequence, names: Names::new(meta) });
    let lines = out.lines().map(|line| serial::read(line.as_bytes()).expect("a line of ours").expect("undamaged"));
    lines.map(|line| String::from_utf8(line.line.to_vec()).unwrap()).collect()
}

#[test]
fn each_kind_of_meta_record_is_a_line_with_the_values_of_its_record() {
    let (ring, task) = (ring_of(MAX_WORDS), Name::Raw(b"disk 0"));
    for (kind, tsc, values, text) in [
        (Kind::Mark, 0x10, [0; 3], "before the name"),
        (Kind::TaskName, 0x11, [7, 0, 0], "disk 0"),
        (Kind::Setting, 0x12, [0; 3], "hz 50"),
        (Kind::Point, 0x13, [5, 0, 0], "of an extension that is not there"),
    ] {
        put_meta(&ring, kind, tsc, values, text);
    }
    let lines = written(Some(&ring), |lines| meta_records(&Shared::new(), lines, &ring, 0, ring.head()).unwrap());
    let expected = [
        line::Mark { tsc: Hex(0x10), name: Name::Raw(b"before the name") }.to_string(),
        line::Task { id: Hex(7), name: task }.to_string(),
        line::Setting { tsc: Hex(0x12), value: Name::Raw(b"hz 50") }.to_string(),
    ];
    assert_eq!(lines[1..lines.len() - 1], expected);
    assert!(lines[0].starts_with("# batch cpu=meta from=0 "), "{}", lines[0]);
}

#[test]
fn an_image_has_its_addresses_its_id_and_its_name() {
    let ring = ring_of(MAX_WORDS);
    put_meta(&ring, Kind::Mark, 0x10, [0; 3], "first");
    put_meta(&ring, Kind::Image, 0x11, [0x1000, 0x2000, 0x3000], "ab12 kernel");
    let lines = written(Some(&ring), |lines| meta_records(&Shared::new(), lines, &ring, 0, ring.head()).unwrap());
    let (name, id) = crate::format::record::image_name_and_id(b"ab12 kernel");
    let (text, build_id, name) = (Range(0x2000, 0x3000), Name::Raw(id), Name::Raw(name));
    assert_eq!(lines[2], line::Image { tsc: Hex(0x11), load: Hex(0x1000), text, build_id, name }.to_string());
}

/// A line has place for 256 words of a record.
#[test]
fn a_sample_is_whole_or_marked_as_truncated() {
    let truncated = Marker::Truncated(Ok(TruncationReason::Depth)).encode();
    let lengths = [(256, true), (257, false), (6, true), (255, true), (300, false)];
    for (words, is_whole) in lengths.into_iter().take(if cfg!(miri) { 2 } else { 5 }) {
        let ring = ring_of(MAX_WORDS);
        let address = |word: u64| 0x1000 + word;
        let header = [0, 1, 0x55, 7];
        let frames = (5..words).map(address);
        put(&ring, Kind::Sample, &header.into_iter().chain(frames.clone()).collect::<Vec<u64>>());
        let lines = written(None, |lines| assert!(lines.sample(1, &ring, 0).unwrap()));
        let kept = frames.take(251 - usize::from(!is_whole)).chain((!is_whole).then_some(truncated));
        let expected: String = kept.map(|word| format!(" {word:x}")).collect();
        assert_eq!(lines, [format!("id7 1 55{expected}")], "{words} words");
    }
}
