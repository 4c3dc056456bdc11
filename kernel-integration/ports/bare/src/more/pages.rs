//! Page tables for the feature `probes`: the kernel's code is read-only, the rest of its addresses is not executable,
//! and all memory is mapped a second time ([`MEMORY`]), writable and not executable.
//!
//! In: the tables that `boot` has made. Out: the same tables, changed. Runs in: CPU 0, before it starts the others. The
//! mapping at 0, by which CPUs start, stays as it is.

use kprof_port::patch::PhysicalMap;
use x86_64::PhysAddr;
use x86_64::registers::control::Cr3;
use x86_64::structures::paging::{PageTable, PageTableFlags as Flags};

use crate::machine::{text_end, text_start};

/// All memory, at the addresses of entry 256 of the top table.
// SAFETY: the first 4 GiB are mapped there for ever, the page tables among them; `set_up` runs before any use.
pub const MEMORY: PhysicalMap = unsafe { PhysicalMap::at(0xffff_8000_0000_0000) };
/// The kernel's addresses begin here, with the memory at 0.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
const LARGE_PAGE: u64 = 512 * SMALL_PAGE;
const SMALL_PAGE: u64 = 4096;

/// Changes the tables.
pub fn set_up() {
    static mut LARGE: PageTable = PageTable::new();
    static mut SMALL: PageTable = PageTable::new();
    let (code, data) = (Flags::PRESENT, Flags::PRESENT | Flags::WRITABLE | Flags::NO_EXECUTE);
    let [start, end] = [&raw const text_start, &raw const text_end].map(|symbol| symbol as u64 - KERNEL);
    assert!(start % LARGE_PAGE == 0 && end - start <= LARGE_PAGE, "the code is in one large page, from its start on");
    // SAFETY: the mapping at 0 has the tables of `boot` at their physical addresses. This function runs once, and no
    // other code can access the two statics.
    let [top, large, small] = unsafe {
        [Cr3::read().0.start_address().as_u64() as *mut PageTable, &raw mut LARGE, &raw mut SMALL]
            .map(|table| table.as_mut().expect("no table is at 0"))
    };
    for (entry, address) in small.iter_mut().zip((start..).step_by(SMALL_PAGE as usize)) {
        entry.set_addr(PhysAddr::new(address), if address < end { code } else { data });
    }
    for (entry, address) in large.iter_mut().zip((0..).step_by(LARGE_PAGE as usize)) {
        entry.set_addr(PhysAddr::new(address), data | Flags::HUGE_PAGE);
    }
    let table = Flags::PRESENT | Flags::WRITABLE;
    let own = |table: *const PageTable| PhysAddr::new(table as u64 - KERNEL);
    large[(start / LARGE_PAGE) as usize].set_addr(own(small), table);
    // SAFETY: as above: the table of the kernel's addresses.
    let kernel = unsafe { (top[511].addr().as_u64() as *mut PageTable).as_mut() }.expect("no table is at 0");
    kernel[510].set_addr(own(large), table);
    let memory = top[0].addr();
    top[256].set_addr(memory, data);
    let (table, flags) = Cr3::read();
    // SAFETY: the same table again, which makes this CPU read the changed entries.
    unsafe { Cr3::write(table, flags) };
}
