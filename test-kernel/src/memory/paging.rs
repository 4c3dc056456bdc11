//! Page tables: the kernel half, which all address spaces share, and basic operations on any table.
//!
//! The kernel half is built once: the direct map in 2 MiB pages, the image in 4 KiB pages with the access that its
//! sections need, and one table for stacks. Mappings are only added to it, so no TLB of another CPU has to be flushed.
//! Page table walks take no lock.

use core::ptr;

use x86_64::PhysAddr;
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::structures::paging::PhysFrame;

use super::{PAGE, PHYSICAL_MAP, frames, page_ceil, phys_to_virt};

/// Entry bits (Intel SDM volume 3A, table 4-20).
pub mod bits {
    #![allow(missing_docs)]
    pub const PRESENT: u64 = 1 << 0;
    pub const WRITABLE: u64 = 1 << 1;
    pub const USER: u64 = 1 << 2;
    pub const HUGE: u64 = 1 << 7;
    /// A bit that the processor ignores. Here it means that the page is shared until it is written to.
    pub const COPY_ON_WRITE: u64 = 1 << 9;
    pub const NO_EXECUTE: u64 = 1 << 63;
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}
use bits::*;

/// The access to a kernel page.
#[derive(Clone, Copy)]
pub enum Access {
    /// Code.
    ReadExecute,
    /// Constants.
    Read,
    /// Data.
    ReadWrite,
}

impl Access {
    fn bits(self) -> u64 {
        match self {
            Self::ReadExecute => PRESENT,
            Self::Read => PRESENT | NO_EXECUTE,
            Self::ReadWrite => PRESENT | WRITABLE | NO_EXECUTE,
        }
    }
}

const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
const DIRECT_MAP_BYTES: u64 = 4 << 30;
const HUGE_PAGE: u64 = 2 << 20;

unsafe extern "C" {
    static boot_pml4: u8;
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __kernel_end: u8;
    static __build_id_start: u8;
    static __build_id_end: u8;
    fn kmain(start_info: u64) -> !;
}

/// Physical address of the top table with which the CPUs start, which is also the kernel's own.
pub fn boot_tables() -> u64 {
    (&raw const boot_pml4) as u64
}

/// First and last address of kernel text.
pub fn text_range() -> (u64, u64) {
    ((&raw const __text_start) as u64, (&raw const __text_end) as u64)
}

/// The build id that the linker has put into the image: the note without its 16-byte header. Empty if there is none.
pub fn build_id() -> &'static [u8] {
    let start = (&raw const __build_id_start) as usize;
    let bytes = (&raw const __build_id_end) as usize - start;
    // SAFETY: the linker script puts the note between the two symbols, and it is never written.
    unsafe { core::slice::from_raw_parts((start + bytes.min(16)) as *const u8, bytes.saturating_sub(16)) }
}

/// Writes a byte of the kernel's code, in the direct map. `false` if the address is not code of the kernel's image.
///
/// # Safety
/// The byte must be right in every state in which another CPU may execute the code.
pub unsafe fn write_code(address: u64, byte: u8) -> bool {
    let (start, end) = text_range();
    let is_code = (start..end).contains(&address);
    if is_code {
        // SAFETY: the image is in the direct map, and the caller vouches for the byte.
        unsafe { ptr::write_volatile(phys_to_virt(address - KERNEL_BASE) as *mut u8, byte) };
    }
    is_code
}

/// The address of the function where the kernel begins.
pub fn kmain_address() -> u64 {
    kmain as *const () as u64
}

/// The first physical address after the kernel image.
pub fn kernel_end_physical() -> u64 {
    (&raw const __kernel_end) as u64 - KERNEL_BASE
}

/// Builds the kernel half. Once, on the boot CPU.
#[inline(never)]
pub fn init(ram_end: u64) {
    // The mappings are built in new tables. The boot tables stay in use until their top entries are replaced.
    let top = frames::allocate_zeroed().expect("no memory for page tables");
    for physical in (0..DIRECT_MAP_BYTES.max(ram_end)).step_by(HUGE_PAGE as usize) {
        map_huge(top, PHYSICAL_MAP + physical, physical);
    }
    let sections = [
        ((&raw const __text_start) as u64, (&raw const __text_end) as u64, Access::ReadExecute),
        ((&raw const __text_end) as u64, (&raw const __rodata_end) as u64, Access::Read),
        ((&raw const __rodata_end) as u64, (&raw const __kernel_end) as u64, Access::ReadWrite),
    ];
    for (start, end, access) in sections {
        for page in (start..page_ceil(end)).step_by(PAGE as usize) {
            map(top, page, page - KERNEL_BASE, access.bits()).expect("no memory for page tables");
        }
    }
    let stacks = frames::allocate_zeroed().expect("no memory for page tables");
    let (new, boot) = (phys_to_virt(top) as *mut u64, phys_to_virt(boot_tables()) as *mut u64);
    // SAFETY: both are top tables. The new direct map and the new image cover everything that the boot tables have
    // mapped there.
    unsafe {
        ptr::write_volatile(boot.add(384), stacks | PRESENT | WRITABLE);
        ptr::write_volatile(boot.add(256), ptr::read(new.add(256)));
        ptr::write_volatile(boot.add(511), ptr::read(new.add(511)));
    }
    load(boot_tables());
    frames::release(top);
}

fn map_huge(tables: u64, address: u64, physical: u64) {
    let entry = entry_of(tables, address, 2).expect("no memory for page tables");
    // SAFETY: this is an entry of the direct map, which is never set to another value.
    unsafe { ptr::write_volatile(entry, physical | PRESENT | WRITABLE | HUGE | NO_EXECUTE) };
}

