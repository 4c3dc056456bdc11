//! A vCPU between two blocks, as the shadow stack sees it. Stage: capture.
//!
//! In: its number, and where QEMU has its stack pointer. Out: registers and memory. Runs in: QEMU's process, on the
//! thread of this vCPU, before a block: its registers are in memory then. [`check`] looks for the place
//! of the stack pointer in QEMU's memory, and checks it later.

use super::block::Machine;
use super::qemu::{RSP_IN_MEMORY, Vcpu, time};
use std::ffi::c_uint;

/// The vCPU before a block.
pub struct Guest {
    pub cpu: c_uint,
    pub place: *const u64,
}

impl Guest {
    /// The vCPU with its registers in memory.
    pub fn vcpu(&self) -> Option<Vcpu> {
        // SAFETY: this exists only in functions that QEMU calls before a block.
        unsafe { Vcpu::present(self.cpu) }
    }
}

impl Machine for Guest {
    #[inline]
    fn rsp(&self) -> u64 {
        if self.place.is_null() {
            return self.vcpu().map_or(0, |vcpu| vcpu.registers().rsp);
        }
        // SAFETY: it points into the vCPU, which QEMU does not free, and this is the vCPU's thread, between two blocks.
        unsafe { self.place.read() }
    }

    fn register(&self, number: usize) -> u64 {
        if self.place.is_null() {
            return self.vcpu().map_or(0, |vcpu| vcpu.general(number));
        }
        // SAFETY: as in `rsp`; the general registers are in a row around the stack pointer.
        unsafe { self.place.sub(RSP_IN_MEMORY).add(number).read() }
    }

    fn time(&self, executed: u64) -> u64 {
        // SAFETY: this exists only in functions that QEMU calls on the thread of a vCPU.
        unsafe { time(executed) }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.vcpu()?.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// Looks for the stack pointer's place, or checks it. Returns 1 if it was wrong.
#[cold]
pub fn check(guest: &mut Guest) -> u64 {
    let Some(vcpu) = guest.vcpu() else { return 0 };
    let is_wrong = !guest.place.is_null() && guest.rsp() != vcpu.registers().rsp;
    if is_wrong || guest.place.is_null() {
        guest.place = vcpu.place_of_rsp().unwrap_or(std::ptr::null());
    }
    u64::from(is_wrong)
}
