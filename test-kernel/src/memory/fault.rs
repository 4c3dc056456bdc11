//! Page faults. They are resolved in the address space of the running process. If that is not possible, the result is
//! SIGSEGV, a copy that ends early, or a panic.

use x86_64::registers::control::Cr2;

use super::{USER_END, stacks, user};
use crate::cpu::entry::TrapFrame;
use crate::task::{process, signal};

const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1 << 4;

/// Handles a page fault. Runs in: exception. Interrupts are enabled if the interrupted code had them enabled.
#[inline(never)]
pub fn page_fault(frame: &mut TrapFrame) {
    let address = Cr2::read_raw();
    if frame.rflags & 1 << 9 != 0 {
        x86_64::instructions::interrupts::enable();
    }
    let copying = !frame.is_user() && user::fixup(frame.rip).is_some();
    if (frame.is_user() || copying)
        && address < USER_END
        && let Some(process) = process::current()
    {
        let space = process.space();
        if space.fault(address, frame.error & WRITE != 0, frame.error & EXECUTE != 0) {
            return;
        }
    }
    if frame.is_user() {
        signal::raise_fault(frame, signal::SIGSEGV, address);
    } else if let Some(next) = user::fixup(frame.rip) {
        frame.rip = next;
    } else if stacks::is_guard(address) {
        panic!("kernel stack overflow: {address:#x} touched at {:#x}", frame.rip);
    } else {
        panic!("page fault in the kernel: {address:#x} touched at {:#x}, error {:#x}", frame.rip, frame.error);
    }
}
