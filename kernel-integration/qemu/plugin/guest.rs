//! A vCPU between two blocks, as the shadow stack sees it. Stage: capture.
//!
//! In: its number. Out: registers and memory. Runs in: QEMU's process, on the thread of this vCPU, before a block: its
//! registers are in memory then.

use super::block::Machine;
use super::clock::time;
use super::qemu::{self, Readings, Vcpu};

const RSP: usize = 4;

/// The vCPU before a block.
pub struct Guest<'a> {
    pub cpu: usize,
    pub readings: &'a Readings,
}

impl Guest<'_> {
    /// The vCPU with its registers in memory.
    pub fn vcpu(&self) -> Option<Vcpu> {
        // SAFETY: this exists only in functions that QEMU calls before a block.
        unsafe { Vcpu::present(self.cpu) }
    }
}

impl Machine for Guest<'_> {
    #[inline]
    fn rsp(&self) -> u64 {
        self.register(RSP)
    }

    #[inline]
    fn register(&self, number: usize) -> u64 {
        self.readings.register(self.cpu, number)
    }

    fn time(&self, executed: u64) -> u64 {
        // SAFETY: this exists only in functions that QEMU calls on the thread of a vCPU.
        unsafe { time(executed) }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.vcpu()?.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    fn was_entered(&self, start: u64) -> Option<bool> {
        qemu::was_entered(self.cpu, start)
    }
}
