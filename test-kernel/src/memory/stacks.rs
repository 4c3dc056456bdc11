//! Kernel stacks: 32 KiB each, aligned to their size, above a stretch that is never mapped.
//!
//! Alignment makes the base of a stack a matter of arithmetic: the running thread is found from RSP, and the profiler
//! knows the range of a stack from any address in it, in the middle of a switch too. A stack stays mapped for ever.

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

/// The boot stack; `pvh.rs` starts on it.
#[unsafe(export_name = "boot_stack")]
pub static mut BOOT_STACK: BootStack = BootStack([0; STACK_BYTES as usize]);

struct Stacks {
    free: Vec<u64>,
    used_slots: u64,
}

static STACKS: IrqLock<Stacks> = IrqLock::new(Stacks { free: Vec::new(), used_slots: 0 });

/// A stack: its base (lowest address). The head is zero.
///
/// # Panics
/// When memory or address space for stacks is used up.
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

/// A stack for NMIs: the same, named so that nobody shares it.
pub fn allocate_nmi() -> u64 {
    allocate()
}

/// Gives a stack back. Nobody may run on it.
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

/// The guard range that `address` lies in, if it does: for the message of a double fault.
pub fn is_guard(address: u64) -> bool {
    (REGION..REGION + MAX_SLOTS * SLOT_BYTES).contains(&address) && (address - REGION) % SLOT_BYTES < STACK_BYTES
}