/// Removes the identity map of the first GiB, after all CPUs have started. Address 0 is then unmapped.
#[inline(never)]
pub fn drop_identity_map() {
    // SAFETY: no code runs at low addresses from here on.
    unsafe { ptr::write_volatile(phys_to_virt(boot_tables()) as *mut u64, 0) };
    load(boot_tables());
}

/// Whether the first GiB is still identity-mapped.
pub fn has_identity_map() -> bool {
    // SAFETY: this reads an entry of the top table, which is always mapped.
    unsafe { ptr::read_volatile(phys_to_virt(boot_tables()) as *const u64) != 0 }
}

/// Makes `tables` the address space of this CPU and flushes its TLB.
pub fn load(tables: u64) {
    // SAFETY: every top table has the kernel half.
    unsafe { Cr3::write(PhysFrame::containing_address(PhysAddr::new(tables)), Cr3Flags::empty()) };
}

/// The address space of this CPU.
pub fn current() -> u64 {
    Cr3::read().0.start_address().as_u64()
}

/// The entry for `address` at `level` (1 = 4 KiB page, 2 = 2 MiB page). Missing tables are created. Returns `None` if
/// there is no memory, or if a larger page is mapped there.
fn entry_of(tables: u64, address: u64, level: u32) -> Option<*mut u64> {
    let mut table = tables;
    let user = if address < PHYSICAL_MAP { USER } else { 0 };
    for depth in (level..=4).rev() {
        let index = address >> (12 + 9 * (depth - 1)) & 511;
        let entry = (phys_to_virt(table) as *mut u64).wrapping_add(index as usize);
        if depth == level {
            return Some(entry);
        }
        // SAFETY: `table` is a page table that was found through present entries, and the direct map covers it.
        unsafe {
            let value = ptr::read_volatile(entry);
            if value & PRESENT == 0 {
                let frame = frames::allocate_zeroed()?;
                ptr::write_volatile(entry, frame | PRESENT | WRITABLE | user);
                table = frame;
            } else if value & HUGE != 0 {
                return None;
            } else {
                table = value & ADDRESS;
            }
        }
    }
    None
}

/// Maps the page at `address` to `frame` with these entry bits. Returns `None` if there is no memory for tables.
pub fn map(tables: u64, address: u64, frame: u64, bits: u64) -> Option<()> {
    let entry = entry_of(tables, address, 1)?;
    // SAFETY: this is an entry of these tables, and the address belongs to the caller.
    unsafe { ptr::write_volatile(entry, frame | bits) };
    Some(())
}

/// Maps a page of the kernel half, which all address spaces share.
pub fn map_kernel(address: u64, frame: u64, access: Access) {
    map(boot_tables(), address, frame, access.bits()).expect("no memory for page tables");
}

/// Maps device memory at a physical address. Returns its address in the direct map.
pub fn map_device(physical: u64, bytes: u64) -> u64 {
    let start = physical & !(HUGE_PAGE - 1);
    for page in (start..physical + bytes).step_by(HUGE_PAGE as usize) {
        if page >= DIRECT_MAP_BYTES {
            map_huge(boot_tables(), PHYSICAL_MAP + page, page);
        }
    }
    phys_to_virt(physical)
}

/// The entry of the 4 KiB page at `address`, if its tables exist. It takes no lock and reads only tables, so it can be
/// called in an NMI.
pub fn find(tables: u64, address: u64) -> Option<*mut u64> {
    let mut table = tables;
    for depth in (1..=4).rev() {
        let index = address >> (12 + 9 * (depth - 1)) & 511;
        let entry = (phys_to_virt(table) as *mut u64).wrapping_add(index as usize);
        if depth == 1 {
            return Some(entry);
        }
        // SAFETY: as in `entry_of`. User tables are freed only when no CPU has them loaded.
        let value = unsafe { ptr::read_volatile(entry) };
        if value & PRESENT == 0 || value & HUGE != 0 {
            return None;
        }
        table = value & ADDRESS;
    }
    None
}

/// Reads one word of user memory without a page fault; `None` if it cannot be read. It takes no lock, so it can be
/// called in an NMI.
pub fn read_user_word(address: u64) -> Option<u64> {
    if address > super::USER_END - 8 || !address.is_multiple_of(8) {
        return None;
    }
    let entry = find(current(), address)?;
    // SAFETY: this is an entry of the loaded tables. Its frame stays mapped in the direct map, even if it is freed.
    unsafe {
        let value = ptr::read_volatile(entry);
        let usable = value & (PRESENT | USER) == PRESENT | USER;
        usable.then(|| ptr::read_volatile((phys_to_virt(value & ADDRESS) + address % PAGE) as *const u64))
    }
}

/// Frees the tables of the user half. Calls `release` for every page that is mapped.
pub fn free_user_half(tables: u64, release: &mut dyn FnMut(u64)) {
    fn free(table: u64, depth: u32, entries: usize, release: &mut dyn FnMut(u64)) {
        for index in 0..entries {
            // SAFETY: `table` is a page table that no CPU uses.
            let value = unsafe { ptr::read((phys_to_virt(table) as *const u64).add(index)) };
            if value & PRESENT == 0 {
                continue;
            }
            if depth == 1 {
                release(value);
            } else {
                free(value & ADDRESS, depth - 1, 512, release);
            }
        }
        frames::release(table);
    }
    free(tables, 4, 256, release);
}

/// A new top table with the kernel half in it.
pub fn new_tables() -> Option<u64> {
    let tables = frames::allocate_zeroed()?;
    // SAFETY: both are top tables. The entries of the kernel half never change after they were set.
    unsafe {
        let from = (phys_to_virt(boot_tables()) as *const u64).add(256);
        ptr::copy_nonoverlapping(from, (phys_to_virt(tables) as *mut u64).add(256), 256);
    }
    Some(tables)
}
