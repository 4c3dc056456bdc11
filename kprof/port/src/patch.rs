//! Writes a byte of the kernel's code, for `EventKernel::patch`: through the mapping of all physical memory that many
//! kernels have, so no page need be writable where it is executable.
//!
//! In: where physical memory is mapped, an address, a byte. Out: the byte at this address, or why it was not written.
//! Runs in: ordinary code. It reads the page tables and changes none. It never writes through a mapping that is
//! executable, and never to another memory than that of the code. Source: Intel SDM volume 3A, 4.5 and 4.6.

use core::fmt;
use x86_64::registers::control::{Cr3, Cr4, Cr4Flags};
use x86_64::structures::paging::PageTableFlags;

/// The mapping of all physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalMap {
    offset: u64,
}

/// Why a byte of code was not written. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// There is no code at this address.
    NotMapped(u64),
    /// The memory of the code at the first address should also be mapped at the second one, and is not.
    NotInMap(u64, u64),
    /// It is mapped there, but read-only.
    ReadOnly(u64),
    /// It is mapped there, but executable.
    Executable(u64),
}

impl fmt::Display for NotWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped(address) => write!(f, "nothing is mapped at {address:#x}, so no code can be written there"),
            Self::NotInMap(address, alias) => write!(
                f,
                "the memory of the code at {address:#x} is not mapped at {alias:#x}: the offset of `PhysicalMap` is \
                 wrong, or the mapping of physical memory leaves out the kernel"
            ),
            Self::ReadOnly(alias) => write!(f, "the mapping of physical memory is read-only at {alias:#x}"),
            Self::Executable(alias) => write!(
                f,
                "the mapping of physical memory is executable at {alias:#x}: set the no-execute bit in its page table"
            ),
        }
    }
}

/// Where an address leads to, and what all levels of the page tables allow there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    physical: u64,
    is_writable: bool,
    is_executable: bool,
}

impl PhysicalMap {
    /// All physical memory is mapped from `offset` on; 0 if every address is its own physical one.
    ///
    /// # Safety
    /// As long as this is used, the page tables of the kernel can be read at their physical addresses plus `offset`,
    /// and none that leads to the kernel's code or to this mapping is given up.
    pub const unsafe fn at(offset: u64) -> Self {
        Self { offset }
    }

    /// Writes a byte of the code that is mapped at `address` on this CPU.
    ///
    /// # Errors
    /// [`NotWritten`]; nothing is changed.
    ///
    /// # Safety
    /// The byte is right in every state in which a CPU may execute the code, as `EventKernel::patch` promises.
    pub unsafe fn write(&self, address: u64, byte: u8) -> Result<(), NotWritten> {
        let levels = if Cr4::read().contains(Cr4Flags::L5_PAGING) { 5 } else { 4 };
        // SAFETY: the tables that this CPU uses.
        let alias = unsafe { self.alias(Cr3::read().0.start_address().as_u64(), levels, address)? };
        // SAFETY: mapped, writable, and the memory of the code at `address`, of which the caller promises the rest.
        unsafe { (alias as *mut u8).write_volatile(byte) };
        Ok(())
    }

    /// The address at which the code at `address` can be written.
    ///
    /// # Safety
    /// `top` is the physical address of page tables of this many levels, which can be read as `at` says.
    unsafe fn alias(&self, top: u64, levels: u32, address: u64) -> Result<u64, NotWritten> {
        // SAFETY: the caller's promise.
        let find = |address| unsafe { self.find(top, levels, address) };
        let code = find(address).ok_or(NotWritten::NotMapped(address))?;
        let alias = self.offset.wrapping_add(code.physical);
        match find(alias).filter(|found| found.physical == code.physical) {
            None => Err(NotWritten::NotInMap(address, alias)),
            Some(Mapped { is_writable: false, .. }) => Err(NotWritten::ReadOnly(alias)),
            Some(Mapped { is_executable: true, .. }) => Err(NotWritten::Executable(alias)),
            Some(_) => Ok(alias),
        }
    }

    /// Follows the page tables, as the processor does. (The `x86_64` crate's own walk returns the rights of the last
    /// level only.)
    ///
    /// # Safety
    /// As [`Self::alias`].
    unsafe fn find(&self, top: u64, levels: u32, address: u64) -> Option<Mapped> {
        let (mut table, mut is_writable, mut is_executable) = (top, true, true);
        for level in (1..=levels).rev() {
            let shift = 3 + 9 * level;
            let entry = self.offset.wrapping_add(table + (address >> shift & 0x1ff) * 8) as *const u64;
            // SAFETY: one of the 512 entries of a table that the caller promises.
            let entry = unsafe { entry.read_volatile() };
            let flags = PageTableFlags::from_bits_retain(entry);
            if !flags.contains(PageTableFlags::PRESENT) {
                return None;
            }
            is_writable &= flags.contains(PageTableFlags::WRITABLE);
            is_executable &= !flags.contains(PageTableFlags::NO_EXECUTE);
            table = entry & PHYSICAL;
            if level == 1 || flags.contains(PageTableFlags::HUGE_PAGE) {
                // The lowest bits of the address of a large page are flags.
                let inside = (1 << shift) - 1;
                return Some(Mapped { physical: table & !inside | address & inside, is_writable, is_executable });
            }
        }
        None
    }
}

