//! What a block does, and where its runs begin. Stage: capture.
//!
//! In: addresses and bytes of the instructions of a block. Out: the block as the shadow stack sees it, and its runs.
//! Only the last instruction of a run may fail to complete, so all instructions of a run begin equally often.

use super::block::{Block, Place};
use super::decode::{Ending, ending, is_sure};
use super::functions::{Functions, USER};
use std::cell::Cell;

/// An instruction that is not the first of its block and goes beyond the page belongs to the next block. QEMU shows it
/// here too, with some of its bytes: it must be a run of its own, which is then never executed.
const PAGE_BYTES: u64 = 4096;
const MAX_INSTRUCTION_BYTES: u64 = 15;
/// The instruction `hlt`.
const HLT: u8 = 0xf4;

/// A block, and how it is counted.
pub struct Described {
    pub block: Block,
    pub is_user: bool,
    /// The number of the first instruction of each run.
    pub runs: Box<[u32]>,
}

/// What a block does. It has at least one instruction. Of another processor than x86_64 only functions and runs are
/// known: each instruction is a run.
pub fn describe(instructions: &[(u64, Vec<u8>)], is_x86: bool, is_user: bool, functions: &Functions) -> Described {
    let start = instructions.first().map_or(0, |(address, _)| *address);
    let (ending, target, end) = instructions.last().map_or((Ending::Falls, 0, 0), |(address, bytes)| {
        let (ending, target) = if is_x86 { ending(bytes, *address) } else { (Ending::Falls, 0) };
        (ending, target, address.wrapping_add(bytes.len() as u64))
    });
    let (function, is_entry) = functions.at(start, is_user);
    let mut pieces: Vec<(u32, u32)> = Vec::new();
    for (address, _) in instructions {
        let of = functions.at(*address, is_user).0;
        match pieces.last_mut() {
            Some((count, function)) if *function == of => *count += 1,
            _ => pieces.push((1, of)),
        }
    }
    if pieces.len() == 1 {
        pieces.clear();
    }
    let is_kernel = function > USER || start >> 63 == 1;
    let place = match (is_user, is_kernel) {
        (true, _) => Place::User,
        (false, true) => Place::Kernel,
        (false, false) => Place::Unknown,
    };
    let lengths = instructions.iter().map(|(_, bytes)| bytes.len() as u8).collect();
    let is_last = |number: usize| number + 1 == instructions.len();
    let begins = |number: &usize| {
        *number == 0
            || !is_x86
            || !is_sure(&instructions[*number - 1].1)
            || (is_last(*number) && instructions[*number].0 % PAGE_BYTES > PAGE_BYTES - MAX_INSTRUCTION_BYTES)
    };
    let runs = (0..instructions.len()).filter(begins).map(|first| first as u32).collect();
    let is_halt = instructions.last().is_some_and(|(_, bytes)| bytes[..] == [HLT]);
    let (pieces, cached) = (pieces.into(), Cell::new((0, 0)));
    let block = Block { start, end, lengths, ending, target, place, function, is_halt, is_entry, pieces, cached };
    Described { block, is_user, runs }
}
