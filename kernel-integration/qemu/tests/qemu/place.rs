//! Tests the search for the kernel in memory that the test has made: it is found where its code is, and nowhere else.

use crate::plugin::place::file::Piece;
use crate::plugin::place::{File, Finder, Outcome, State};
use std::collections::BTreeMap;

const LINKED: u64 = 0xffff_ffff_8100_0000;
const SLIDE: u64 = 0x1e20_0000;
const PAGES: usize = 8;

/// Numbers without a pattern.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

fn code(seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..PAGES * 4096).map(|_| random(&mut state) as u8).collect()
}

/// Guest memory: pages.
#[derive(Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    fn with(mut self, at: u64, bytes: &[u8]) -> Self {
        self.0.extend((at..).step_by(4096).zip(bytes.chunks(4096).map(<[u8]>::to_vec)));
        self
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        to.iter_mut().zip(address..).all(|(byte, at)| {
            let known = self.0.get(&(at & !4095)).and_then(|page| page.get(at as usize % 4096));
            known.map(|known| *byte = *known).is_some()
        })
    }
}

fn file(code: Vec<u8>) -> File {
    File { code: vec![Piece { address: LINKED, bytes: code }], ..File::default() }
}

/// What a finder says after code was executed at these distances from where the kernel is linked.
fn found(file: File, given: Option<u64>, memory: &Memory, at: &[u64]) -> Outcome {
    let mut finder = Finder::new(file, given, u64::MAX);
    for at in at {
        finder.look(LINKED.wrapping_add(*at), &|address, to| memory.read(address, to));
    }
    finder.outcome
}

fn state_and_slide(outcome: &Outcome) -> (State, u64) {
    (outcome.state, outcome.slide)
}

#[test]
fn a_kernel_is_found_where_its_code_is() {
    for slide in [0, 0x1000, SLIDE, 0u64.wrapping_sub(0x10_0000)] {
        let memory = Memory::default().with(LINKED.wrapping_add(slide), &code(1));
        for at in [0, 100, 4090, 3 * 4096 + 17] {
            let outcome = found(file(code(1)), None, &memory, &[slide.wrapping_add(at)]);
            assert_eq!(state_and_slide(&outcome), (State::Placed, slide), "{slide:#x} {at}");
            assert_eq!((outcome.same, outcome.compared), (8 * 4096, 8 * 4096));
        }
    }
}

#[test]
fn other_code_comes_first_and_does_not_place_it() {
    let memory = Memory::default().with(LINKED, &code(2)).with(LINKED + SLIDE, &code(1));
    let outcome = found(file(code(1)), None, &memory, &[100, 5000]);
    assert_eq!(outcome.state, State::Nowhere);
    assert_eq!(state_and_slide(&found(file(code(1)), None, &memory, &[100, SLIDE + 100])), (State::Placed, SLIDE));
    assert_eq!(found(file(code(1)), None, &memory, &[]).state, State::Nothing);
    // User code.
    assert_eq!(found(file(code(1)), None, &memory, &[0u64.wrapping_sub(LINKED) + 0x40_0000]).state, State::Nothing);
}

#[test]
fn words_that_the_kernel_has_relocated_are_the_same() {
    let mut moved = code(1);
    for at in (40..moved.len() - 4).step_by(97) {
        let word = u32::from_le_bytes(moved[at..at + 4].try_into().unwrap());
        moved[at..at + 4].copy_from_slice(&word.wrapping_add(SLIDE as u32).to_le_bytes());
    }
    let memory = Memory::default().with(LINKED + SLIDE, &moved);
    let outcome = found(file(code(1)), None, &memory, &[SLIDE + 64]);
    assert_eq!((outcome.state, outcome.slide), (State::Placed, SLIDE));
    // Words at the edge of a page are compared in two parts.
    assert!(outcome.same + 32 >= outcome.compared, "{outcome:?}");
}

