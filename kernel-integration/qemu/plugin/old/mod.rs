//! What the plugin does in QEMU 7.2 to 8.2 only, where the interface has no registers, no memory and no counters of a
//! vCPU. Stage: capture. With this folder goes everything that is for these versions.
//!
//! In: QEMU's own functions and objects. Out: the same as [`official`](super::official). Runs in: QEMU's process.

mod counts;
mod readings;
mod riscv;
mod vcpu;

pub use counts::{Counter, count, executed};
pub use readings::Readings;
pub use vcpu::{Vcpu, present};

use crate::clock::qemu_get_cpu;
use crate::interface::{Block, CpuState, Id, Instruction, Processor, qemu_plugin_insn_size, qemu_plugin_insn_vaddr};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The version of the interface that the plugin is for.
pub const VERSION: c_int = 1;
/// A function that QEMU calls may read the vCPU without saying so.
pub const READS: c_int = 0;
/// Called on the thread of a vCPU that was asked for: see [`ask`].
pub type OnTick = fn(&Vcpu, usize);

unsafe extern "C" {
    fn async_run_on_cpu(cpu: *mut CpuState, call: extern "C" fn(*mut CpuState, u64), data: u64);
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
}

/// What a vCPU is asked for.
static TICK: OnceLock<OnTick> = OnceLock::new();

/// Looks for the functions that read a vCPU.
pub fn prepare(processor: Processor, _: usize) -> Result<(), String> {
    let function = match processor {
        Processor::X86 => c"x86_cpu_gdb_read_register",
        Processor::Arm => c"aarch64_cpu_gdb_read_register",
        Processor::Riscv => c"riscv_cpu_gdb_read_register",
    };
    if vcpu::has_registers(function) { Ok(()) } else { Err(format!("this QEMU does not export {function:?}")) }
}

/// The vCPU that executes a block: QEMU says which.
pub fn number(cpu: c_uint) -> usize {
    cpu as usize
}

/// Has `call` called on the vCPU's own thread, between two blocks. False if there is no such vCPU.
pub fn ask(index: usize, call: OnTick) -> bool {
    TICK.get_or_init(|| call);
    // SAFETY: QEMU's functions take any thread; the queue of a vCPU has its own lock.
    unsafe {
        let cpu = qemu_get_cpu(index as c_int);
        if !cpu.is_null() {
            async_run_on_cpu(cpu, take, index as u64);
        }
        !cpu.is_null()
    }
}

extern "C" fn take(_: *mut CpuState, cpu: u64) {
    // SAFETY: QEMU calls this on the thread of this vCPU, because it was asked to.
    if let Some((vcpu, call)) = unsafe { Vcpu::present(cpu as usize) }.zip(TICK.get()) {
        call(&vcpu, cpu as usize);
    }
}

/// QEMU does not tell where interrupts and exceptions begin.
pub fn watch_entries(_: Id) {}

/// It is not known.
pub fn was_entered(_: usize, _: u64) -> Option<bool> {
    None
}

/// Blocks need nothing for [`ask`].
pub fn watch_ticks(_: *mut Block) {}

/// Address and bytes of an instruction.
///
/// # Safety
/// QEMU has given the instruction for a block that is being translated.
pub unsafe fn instruction(of: *const Instruction) -> (u64, Vec<u8>) {
    // SAFETY: QEMU's array of the instruction's bytes has as many bytes as the instruction.
    unsafe {
        let bytes = std::slice::from_raw_parts(qemu_plugin_insn_data(of).cast::<u8>(), qemu_plugin_insn_size(of));
        (qemu_plugin_insn_vaddr(of), bytes.to_vec())
    }
}
