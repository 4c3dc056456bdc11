//! ACPI: CPUs and APICs from the MADT, the PM timer from the FADT, PCI configuration space from the MCFG.

use alloc::vec::Vec;
use core::ptr::NonNull;

use acpi::fadt::Fadt;
use acpi::madt::{Madt, MadtEntry};
use acpi::mcfg::Mcfg;
use acpi::sdt::SdtHeader;
use acpi::{AcpiHandler, AcpiTables, PhysicalMapping};

use crate::log;
use crate::memory::phys_to_virt;

/// The facts from the tables that this kernel uses.
pub struct Platform {
    /// Local APIC ids of the usable CPUs, including the boot CPU's.
    pub apic_ids: Vec<u32>,
    /// Physical address of the local APICs.
    pub local_apic: u64,
    /// Physical address of the first I/O APIC.
    pub io_apic: Option<u64>,
    /// Port of the PM timer.
    pub pm_timer_port: Option<u16>,
    /// Physical address of the PCI configuration space.
    pub pci_config: Option<u64>,
}

/// Reads the tables.
///
/// # Panics
/// If the RSDP or the MADT is missing, because the CPUs are then unknown.
#[inline(never)]
pub fn read(rsdp: u64) -> Platform {
    // SAFETY: the loader gave the address of the RSDP.
    let tables = unsafe { AcpiTables::from_rsdp(DirectMap, rsdp as usize) }.expect("no ACPI tables");
    let madt = tables.find_table::<Madt>().expect("no MADT");
    let mut platform = Platform {
        apic_ids: Vec::new(),
        local_apic: madt.get().local_apic_address as u64,
        io_apic: None,
        pm_timer_port: None,
        pci_config: None,
    };
    for entry in madt.get().entries() {
        match entry {
            MadtEntry::LocalApic(apic) if { apic.flags } & 1 != 0 => platform.apic_ids.push(apic.apic_id as u32),
            MadtEntry::IoApic(apic) if platform.io_apic.is_none() => {
                platform.io_apic = Some({ apic.io_apic_address } as u64);
            }
            MadtEntry::LocalApicAddressOverride(entry) => platform.local_apic = entry.local_apic_address,
            _ => {}
        }
    }
    if let Ok(fadt) = tables.find_table::<Fadt>()
        && let Ok(Some(timer)) = fadt.pm_timer_block()
    {
        platform.pm_timer_port = u16::try_from(timer.address).ok();
    }
    if let Ok(dsdt) = tables.dsdt()
        && !is_whole(dsdt.address, dsdt.length as usize)
    {
        log!("acpi: the DSDT's checksum is wrong");
    }
    if let Ok(mcfg) = tables.find_table::<Mcfg>() {
        platform.pci_config = mcfg.entries().first().map(|entry| entry.base_address);
    }
    platform
}

/// Whether the checksum of a definition block is right: the bytes of its header and of its AML at `address` must add up
/// to 0 (ACPI 6.5, 5.2.6).
#[inline(never)]
fn is_whole(address: usize, bytes: usize) -> bool {
    let header = size_of::<SdtHeader>();
    let first = phys_to_virt((address - header) as u64) as *const u8;
    // SAFETY: the header was checked when the block was found, and the direct map covers the firmware's tables.
    let table = unsafe { core::slice::from_raw_parts(first, header + bytes) };
    table.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) == 0
}

/// Accesses physical memory through the direct map. The tables are only read; no AML is run.
#[derive(Clone)]
struct DirectMap;

impl AcpiHandler for DirectMap {
    unsafe fn map_physical_region<T>(&self, address: usize, size: usize) -> PhysicalMapping<Self, T> {
        let mapped = NonNull::new(phys_to_virt(address as u64) as *mut T).expect("the direct map is not at 0");
        // SAFETY: the direct map covers all of RAM and the firmware's tables in it.
        unsafe { PhysicalMapping::new(address, mapped, size, size, self.clone()) }
    }

    fn unmap_physical_region<T>(_region: &PhysicalMapping<Self, T>) {}
}
