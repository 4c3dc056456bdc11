//! Tests the description of a translated block. A run ends after an instruction that may not complete. The last
//! instruction of a block is a run of its own if it lies near the end of a page. A block of several functions has a
//! piece for each of them.

use crate::plugin::block::Place;
use crate::plugin::decode::Ending;
use crate::plugin::describe::{Described, describe};
use crate::plugin::functions::{Functions, OF_USER, UNKNOWN, USER};

const KERNEL: u64 = 0xffff_ffff_8020_0000;
const ADD: &[u8] = &[0x48, 0x01, 0xd8];
const LOAD: &[u8] = &[0x48, 0x8b, 0x07];
const RETURN: &[u8] = &[0xc3];

fn functions() -> Functions {
    let all = [KERNEL, KERNEL + 6, 2, KERNEL + 6, KERNEL + 7, 3, 0x40_0000, 0x40_1000, 4 | OF_USER];
    Functions::read(&all.map(u64::to_le_bytes).concat())
}

fn described(start: u64, code: &[&[u8]], is_user: bool) -> Described {
    let mut at = start;
    let place = |bytes: &&[u8]| {
        let place = (at, bytes.to_vec());
        at += bytes.len() as u64;
        place
    };
    describe(&code.iter().map(place).collect::<Vec<_>>(), true, is_user, &functions())
}

fn runs(of: &Described) -> Vec<u32> {
    of.runs.to_vec()
}

#[test]
fn a_run_ends_after_an_instruction_that_may_not_complete() {
    let block = described(KERNEL + 0x100, &[ADD, ADD, LOAD, ADD, LOAD, LOAD, RETURN], false);
    assert_eq!(runs(&block), [0, 3, 5, 6]);
    assert_eq!((block.block.ending, block.block.end), (Ending::Return, KERNEL + 0x113));
    assert_eq!((block.block.address(3), block.block.function), (KERNEL + 0x109, UNKNOWN));
}

#[test]
fn the_last_instruction_at_a_pages_end_is_a_run_of_its_own() {
    // QEMU shows an instruction here that crosses into the next page, and takes it into the next block.
    assert_eq!(runs(&described(KERNEL + 0xff0, &[ADD, ADD, ADD], false)), [0, 2]);
    assert_eq!(runs(&described(KERNEL + 0xff0, &[ADD], false)), [0]);
    assert_eq!(runs(&described(KERNEL + 0xf00, &[ADD, ADD, ADD], false)), [0]);
}

#[test]
fn a_block_of_two_functions_has_the_pieces_of_both() {
    let block = described(KERNEL, &[ADD, ADD, RETURN], false).block;
    assert_eq!((&block.pieces[..], block.function, block.is_entry), (&[(2, 2), (1, 3)][..], 2, true));
    let block = described(KERNEL + 3, &[ADD], false).block;
    assert_eq!((block.pieces.len(), block.function, block.is_entry), (0, 2, false));
}

#[test]
fn kernel_user_and_unknown_code_are_told_apart_by_privilege() {
    let place = |start, is_user| {
        let block = described(start, &[ADD], is_user).block;
        (block.place, block.function)
    };
    assert_eq!(place(0x40_0000, true), (Place::User, 4));
    assert_eq!(place(0x50_0000, true), (Place::User, USER));
    // The program's address, but not its code.
    assert_eq!(place(0x40_0000, false), (Place::Unknown, UNKNOWN));
    assert_eq!(place(KERNEL + 0x100, false), (Place::Kernel, UNKNOWN));
}

#[test]
fn functions_of_a_kernel_that_was_moved_are_found_where_it_runs() {
    let words = [0x1000, 0x1010, 2, 0x2000, 0x2010, 3, 0x8000, 0x8010, 4];
    let mut functions = Functions::read(&words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect::<Vec<_>>());
    // The first is boot code, the last a module.
    functions.slide((0x2000, 0x3000), 0x1_0000);
    let at = [0x1000, 0x2000, 0x8008, 0x1_2000, 0x1_2008, 0x1_2010].map(|address| functions.at(address, false));
    assert_eq!(at, [(2, true), (UNKNOWN, false), (4, false), (3, true), (3, false), (UNKNOWN, false)]);
}

#[test]
fn each_instruction_of_another_processor_is_a_run() {
    let code: Vec<_> = (0..3).map(|number| (KERNEL + 4 * number, vec![0; 4])).collect();
    assert_eq!(*describe(&code, false, false, &functions()).runs, [0, 1, 2]);
}
