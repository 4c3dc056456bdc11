//! Counters of executed instructions. Stage: capture.
//!
//! In: instructions of a block. Out: code in it that counts. Runs in: QEMU's process.
//!
//! QEMU's inline code adds to a word of each vCPU. Where several vCPUs share a thread that code is wrong (see
//! [`internal`](super::internal)), so QEMU calls a function for each run of instructions there.

use super::internal::shares;
use super::scores::Word;
use crate::interface::{ADD, Instruction, OnBlock};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        instruction: *mut Instruction,
        operation: c_int,
        to: Word,
        add: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        call: OnBlock,
        flags: c_int,
        data: *mut c_void,
    );
}

/// The function reads no registers.
const READS_NOTHING: c_int = 0;

/// Instructions that have begun: one word for all vCPUs of a thread, or one for each.
static EXECUTED: AtomicU64 = AtomicU64::new(0);
static EXECUTED_BY: OnceLock<Word> = OnceLock::new();
/// Where the count of an only vCPU is.
static ONLY: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());

/// How often a run of instructions began.
pub enum Counter {
    /// One word for all vCPUs, and the length of the run.
    All(AtomicU64, u32),
    Each(Word),
}

impl Counter {
    /// A counter of a run of so many instructions.
    pub fn new(length: u32) -> Self {
        if shares() { Self::All(AtomicU64::new(0), length) } else { Self::Each(Word::new()) }
    }

    pub fn get(&self) -> u64 {
        match self {
            Self::All(count, _) => count.load(Relaxed),
            Self::Each(word) => word.sum(),
        }
    }
}

/// Instructions that have begun.
#[inline]
pub fn executed() -> u64 {
    let only = ONLY.load(Relaxed);
    if !only.is_null() {
        // SAFETY: it is the word of the only vCPU, which is never freed.
        return unsafe { only.read_volatile() };
    }
    EXECUTED_BY.get().map_or_else(|| EXECUTED.load(Relaxed), |word| word.sum())
}

/// Counts the run, and each of its instructions: by itself if vCPUs have threads of their own, otherwise with the run.
///
/// # Safety
/// QEMU has given the instructions, which are those of the run, for a block that is being translated.
pub unsafe fn count(instructions: &[*mut Instruction], run: &'static Counter) {
    let Some(first) = instructions.first() else { return };
    let Counter::Each(word) = *run else {
        let data = (&raw const *run).cast_mut().cast();
        // SAFETY: as the caller promises; the run lives as long as the process.
        return unsafe { qemu_plugin_register_vcpu_insn_exec_cb(*first, at_run, READS_NOTHING, data) };
    };
    let executed = *EXECUTED_BY.get_or_init(Word::new);
    if super::internal::is_alone() && ONLY.load(Relaxed).is_null() {
        ONLY.store(executed.of_the_first().unwrap_or(std::ptr::null_mut()), Relaxed);
    }
    // SAFETY: as the caller promises; scoreboards are never freed.
    unsafe {
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(*first, ADD, word, 1);
        for instruction in instructions {
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(*instruction, ADD, executed, 1);
        }
    }
}

/// A run begins, on the one thread of all vCPUs.
extern "C" fn at_run(_: c_uint, run: *mut c_void) {
    // SAFETY: QEMU gives back what `count` gave it.
    let run: &'static Counter = unsafe { &*run.cast_const().cast() };
    if let Counter::All(count, length) = run {
        count.store(count.load(Relaxed) + 1, Relaxed);
        EXECUTED.store(EXECUTED.load(Relaxed) + u64::from(*length), Relaxed);
    }
}