/// The bits of an entry with the physical address.
const PHYSICAL: u64 = 0x000f_ffff_ffff_f000;

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = PageTableFlags::PRESENT.bits();
    const WRITE: u64 = READ | PageTableFlags::WRITABLE.bits();
    const NO_EXECUTE: u64 = PageTableFlags::NO_EXECUTE.bits();
    /// Where the kernel's code is mapped, and its memory. The code is in the third small page of a large one.
    const CODE: u64 = 0xffff_ffff_8020_2123;
    const MEMORY: u64 = 0x4020_2123;
    const OFFSET: u64 = 0x1_0000_0000;
    /// A flag of large pages that is among the bits of a small page's address.
    const LARGE_PAT: u64 = 1 << 12;
    /// The pages: 4 KiB, 2 MiB, 1 GiB.
    const SIZES: [u32; 3] = [12, 21, 30];

    /// Page tables as the processor reads them.
    #[repr(align(4096))]
    struct Table([u64; 512]);

    /// A kernel's page tables, each at its physical address plus `OFFSET`.
    struct Tables {
        levels: u32,
        all: Vec<Box<Table>>,
    }

    impl Tables {
        fn new(levels: u32) -> Self {
            Self { levels, all: vec![Box::new(Table([0; 512]))] }
        }

        fn physical(&self, table: usize) -> u64 {
            self.all[table].0.as_ptr().expose_provenance() as u64 - OFFSET
        }

        /// Maps a page to the memory of `MEMORY`. `above` are the flags of the upper levels.
        fn map(mut self, address: u64, size: u32, flags: u64, above: u64) -> Self {
            let mut table = 0;
            for level in (1..=self.levels).rev() {
                let (shift, index) = (3 + 9 * level, (address >> (3 + 9 * level) & 0x1ff) as usize);
                if shift == size {
                    let large = if level > 1 { PageTableFlags::HUGE_PAGE.bits() | LARGE_PAT } else { 0 };
                    self.all[table].0[index] = MEMORY >> size << size | flags | large;
                    break;
                }
                let next = self.all[table].0[index] & PHYSICAL;
                let next = (1..self.all.len()).find(|table| self.physical(*table) == next).unwrap_or_else(|| {
                    self.all.push(Box::new(Table([0; 512])));
                    self.all.len() - 1
                });
                self.all[table].0[index] = self.physical(next) | above;
                table = next;
            }
            self
        }

        /// What is written to for the code.
        fn alias(&self) -> Result<u64, NotWritten> {
            // SAFETY: the tables above.
            unsafe { PhysicalMap::at(OFFSET).alias(self.physical(0), self.levels, CODE) }
        }
    }

    #[test]
    fn code_in_pages_of_any_size_is_written_through_the_map_of_physical_memory() {
        for (levels, code) in [4, 5].into_iter().flat_map(|levels| SIZES.map(|size| (levels, size))) {
            for map in SIZES {
                let tables = Tables::new(levels).map(CODE, code, READ, WRITE);
                let tables = tables.map(OFFSET + MEMORY, map, WRITE | NO_EXECUTE, WRITE);
                assert_eq!(tables.alias(), Ok(OFFSET + MEMORY), "{levels} levels, {code}, {map}");
            }
        }
    }

    #[test]
    fn the_rights_are_those_of_all_levels_together() {
        let with = |flags, above| Tables::new(4).map(CODE, 12, READ, WRITE).map(OFFSET + MEMORY, 21, flags, above);
        assert_eq!(with(WRITE, WRITE | NO_EXECUTE).alias(), Ok(OFFSET + MEMORY));
        assert_eq!(with(WRITE | NO_EXECUTE, READ).alias(), Err(NotWritten::ReadOnly(OFFSET + MEMORY)));
        assert_eq!(with(READ | NO_EXECUTE, WRITE).alias(), Err(NotWritten::ReadOnly(OFFSET + MEMORY)));
        assert_eq!(with(WRITE, WRITE).alias(), Err(NotWritten::Executable(OFFSET + MEMORY)));
    }

    #[test]
    fn nothing_but_the_memory_of_the_code_is_written() {
        let not_in_map = Err(NotWritten::NotInMap(CODE, OFFSET + MEMORY));
        let code = || Tables::new(4).map(CODE, 12, READ, WRITE);
        assert_eq!(Tables::new(4).alias(), Err(NotWritten::NotMapped(CODE)));
        assert_eq!(code().alias(), not_in_map);
        assert_eq!(code().map(OFFSET + MEMORY, 12, WRITE & !READ, WRITE).alias(), not_in_map, "it is not present");
        let mut other = code().map(OFFSET + MEMORY, 12, WRITE | NO_EXECUTE, WRITE);
        let last = other.all.last_mut().unwrap();
        last.0.iter_mut().filter(|entry| **entry != 0).for_each(|entry| *entry += 0x1000);
        assert_eq!(other.alias(), not_in_map, "it is the next page");
    }

    #[test]
    fn an_error_says_where_and_what_to_do() {
        let said = |error: NotWritten| error.to_string();
        let executable = said(NotWritten::Executable(0x5000));
        assert!(executable.contains("0x5000") && executable.contains("set the no-execute bit"), "{executable}");
        let other = said(NotWritten::NotInMap(0x1000, 0x5000));
        assert!(other.contains("0x1000 is not mapped at 0x5000: the offset of `PhysicalMap`"), "{other}");
    }
}
