//! The I/O APIC, which sends device interrupts to a CPU. Source: Intel 82093AA data sheet.

use core::ptr;

use crate::lock::IrqLock;
use crate::memory::phys_to_virt;

static IOAPIC: IrqLock<Option<u64>> = IrqLock::new(None);

/// Sets the physical address of the first I/O APIC.
pub fn set_base(physical: u64) {
    *IOAPIC.lock() = Some(phys_to_virt(physical));
}

/// Routes the level-triggered global interrupt `gsi` to `vector` on the CPU with this APIC id.
pub fn route_level(gsi: u32, vector: u8, apic_id: u32) {
    let base = IOAPIC.lock();
    let Some(base) = *base else { return };
    let write = |register: u32, value: u32| {
        // SAFETY: the direct map covers the I/O APIC's page; index at 0, data at 0x10; the lock is held.
        unsafe {
            ptr::write_volatile(base as *mut u32, register);
            ptr::write_volatile((base + 0x10) as *mut u32, value);
        }
    };
    write(0x10 + 2 * gsi + 1, apic_id << 24);
    write(0x10 + 2 * gsi, 1 << 15 | vector as u32);
}
