//! Asks a vCPU to call a function before its next block. Stage: capture.
//!
//! In: numbers of vCPUs, from the clock's thread. Out: calls on the threads of these vCPUs. Runs in: QEMU's process.
//! QEMU compares a word of the vCPU before each block, or one word for all if they are on one thread.

use super::internal::{is_one_thread, number};
use super::scores::Word;
use super::vcpu::Vcpu;
use super::{OnTick, READS};
use crate::interface::{Block, OnBlock};
use crate::reset::MAX_CPUS;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        block: *mut Block,
        call: OnBlock,
        flags: c_int,
        condition: c_int,
        compared: Word,
        with: u64,
        data: *mut c_void,
    );
}

/// The condition that two words differ.
const DIFFER: c_int = 3;

static TICK: OnceLock<OnTick> = OnceLock::new();
/// Not 0 if the vCPU is asked.
static ASKED: OnceLock<Word> = OnceLock::new();
/// The same where vCPUs share a thread, and a word that is not 0 if any of them is asked.
static ASKED_OF: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];
static ANY: AtomicU64 = AtomicU64::new(0);

/// Has `call` called on the vCPU's own thread, before its next block. False if there is no such vCPU.
pub fn ask(index: usize, call: OnTick) -> bool {
    TICK.get_or_init(|| call);
    if !is_one_thread() {
        return ASKED.get().is_some_and(|asked| asked.set(index, 1));
    }
    let Some(asked) = ASKED_OF.get(index) else { return false };
    asked.store(true, Relaxed);
    ANY.store(1, Relaxed);
    true
}

/// Prepares a block that is being translated.
pub fn watch_ticks(block: *mut Block) {
    let (call, asked): (OnBlock, _) = match is_one_thread() {
        true => (at_tick_of_any, Word::at(&ANY)),
        false => (at_tick, *ASKED.get_or_init(Word::new)),
    };
    // SAFETY: QEMU has given the block to be translated; the word lives as long as the process.
    unsafe {
        qemu_plugin_register_vcpu_tb_exec_cond_cb(block, call, READS, DIFFER, asked, 0, std::ptr::null_mut());
    }
}

extern "C" fn at_tick(cpu: c_uint, _: *mut c_void) {
    ASKED.get().map(|asked| asked.set(cpu as usize, 0));
    take(cpu as usize);
}

extern "C" fn at_tick_of_any(cpu: c_uint, _: *mut c_void) {
    let cpu = number(cpu);
    if ASKED_OF.get(cpu).is_some_and(|asked| asked.swap(false, Relaxed)) {
        // Another thread may ask meanwhile: then this is set again before the vCPU's own word is looked at.
        ANY.store(0, Relaxed);
        if ASKED_OF.iter().any(|asked| asked.load(Relaxed)) {
            ANY.store(1, Relaxed);
        }
        take(cpu);
    }
}

fn take(cpu: usize) {
    // SAFETY: QEMU calls this on the thread of this vCPU, before a block.
    if let Some((vcpu, call)) = unsafe { Vcpu::present(cpu) }.zip(TICK.get()) {
        call(&vcpu, cpu);
    }
}