#[test]
fn code_that_differs_is_refused_unless_the_build_id_is_there() {
    let mut patched = code(1);
    patched[5000..5100].iter_mut().for_each(|byte| *byte ^= 0x55);
    let memory = Memory::default().with(LINKED + SLIDE, &patched);
    let outcome = found(file(code(1)), None, &memory, &[SLIDE]);
    assert_eq!((outcome.state, outcome.compared - outcome.same), (State::Differs, 100));
    let id = |bytes: &[u8]| Some(Piece { address: LINKED + 8 * 4096, bytes: bytes.to_vec() });
    let with = |own: &[u8], there: &[u8]| {
        let memory = Memory::default().with(LINKED + SLIDE, &patched).with(LINKED + SLIDE + 8 * 4096, there);
        found(File { id: id(own), ..file(code(1)) }, None, &memory, &[SLIDE])
    };
    assert_eq!(with(b"0123456789", b"0123456789").state, State::Placed);
    let other = with(b"0123456789", b"0123456780");
    assert_eq!((other.state, &other.id[..]), (State::OtherBuild, &b"0123456780"[..]));
    // One byte of a thousand may differ: a patched instruction.
    let mut nearly = code(1);
    nearly[9000..9005].fill(0x90);
    let memory = Memory::default().with(LINKED + SLIDE, &nearly);
    assert_eq!(found(file(code(1)), None, &memory, &[SLIDE]).state, State::Placed);
}

#[test]
fn a_slide_that_is_not_the_only_one_is_refused() {
    // The file's code repeats itself, and the memory is all the same too.
    let page: Vec<u8> = code(1)[..4096].to_vec();
    let repeated = page.repeat(PAGES);
    let memory = Memory::default().with(LINKED, &page.repeat(3 * PAGES));
    assert_eq!(found(file(repeated.clone()), None, &memory, &[PAGES as u64 * 4096 + 10]).state, State::Ambiguous);
    let given = found(file(repeated), Some(PAGES as u64 * 4096), &memory, &[PAGES as u64 * 4096 + 10]);
    assert_eq!(state_and_slide(&given), (State::Placed, PAGES as u64 * 4096));
}

#[test]
fn a_slide_that_was_given_is_checked() {
    let memory = Memory::default().with(LINKED + SLIDE, &code(1));
    let given = |slide| found(file(code(1)), Some(slide), &memory, &[SLIDE + 100]).state;
    assert_eq!((given(SLIDE), given(SLIDE + 4096), given(0)), (State::Placed, State::Nowhere, State::Nowhere));
}

/// Functions at random distances, and code that calls them: the list's addresses, and the memory at `slide`.
fn calls(slide: u64) -> (File, Memory) {
    let mut state = 7;
    let mut starts = vec![LINKED];
    while starts.len() < 2000 {
        starts.push(starts[starts.len() - 1] + 16 * (1 + random(&mut state) % 64));
    }
    let mut bytes = code(3);
    bytes.iter_mut().filter(|byte| **byte == 0xe8).for_each(|byte| *byte = 0x90);
    for at in (0..bytes.len() - 5).step_by(40) {
        let target = starts[random(&mut state) as usize % starts.len()];
        let distance = target.wrapping_sub(LINKED + at as u64 + 5) as u32;
        bytes[at] = 0xe8;
        bytes[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
    }
    (File { starts, ..File::default() }, Memory::default().with(LINKED + slide, &bytes))
}

#[test]
fn a_list_of_symbols_is_placed_by_the_targets_of_calls() {
    for slide in [0, SLIDE] {
        let (file, memory) = calls(slide);
        let outcome = found(file, None, &memory, &[slide + 20_000]);
        assert_eq!(state_and_slide(&outcome), (State::Placed, slide), "{outcome:?}");
        assert!(outcome.same > 400 && outcome.same * 10 >= outcome.compared * 9, "{outcome:?}");
        let (file, memory) = calls(slide);
        assert_eq!(found(file, Some(0x1000), &memory, &[slide + 20_000]).state, State::Nowhere);
    }
    // Symbols of another build: each function is somewhere else.
    let (mut file, memory) = calls(0);
    let mut state = 9;
    file.starts.iter_mut().for_each(|start| *start += 16 * (random(&mut state) % 64));
    let outcome = found(file, None, &memory, &[20_000]);
    assert_ne!(outcome.state, State::Placed, "{outcome:?}");
}
