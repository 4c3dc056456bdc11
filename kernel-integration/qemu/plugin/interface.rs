//! The plugin interface, as far as it is the same in all versions. Stage: capture.
//!
//! In: nothing. Out: types and declarations, written from the published interface (`docs/devel/tcg-plugins`), and the
//! processors whose guests are looked at. Runs in: QEMU's process.

use std::ffi::{c_char, c_int, c_uint, c_void};

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
/// Called before a translated block or an instruction runs, with QEMU's number of the vCPU.
pub type OnBlock = extern "C" fn(c_uint, *mut c_void);
unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(block: *mut Block, call: OnBlock, flags: c_int, data: *mut c_void);
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn g_byte_array_new() -> *mut ByteArray;
}

/// A processor whose guests are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    X86,
    Arm,
    Riscv,
}
