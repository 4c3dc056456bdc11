//! Kernel stacks: 32 KiB each, aligned to their size, above a range that is never mapped.
//!
//! Because of the alignment, the base of a stack can be computed from any address in it. So the running thread is found
//! from RSP, and the profiler knows the range of a stack also in the middle of a switch. A stack stays mapped for ever.

use alloc::vec::Vec;

use super::{PAGE, frames, paging};
use crate::lock::IrqLock;

pub use super::layout::{HEAD_BYTES, STACK_BYTES};

const REGION: u64 = 0xffff_c000_0000_0000;
const SLOT_BYTES: u64 = 2 * STACK_BYTES;
const MAX_SLOTS: u64 = 8192;

/// The boot CPU's first stack, which its idle thread keeps.
#[repr(C, align(32768))]
pub struct BootStack([u8; STACK_BYTES as usize]);

/// The boot stack, on which the code of `pvh.rs` starts.
#[unsafe(export_name = "boot_stack")]
pub static mut BOOT_STACK: BootStack = BootStack([0; STACK_BYTES as usize]);

struct Stacks {
    free: Vec<u64>,
    used_slots: u64,
}

static STACKS: IrqLock<Stacks> = IrqLock::new(Stacks { free: Vec::new(), used_slots: 0 });

/// Allocates a stack and returns its base (lowest address). Its head is zero.
///
/// # Panics
/// If there is no memory or no address space for stacks.
pub fn allocate() -> u64 {
    let mut stacks = STACKS.lock();
    if let Some(base) = stacks.free.pop() {
        return base;
    }
    assert!(stacks.used_slots < MAX_SLOTS, "too many kernel stacks");
    let base = REGION + stacks.used_slots * SLOT_BYTES + STACK_BYTES;
    stacks.used_slots += 1;
    for page in (base..base + STACK_BYTES).step_by(PAGE as usize) {
        let frame = frames::allocate_zeroed().expect("no memory for a kernel stack");
        paging::map_kernel(page, frame, paging::Access::ReadWrite);
    }
    base
}

/// Allocates a stack that is only used for NMIs.
pub fn allocate_nmi() -> u64 {
    allocate()
}

/// Frees a stack. No code may be running on it.
pub fn free(base: u64) {
    STACKS.lock().free.push(base);
}

/// The base of the boot CPU's first stack.
pub fn boot_stack() -> u64 {
    (&raw const BOOT_STACK) as u64
}

/// An address below the first stack that is never mapped.
pub fn first_guard() -> u64 {
    REGION + STACK_BYTES - 16
}

/// Whether `address` is in the guard range of a stack; used for the message of a double fault.
pub fn is_guard(address: u64) -> bool {
    (REGION..REGION + MAX_SLOTS * SLOT_BYTES).contains(&address) && (address - REGION) % SLOT_BYTES < STACK_BYTES
}
