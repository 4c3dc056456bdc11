//! QEMU as the plugin sees it, in all versions of the plugin interface. Stage: capture.
//!
//! In: nothing. Out: declarations, written from the published interface (`docs/devel/tcg-plugins`). What differs comes
//! from [`old`](super::old) for QEMU 7.2 to 8.2, and from [`official`](super::official) for later ones. Runs in: QEMU's
//! process. Never reads a vCPU from another thread than its own.

use std::ffi::{c_char, c_int, c_uint, c_void};

#[cfg(not(interface = "1"))]
use super::official as family;
#[cfg(interface = "1")]
use super::old as family;

pub use family::{
    Counter, READS, Readings, VERSION, Vcpu, ask, count, executed, instruction, number, prepare, present, watch_ticks,
};

/// A vCPU.
#[repr(C)]
pub struct CpuState {
    opaque: [u8; 0],
}

/// GLib's array of bytes.
#[repr(C)]
pub struct ByteArray {
    pub data: *mut u8,
    pub len: c_uint,
}

/// A translated block.
#[repr(C)]
pub struct Block {
    opaque: [u8; 0],
}

/// An instruction of a block that is being translated.
#[repr(C)]
pub struct Instruction {
    opaque: [u8; 0],
}

/// The information that QEMU gives at the start.
#[repr(C)]
pub struct Info {
    /// The name of the emulated processor.
    pub target: *const c_char,
    _versions: [c_int; 2],
    _is_system: bool,
    _vcpus: c_int,
    /// The most vCPUs that the machine can have.
    pub max_vcpus: c_int,
}

/// The operation of inline code: adds to a word.
pub const ADD: c_int = 0;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// QEMU's number of this plugin.
pub type Id = u64;
/// Called before a translated block or an instruction runs, with the number of the vCPU: see [`number`].
pub type OnBlock = extern "C" fn(c_uint, *mut c_void);
/// Called on the thread of a vCPU that was asked for: see [`ask`].
pub type OnTick = fn(&Vcpu, usize);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(block: *mut Block, call: OnBlock, flags: c_int, data: *mut c_void);
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn g_byte_array_new() -> *mut ByteArray;
}

/// Has QEMU call this function before each execution of the block. It may read the vCPU.
///
/// # Safety
/// QEMU has given the block to be translated, and `data` is what `call` takes.
pub unsafe fn before(block: *mut Block, call: OnBlock, data: *mut c_void) {
    // SAFETY: the caller's block is being translated, and the function lives as long as the process.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, call, READS, data) }
}
