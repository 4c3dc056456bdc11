//! Inline counters of QEMU 7.2 to 8.2: a word for all vCPUs, which must be on one thread. Stage: capture.
//!
//! In: instructions of a block. Out: code in it that counts. Runs in: QEMU's process.

use crate::interface::{ADD, Instruction};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: *mut Instruction,
        operation: c_int,
        to: *mut c_void,
        add: u64,
    );
}

static EXECUTED: AtomicU64 = AtomicU64::new(0);

/// How often something happened.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Instructions that have begun.
pub fn executed() -> u64 {
    EXECUTED.load(Relaxed)
}

/// Counts the run, and each of its instructions by itself: the second count does not depend on where runs end.
///
/// # Safety
/// QEMU has given the instructions, which are those of the run, for a block that is being translated.
pub unsafe fn count(instructions: &[*mut Instruction], run: &'static Counter) {
    let plant = |instruction: &*mut Instruction, counter: &'static AtomicU64| {
        // SAFETY: as the caller promises; the counter lives as long as the process.
        unsafe { qemu_plugin_register_vcpu_insn_exec_inline(*instruction, ADD, counter.as_ptr().cast(), 1) }
    };
    instructions.iter().take(1).for_each(|first| plant(first, &run.0));
    instructions.iter().for_each(|instruction| plant(instruction, &EXECUTED));
}
