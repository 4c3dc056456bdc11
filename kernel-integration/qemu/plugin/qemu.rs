//! QEMU as the plugin sees it. Stage: capture.
//!
//! In: nothing. Out: what is the same in all versions, from [`interface`](super::interface), and what differs: from
//! `old/` for QEMU 7.2 to 8.2, from `official/` for later ones. Runs in: QEMU's process. Never reads a vCPU from
//! another thread than its own.

use super::interface::qemu_plugin_register_vcpu_tb_exec_cb;
#[cfg(not(interface = "1"))]
use super::official as family;
#[cfg(interface = "1")]
use super::old as family;
use std::ffi::c_void;

pub use super::interface::{
    Block, Id, Info, OnBlock, PAGE_BYTES, Processor, qemu_plugin_tb_get_insn, qemu_plugin_tb_n_insns,
    qemu_plugin_tb_vaddr,
};
pub use family::{
    Counter, READS, Readings, VERSION, Vcpu, ask, count, executed, instruction, number, prepare, present, was_entered,
    watch_entries, watch_ticks,
};

/// Has QEMU call this function before each execution of the block. It may read the vCPU.
///
/// # Safety
/// QEMU has given the block to be translated, and `data` is what `call` takes.
pub unsafe fn before(block: *mut Block, call: OnBlock, data: *mut c_void) {
    // SAFETY: the caller's block is being translated, and the function lives as long as the process.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, call, READS, data) }
}
