//! What the plugin does in QEMU 9.2 and later, by the calls of the plugin interface. Stage: capture.
//!
//! In: the interface of version 4 to 6, or 7. Out: registers and memory of the vCPU that runs, counters, ticks; what is
//! not in the interface is in [`internal`]. Runs in: QEMU's process.

mod counts;
mod entered;
mod internal;
mod scores;
mod ticks;
mod vcpu;

pub use counts::{Counter, count, executed};
pub use entered::{was_entered, watch_entries};
pub use internal::number;
pub use ticks::{ask, watch_ticks};
pub use vcpu::{Readings, Vcpu, present};

use crate::interface::{Instruction, Processor, qemu_plugin_insn_size, qemu_plugin_insn_vaddr};
use std::ffi::{c_int, c_void};

/// The version of the interface that the plugin is for.
#[cfg(interface = "4")]
pub const VERSION: c_int = 4;
#[cfg(interface = "7")]
pub const VERSION: c_int = 7;
/// Functions that QEMU calls read registers.
pub const READS: c_int = 1;
/// Called on the thread of a vCPU that was asked for: see [`ask`].
pub type OnTick = fn(&Vcpu, usize);

unsafe extern "C" {
    fn qemu_plugin_insn_data(instruction: *const Instruction, to: *mut c_void, bytes: usize) -> usize;
}

/// Looks for what is not in the interface. `max_vcpus`: how many vCPUs the machine can have.
pub fn prepare(processor: Processor, max_vcpus: usize) -> Result<(), String> {
    vcpu::choose(processor);
    internal::prepare(max_vcpus)
}

/// Address and bytes of an instruction.
///
/// # Safety
/// QEMU has given the instruction for a block that is being translated.
pub unsafe fn instruction(of: *const Instruction) -> (u64, Vec<u8>) {
    // SAFETY: the buffer has as many bytes as are asked for.
    unsafe {
        let mut bytes = vec![0; qemu_plugin_insn_size(of)];
        qemu_plugin_insn_data(of, bytes.as_mut_ptr().cast(), bytes.len());
        (qemu_plugin_insn_vaddr(of), bytes)
    }
}
