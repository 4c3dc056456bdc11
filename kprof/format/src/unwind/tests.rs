//! Tables of a few rows: what is found, and that nothing damaged is taken.

use super::*;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

const START: u64 = 0xffff_ffff_8020_0000;
const ID: [u8; 4] = [1, 2, 3, 4];

const fn at_stack(bytes: u32) -> Rule {
    Rule { base: Base::Stack(bytes), frame: Saved::Same }
}

const RULES: [Rule; 4] = [
    Rule::NONE,
    at_stack(8),
    Rule { base: Base::Stack(32), frame: Saved::Below(16) },
    Rule { base: Base::Frame(16), frame: Saved::Below(16) },
];

/// A table of blocks, each a list of rows: place, and number of the rule.
fn table(blocks: &[&[(u8, u16)]]) -> Vec<u8> {
    let rows: usize = blocks.iter().map(|rows| rows.len()).sum();
    let mut table = header(START, blocks.len() as u32, rows as u32, RULES.len() as u16, &ID).to_vec();
    table.extend(RULES.iter().flat_map(|rule| rule.encode().unwrap().to_le_bytes()));
    let firsts = (0..=blocks.len()).map(|block| blocks[..block].iter().map(|rows| rows.len()).sum::<usize>());
    let firsts: Vec<usize> = firsts.collect();
    table.extend(firsts.iter().step_by(GROUP).flat_map(|row| (*row as u32).to_le_bytes()));
    let within = |(block, row): (usize, &usize)| ((row - firsts[block / GROUP * GROUP]) as u16).to_le_bytes();
    table.extend(firsts.iter().enumerate().flat_map(within));
    let bytes = |(place, rule): &(u8, u16)| [*place, rule.to_le_bytes()[0], rule.to_le_bytes()[1]];
    table.extend(blocks.iter().flat_map(|rows| rows.iter()).flat_map(bytes));
    seal(&mut table);
    table
}

fn no_code(_: u64) -> [u8; 2] {
    panic!("no row is a stair")
}

#[test]
fn the_last_row_at_or_before_an_address_counts_also_of_an_earlier_block() {
    let bytes = table(&[&[(16, 1), (20, 2)], &[], &[(0, 3), (255, 0)]]);
    let table = Table::new(&bytes, &ID, 0).unwrap();
    let expected = [
        (0, Rule::NONE),
        (15, Rule::NONE),
        (16, RULES[1]),
        (19, RULES[1]),
        (20, RULES[2]),
        (511, RULES[2]),
        (512, RULES[3]),
        (766, RULES[3]),
        (767, Rule::NONE),
        (768, Rule::NONE),
        (u64::MAX, Rule::NONE),
    ];
    for (distance, rule) in expected {
        assert_eq!(table.rule(START.wrapping_add(distance), no_code), rule, "{distance}");
    }
    // A kernel that was moved by its boot loader.
    let moved = Table::new(&bytes, &ID, 0x1000).unwrap();
    assert_eq!([16, 0x1010].map(|distance| moved.rule(START + distance, no_code)), [Rule::NONE, RULES[1]]);
}

#[test]
fn a_table_of_many_groups_is_indexed_to_its_end() {
    let rows: Vec<[(u8, u16); 3]> =
        (0..3 * GROUP as u16 + 5).map(|block| [1, 2, 3].map(|at| (at, block % 4))).collect();
    let blocks: Vec<&[(u8, u16)]> = rows.iter().map(|rows| &rows[..]).collect();
    let bytes = table(&blocks);
    let table = Table::new(&bytes, &ID, 0).unwrap();
    for block in 0..blocks.len() as u64 {
        assert_eq!(table.rule(START + block * BLOCK + 7, no_code), RULES[block as usize % 4], "block {block}");
    }
}

