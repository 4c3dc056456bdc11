//! Privilege and mstatus of a riscv64 in QEMU 7.2 to 8.2. Stage: capture.
//!
//! In: a vCPU and its general registers. Out: what the plugin interface does not tell, by functions that QEMU itself
//! uses. Runs in: QEMU's process, on the vCPU's thread.

use super::Vcpu;
use crate::symbol::symbol;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of the register.
const MSTATUS: c_int = 0x300;
const FETCH: bool = true;

/// Where the vCPUs have their general registers; `usize::MAX` if that is not known.
static PLACE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Privilege and mstatus. QEMU's functions take its state of the processor, which begins with the general registers:
/// it is where the vCPU's object has all of them in a row. `None` if that is nowhere, or QEMU has no such functions.
pub fn state(vcpu: &Vcpu, general: &[u64; 32]) -> Option<(u64, u64)> {
    let (object, bytes) = vcpu.object();
    // SAFETY: this many bytes of the object can be read, and do not change meanwhile; it is aligned for any type.
    let words = unsafe { std::slice::from_raw_parts(object.cast::<u64>(), bytes / 8) };
    let is_here = |at: &usize| words.get(*at..at.saturating_add(general.len())).is_some_and(|here| here == general);
    // Registers that are nearly all 0, as at the start, are found anywhere.
    let is_told_apart = || general.iter().filter(|value| **value != 0).count() >= 4;
    let at = match PLACE.load(Relaxed) {
        at if is_here(&at) => at,
        _ if is_told_apart() => (0..words.len()).find(is_here)?,
        _ => return None,
    };
    PLACE.store(at, Relaxed);
    let level = symbol(c"riscv_cpu_mmu_index")?;
    let csr = symbol(c"riscv_csrrw_debug")?;
    // SAFETY: the place is within the object.
    let state = unsafe { object.cast::<u64>().add(at) }.cast::<c_void>();
    let mut mstatus = 0;
    // SAFETY: the functions have these types in QEMU 7.2 to 8.2, whose state of the processor begins with the general
    // registers. The first gives the privilege of code, the second one reads: no bit is written with a mask of 0.
    unsafe {
        let level = std::mem::transmute::<NonNull<c_void>, extern "C" fn(*mut c_void, bool) -> c_int>(level);
        let csr =
            std::mem::transmute::<NonNull<c_void>, extern "C" fn(*mut c_void, c_int, *mut u64, u64, u64) -> c_int>(csr);
        csr(state, MSTATUS, &raw mut mstatus, 0, 0);
        Some((level(state, FETCH) as u64 & 3, mstatus))
    }
}
