//! The general registers of vCPUs before each block, where QEMU 7.2 to 8.2 has them in memory. Stage: capture.
//!
//! In: vCPUs. Out: their registers, faster than by QEMU's function. Where they are is looked for, and checked later.
//! Runs in: QEMU's process, on the one thread of all vCPUs.

use super::vcpu::{RSP_IN_MEMORY, Vcpu};

/// How many blocks run between two checks of a place.
const CHECK: u64 = 1 << 16;

/// Where the vCPUs have their stack pointers.
pub struct Readings {
    /// By vCPU; null if that is not known yet.
    places: Vec<*const u64>,
    until_check: u64,
    /// How often a place gave another value than QEMU's function.
    pub wrong: u64,
}

impl Default for Readings {
    fn default() -> Self {
        Self { places: Vec::new(), until_check: CHECK, wrong: 0 }
    }
}

impl Readings {
    /// A block is about to run on this vCPU.
    #[inline]
    pub fn before(&mut self, cpu: usize) {
        self.until_check -= 1;
        if self.until_check == 0 {
            self.until_check = CHECK;
        }
        if self.until_check == CHECK || self.places.get(cpu).is_none_or(|place| place.is_null()) {
            self.check(cpu);
        }
    }

    #[cold]
    fn check(&mut self, cpu: usize) {
        if cpu >= self.places.len() {
            self.places.resize(cpu + 1, std::ptr::null());
        }
        // SAFETY: QEMU is about to run a block on this vCPU.
        let Some(vcpu) = (unsafe { Vcpu::present(cpu) }) else { return };
        let is_known = !self.places[cpu].is_null();
        let is_wrong = is_known && self.register(cpu, RSP_IN_MEMORY) != vcpu.registers().rsp;
        self.wrong += u64::from(is_wrong);
        if is_wrong || !is_known {
            self.places[cpu] = vcpu.place_of_rsp().unwrap_or(std::ptr::null());
        }
    }

    /// A general register, in the order of the processor's encoding.
    #[inline]
    pub fn register(&self, cpu: usize, number: usize) -> u64 {
        match self.places.get(cpu) {
            // SAFETY: it points into the vCPU, which QEMU does not free, and this is the vCPU's thread, between two
            // blocks. The general registers are in a row around the stack pointer.
            Some(place) if !place.is_null() => unsafe { place.sub(RSP_IN_MEMORY).add(number).read() },
            // SAFETY: QEMU is about to run a block on this vCPU.
            _ => unsafe { Vcpu::present(cpu) }.map_or(0, |vcpu| vcpu.general(number)),
        }
    }
}