#[test]
fn pushes_and_pops_of_a_stair_are_counted_in_the_code() {
    // push r15, push rbx, (a probe's breakpoint in place of) push rbp, pop r15, nop, push rbx.
    let code = [0x41, 0x57, 0x53, 0xcc, 0x41, 0x5f, 0x90, 0x53, 0, 0];
    let bytes = table(&[&[(4, 1 | STAIR)], &[]]);
    let table = Table::new(&bytes, &ID, 0).unwrap();
    let rule = |at: u64| {
        table.rule(START + 4 + at, |at| {
            let at = (at - START - 4) as usize;
            [code[at], code[at + 1]]
        })
    };
    let found = [0, 2, 3, 4, 6, 7, 8].map(rule);
    // The instruction that is neither ends the stair.
    assert_eq!(found, [8, 16, 24, 32, 24, 24, 24].map(at_stack));
    assert_eq!(table.rule(START + 300, no_code), at_stack(8), "a stair of an earlier block has ended");
}

#[test]
fn a_pop_of_pushed_flags_is_seen_in_the_code_unless_a_row_begins_there() {
    // pushfq, pop rcx, nop.
    let code = |at: u64| match at - START {
        0x20 => [0x9c, 0x59],
        0x21 => [0x59, 0x90],
        _ => [0x90, 0x90],
    };
    let rules = |rows| {
        let bytes = table(&[rows]);
        let table = Table::new(&bytes, &ID, 0).unwrap();
        [0x20, 0x21, 0x22].map(|at| table.rule_at(START + at, code))
    };
    assert_eq!(rules(&[(4, 1)]), [8, 16, 8].map(at_stack));
    assert_eq!(rules(&[(4, 1), (0x21, 1)]), [8, 8, 8].map(at_stack));
}

#[test]
fn every_damaged_byte_is_noticed() {
    let whole = table(&[&[(16, 1), (20, 2)], &[(0, 3)]]);
    assert!(Table::new(&whole, &ID, 0).is_ok());
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(Table::new(&bytes, &ID, 0).is_err(), "byte {at}");
        assert!(Table::new(&whole[..at], &ID, 0).is_err(), "cut off after {at}");
    }
}

#[test]
fn each_refusal_says_what_to_do() {
    let whole = table(&[&[(16, 1)]]);
    let said = |bytes: &[u8], id: &[u8]| Table::new(bytes, id, 0).unwrap_err().to_string();
    assert!(said(&[0; 4096], &ID).contains("is empty: fill section .kprof.unwind"));
    assert!(said(b"\x7fELF", &ID).contains("no unwind table"));
    assert!(said(&whole, &[1, 2, 3, 5]).contains("of another build"));
    assert!(said(&whole, &[1, 2, 3]).contains("of another build"));
    assert!(said(&whole, &[]).contains("link with --build-id"));
    let sealed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        seal(&mut bytes);
        said(&bytes, &ID)
    };
    assert!(sealed(8, 9).contains("version 9"));
    assert!(sealed(20, 2).contains("another processor"));
    assert!(sealed(36, 2).contains("sizes"));
    assert_eq!(sealed(whole.len() - 1, 1), "the unwind table is damaged: a row has no block or no rule");
    let unsorted = |blocks: &[&[(u8, u16)]]| said(&table(blocks), &ID);
    assert!(unsorted(&[&[(5, 0), (5, 1)]]).contains("rows are not sorted"));
}

#[test]
fn padding_after_the_table_is_ignored() {
    let mut bytes = table(&[&[(16, 1)]]);
    bytes.resize(4096, 0);
    assert_eq!(Table::new(&bytes, &ID, 0).unwrap().rule(START + 16, no_code), RULES[1]);
}

proptest! {
    #[test]
    fn a_rule_survives_its_four_bytes(word in any::<u32>()) {
        let rule = Rule::decode(word);
        prop_assert_eq!(rule.encode().map(Rule::decode), Some(rule));
    }

    #[test]
    fn any_bytes_with_a_right_checksum_are_refused_or_can_be_read(
        head in proptest::collection::vec(any::<u8>(), 4), tail in proptest::collection::vec(any::<u8>(), 0..200),
        counts in (0_u32..6, 0_u32..20, 0_u16..6), address in any::<u64>(),
    ) {
        let mut bytes = header(START, counts.0, counts.1, counts.2, &head).to_vec();
        bytes.extend(tail);
        seal(&mut bytes);
        if let Ok(table) = Table::new(&bytes, &head, 0) {
            for at in (START..START + 1600).chain([address]) {
                table.rule(at, |at| [at as u8, 0x53]);
            }
        }
    }
}
