//! Counters of executed instructions. Stage: capture.
//!
//! In: instructions of a block. Out: inline code in it that counts: in a word of each vCPU, or in one word if all vCPUs
//! are on one thread. Runs in: QEMU's process.

use super::internal::{is_one_thread, shares};
use super::scores::Word;
use crate::interface::{ADD, Instruction};
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        instruction: *mut Instruction,
        operation: c_int,
        to: Word,
        add: u64,
    );
}

/// Instructions that have begun: one word for all vCPUs of a thread, or one for each.
static EXECUTED: AtomicU64 = AtomicU64::new(0);
static EXECUTED_BY: OnceLock<Word> = OnceLock::new();

/// How often a run of instructions began: one word for all vCPUs of a thread, or one for each.
pub enum Counter {
    All(AtomicU64),
    Each(Word),
}

impl Counter {
    pub fn new() -> Self {
        if is_one_thread() { Self::All(AtomicU64::new(0)) } else { Self::Each(Word::new()) }
    }

    pub fn get(&self) -> u64 {
        match self {
            Self::All(count) => count.load(Relaxed),
            Self::Each(word) => word.sum(),
        }
    }
}

/// Instructions that have begun.
#[inline]
pub fn executed() -> u64 {
    EXECUTED_BY.get().map_or_else(|| EXECUTED.load(Relaxed), |word| word.sum())
}

/// Counts the run, and each of its instructions by itself: the second count does not depend on where runs end. Where
/// several vCPUs share a thread, as with `-icount`, it is made with the run: a sixth less time, and QEMU counts, too.
///
/// # Safety
/// QEMU has given the instructions, which are those of the run, for a block that is being translated.
pub unsafe fn count(instructions: &[*mut Instruction], run: &'static Counter) {
    let (begun, executed) = match run {
        Counter::All(count) => (Word::at(count), Word::at(&EXECUTED)),
        Counter::Each(word) => (*word, *EXECUTED_BY.get_or_init(Word::new)),
    };
    let plant = |instruction: &*mut Instruction, word, add| {
        // SAFETY: as the caller promises; the words live as long as the process.
        unsafe { qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(*instruction, ADD, word, add) }
    };
    let (places, add) = if shares() { (1, instructions.len()) } else { (instructions.len(), 1) };
    instructions.iter().take(1).for_each(|first| plant(first, begun, 1));
    instructions.iter().take(places).for_each(|instruction| plant(instruction, executed, add as u64));
}
