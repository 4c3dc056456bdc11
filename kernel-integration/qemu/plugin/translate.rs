//! Puts counters into a block that QEMU translates. Stage: capture.
//!
//! In: the instructions of the block. Out: inline code in it that adds to counters. A block is cut into runs: only the
//! last instruction of a run may fail to complete, so all instructions of a run begin equally often, and one counter
//! is enough for them. Beside that, each instruction adds 1 to one counter for all: it does not depend on where runs
//! end. The same code has the same counters whenever it is translated. Inline code is not atomic: QEMU must run all
//! vCPUs in one thread.

use super::decode::{Ending, ending, is_sure};
use super::functions::Functions;
use super::qemu;
use super::block::{Block, Place};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

/// An instruction that is not the first of its block and goes beyond the page belongs to the next block. QEMU shows it
/// here too, with some of its bytes: it must be a run of its own, which is then never executed.
const PAGE_BYTES: u64 = 4096;
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// Instructions that have begun.
pub static EXECUTED: AtomicU64 = AtomicU64::new(0);

/// A block with its counters.
pub struct Translated {
    pub block: Block,
    pub is_user: bool,
    /// The number of the first instruction of each run, and how often the run was executed.
    pub runs: Box<[(u32, AtomicU64)]>,
}

/// All blocks, by address, privilege and code.
#[derive(Default)]
pub struct Blocks(HashMap<(u64, bool, Vec<u8>), &'static Translated>);

impl Blocks {
    pub fn all(&self) -> impl Iterator<Item = &'static Translated> {
        self.0.values().copied()
    }

    /// The block, with counters put into it; `None` if it has no instruction.
    ///
    /// # Safety
    /// QEMU has given the block to be translated.
    pub unsafe fn translate(
        &mut self,
        block: *mut qemu::Block,
        is_user: bool,
        functions: &Functions,
    ) -> Option<&'static Translated> {
        // SAFETY: the caller's block has so many instructions.
        let handles: Vec<_> = unsafe {
            (0..qemu::qemu_plugin_tb_n_insns(block)).map(|at| qemu::qemu_plugin_tb_get_insn(block, at)).collect()
        };
        // SAFETY: they are instructions of a block that is being translated.
        let instructions: Vec<_> = handles.iter().map(|handle| unsafe { qemu::instruction(*handle) }).collect();
        let start = instructions.first()?.0;
        // The same bytes are other instructions in another mode, so their lengths are part of the key.
        let code = instructions.iter().flat_map(|(_, bytes)| [&[bytes.len() as u8], &bytes[..]].concat()).collect();
        let known = self.0.entry((start, is_user, code));
        let known = *known.or_insert_with(|| Box::leak(Box::new(describe(&instructions, is_user, functions))));
        // SAFETY: the block and its instructions are being translated; the counters live as long as the process.
        unsafe {
            for (first, counter) in &known.runs {
                let handle = handles[*first as usize];
                qemu::qemu_plugin_register_vcpu_insn_exec_inline(handle, qemu::ADD, address(counter), 1);
            }
            for handle in handles {
                qemu::qemu_plugin_register_vcpu_insn_exec_inline(handle, qemu::ADD, address(&EXECUTED), 1);
            }
        }
        Some(known)
    }
}

fn address(counter: &'static AtomicU64) -> *mut c_void {
    counter.as_ptr().cast()
}

/// What a block does. It has at least one instruction.
pub fn describe(instructions: &[(u64, Vec<u8>)], is_user: bool, functions: &Functions) -> Translated {
    let start = instructions.first().map_or(0, |(address, _)| *address);
    let (ending, target, end) = instructions.last().map_or((Ending::Falls, 0, 0), |(address, bytes)| {
        let (ending, target) = ending(bytes, *address);
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
    let is_kernel = function > super::functions::USER || start >> 63 == 1;
    let place = match (is_user, is_kernel) {
        (true, _) => Place::User,
        (false, true) => Place::Kernel,
        (false, false) => Place::Unknown,
    };
    let lengths = instructions.iter().map(|(_, bytes)| bytes.len() as u8).collect();
    let is_last = |number: usize| number + 1 == instructions.len();
    let begins = |number: &usize| {
        *number == 0
            || !is_sure(&instructions[*number - 1].1)
            || (is_last(*number) && instructions[*number].0 % PAGE_BYTES > PAGE_BYTES - MAX_INSTRUCTION_BYTES)
    };
    let runs = (0..instructions.len()).filter(begins).map(|first| (first as u32, AtomicU64::new(0))).collect();
    let (pieces, cached) = (pieces.into(), Cell::new((0, 0)));
    let block = Block { start, end, lengths, ending, target, place, function, is_entry, pieces, cached };
    Translated { block, is_user, runs }
}
