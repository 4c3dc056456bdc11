//! Where interrupts and exceptions begin, which QEMU 10.2 and later tell. Stage: capture.
//!
//! In: QEMU's call at each discontinuity of a vCPU. Out: whether the block that a vCPU is about to run is the first one
//! of a handler; nothing with an earlier QEMU. Runs in: QEMU's process, on the thread of the vCPU, before the handler's
//! first block.

use crate::interface::Id;
use crate::reset::MAX_CPUS;
use crate::symbol::symbol;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Interrupts and exceptions, as QEMU's bits; another one is a call of the host.
const KINDS: c_int = 1 | 2;

/// Whether QEMU tells it.
static TELLS: AtomicBool = AtomicBool::new(false);
/// By vCPU: the first instruction of the handler that was entered last; 0 if that was seen.
static ENTERED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

#[cfg(not(interface = "7"))]
extern "C" fn on_entry(_: Id, cpu: c_uint, _: c_int, from: u64, to: u64) {
    enter(cpu, from, to);
}

#[cfg(interface = "7")]
extern "C" fn on_entry(cpu: c_uint, _: c_int, from: u64, to: u64, _: *mut c_void) {
    enter(cpu, from, to);
}

/// QEMU tells each `hlt` as an exception that goes nowhere.
fn enter(cpu: c_uint, from: u64, to: u64) {
    if let Some(entered) = ENTERED.get(cpu as usize).filter(|_| from != to) {
        entered.store(to, Relaxed);
    }
}

/// Asks QEMU to tell.
pub fn watch_entries(id: Id) {
    type Register = extern "C" fn(Id, c_int, *const c_void, *mut c_void);
    let Some(register) = symbol(c"qemu_plugin_register_vcpu_discon_cb") else { return };
    // SAFETY: QEMU's function has this type in version 7 of the interface; before, it takes no data, and the caller may
    // give more than a C function takes. The function that it calls has the type of the same version.
    let register = unsafe { std::mem::transmute::<NonNull<c_void>, Register>(register) };
    register(id, KINDS, on_entry as *const c_void, std::ptr::null_mut());
    TELLS.store(true, Relaxed);
}

/// Whether an interrupt or exception has led a vCPU to the block at `start`, before which this is called; `None` if
/// QEMU does not tell.
pub fn was_entered(cpu: usize, start: u64) -> Option<bool> {
    TELLS.load(Relaxed).then(|| ENTERED.get(cpu).is_some_and(|entered| entered.swap(0, Relaxed) == start))
}
