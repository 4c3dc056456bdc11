//! Where each vCPU goes on after the machine was stopped, as by a debugger. Stage: capture.
//!
//! In: QEMU's changes of state, and the shadow stack. Out: after each stop, for each vCPU that runs on before the next
//! one: the stop's number from 1, the address of its first block, and the exact context. Runs in: QEMU's process,
//! before a block; the changes are sent by another thread. Stops where no vCPU runs on have no message.

use super::output::{Output, message};
use super::qemu::Vcpu;
use super::shadow::Shadow;
use super::symbol::symbol;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Stops until now.
static STOPS: AtomicU64 = AtomicU64::new(0);

type OnChange = extern "C" fn(*mut c_void, bool, c_int);

extern "C" fn on_change(_: *mut c_void, is_running: bool, _: c_int) {
    STOPS.fetch_add(u64::from(!is_running), Relaxed);
}

/// The stop after which each vCPU has been seen.
pub struct Stops(Vec<u64>);

impl Stops {
    /// Asks QEMU to tell.
    pub fn new() -> Result<Self, String> {
        let add = symbol(c"qemu_add_vm_change_state_handler").ok_or("this QEMU does not tell when it is stopped")?;
        // SAFETY: QEMU's function has this type in all versions that take this plugin.
        let add =
            unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn(OnChange, *mut c_void) -> *mut c_void>(add) };
        add(on_change, std::ptr::null_mut());
        Ok(Self(Vec::new()))
    }

    /// A block is about to run.
    #[inline]
    pub fn before(&mut self, cpu: usize, vcpu: impl FnOnce() -> Option<Vcpu>, shadow: &Shadow, out: &Output) {
        let stop = STOPS.load(Relaxed);
        if self.0.get(cpu).copied().unwrap_or(0) != stop {
            self.0.resize(self.0.len().max(cpu + 1), 0);
            self.0[cpu] = stop;
            if let Some(at) = vcpu().map(|vcpu| vcpu.registers()) {
                out.send(message::STOP, cpu, &[stop, at.rip, at.cs, u64::from(shadow.cpus[cpu].node)]);
            }
        }
    }
}
