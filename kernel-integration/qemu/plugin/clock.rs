//! QEMU's count of instructions, the guest's clock, and the vCPU of a thread. Stage: capture.
//!
//! In: nothing. Out: what the plugin interface of no version tells, by functions and a variable that QEMU itself uses.
//! QEMU 7.2 to 11.1 export them. Runs in: QEMU's process.

use super::interface::CpuState;
use super::symbol::symbol;
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

unsafe extern "C" {
    fn icount_get_raw() -> i64;
    fn icount_to_ns(instructions: i64) -> i64;
    fn qemu_clock_get_ns(clock: c_int) -> i64;
    pub fn qemu_get_cpu(index: c_int) -> *mut CpuState;
}

/// QEMU's variable for the vCPU of a thread.
const CURRENT: &CStr = c"current_cpu";
/// QEMU's number of the guest's clock.
const VIRTUAL: c_int = 1;

/// The instructions that QEMU has counted, for a QEMU that was told to.
pub fn counted() -> u64 {
    // SAFETY: QEMU's function takes any thread.
    unsafe { icount_get_raw() as u64 }
}

thread_local! {
    /// Where this thread has its vCPU, once it was looked for: that takes a lock.
    static PLACE: Cell<Option<NonNull<*mut CpuState>>> = const { Cell::new(None) };
}

/// Where this thread has its vCPU, or null.
pub fn current() -> Option<NonNull<*mut CpuState>> {
    PLACE.with(|place| {
        if place.get().is_none() {
            place.set(symbol(CURRENT).map(NonNull::cast));
        }
        place.get()
    })
}

/// The guest's clock when `executed` instructions have begun, for a QEMU that counts instructions. An instruction that
/// faulted is in it twice. QEMU refuses to read its clock within a block. Without a vCPU of this thread it gives the
/// clock as it was when the thread began to run blocks; what was skipped while all vCPUs were idle does not change
/// until then.
///
/// # Safety
/// The caller is called by QEMU, and if this is on the thread of a vCPU, outside of any block or before one.
pub unsafe fn time(executed: u64) -> u64 {
    // SAFETY: QEMU's functions take any thread. The variable is this thread's own, and has its value again before
    // QEMU's code runs on.
    unsafe {
        let Some(place) = current() else { return executed };
        let cpu = place.replace(std::ptr::null_mut());
        let skipped = qemu_clock_get_ns(VIRTUAL) - icount_to_ns(icount_get_raw());
        place.write(cpu);
        (skipped + icount_to_ns(executed as i64)).unsigned_abs()
    }
}
