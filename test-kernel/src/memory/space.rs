//! User address spaces: areas with their protection and contents, and pages that are mapped when they are first used.
//!
//! All areas (anonymous memory and bytes of a file) are demand-paged; after fork pages are copied on write. Only one
//! thread at a time runs in a space (processes have one thread, and a vfork parent waits). A CPU flushes its TLB
//! whenever it switches to a user thread, and when the wait of a vfork parent is over. So a CPU that runs a thread in a
//! space never has translations from before another CPU has changed that space.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr;

use bitflags::bitflags;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;

use super::paging::{self, bits};
use super::{PAGE, USER_END, frames, page_ceil, page_floor, phys_to_virt};
use crate::lock::Lock;

bitflags! {
    /// What user code may do with an area (the PROT_ bits of Linux).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Protection: u64 {
        /// Read.
        const READ = 1;
        /// Write.
        const WRITE = 2;
        /// Execute.
        const EXECUTE = 4;
    }
}

/// The bytes of a file that is mapped.
#[derive(Clone)]
pub enum Bytes {
    /// In the initrd.
    Static(&'static [u8]),
    /// Read from a file system.
    Shared(Arc<[u8]>),
}

impl Bytes {
    /// The bytes themselves.
    pub fn get(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Where the contents of an area come from.
#[derive(Clone)]
pub struct Backing {
    /// The file.
    pub bytes: Bytes,
    /// Offset in the file of the area's first byte.
    pub offset: u64,
    /// The end of the mapped part of the file. From there on the area has zeros.
    pub end: u64,
}

/// A range of user addresses with one protection and one source of contents.
#[derive(Clone)]
struct Area {
    start: u64,
    end: u64,
    protection: Protection,
    backing: Option<Backing>,
}

/// The address space has no free range, or the address is not a user address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

struct Inner {
    areas: Vec<Area>,
}

/// The user half of an address space.
pub struct AddressSpace {
    tables: u64,
    inner: Lock<Inner>,
}

impl AddressSpace {
    /// An empty space; `None` if there is no memory.
    pub fn new() -> Option<Self> {
        Some(Self { tables: paging::new_tables()?, inner: Lock::new(Inner { areas: Vec::new() }) })
    }

    /// Physical address of the top table.
    pub fn tables(&self) -> u64 {
        self.tables
    }

    /// Adds an area at exactly `start`. It replaces what was mapped there.
    ///
    /// # Errors
    /// [`BadAddress`] if the range is not user memory.
    pub fn map(
        &self,
        start: u64,
        bytes: u64,
        protection: Protection,
        backing: Option<Backing>,
    ) -> Result<(), BadAddress> {
        let end = page_ceil(start.checked_add(bytes).ok_or(BadAddress)?);
        let start = page_floor(start);
        if start < PAGE || end > USER_END || end <= start {
            return Err(BadAddress);
        }
        self.unmap(start, end - start);
        self.inner.lock().insert(Area { start, end, protection, backing });
        Ok(())
    }

    /// Adds an anonymous area at any address below `below`, and returns its address.
    ///
    /// # Errors
    /// [`BadAddress`] if no free range is large enough.
    pub fn map_anywhere(&self, bytes: u64, below: u64, protection: Protection) -> Result<u64, BadAddress> {
        let bytes = page_ceil(bytes);
        let mut inner = self.inner.lock();
        let mut end = below;
        for area in inner.areas.iter().rev().filter(|area| area.start < below) {
            if area.end.checked_add(bytes).is_some_and(|needed| needed <= end) {
                break;
            }
            end = end.min(area.start);
        }
        let start = end.checked_sub(bytes).filter(|start| *start >= 1 << 20).ok_or(BadAddress)?;
        inner.insert(Area { start, end, protection, backing: None });
        Ok(start)
    }

    /// Removes the areas and pages of a range.
    pub fn unmap(&self, start: u64, bytes: u64) {
        let (start, end) = (page_floor(start), page_ceil(start.saturating_add(bytes)).min(USER_END));
        let mut inner = self.inner.lock();
        for area in inner.cut_out(start, end) {
            self.for_each_page(area.start, area.end, |_, entry, value| {
                // SAFETY: this is an entry of this space, whose lock is held.
                unsafe { ptr::write_volatile(entry, 0) };
                frames::release(value & bits::ADDRESS);
            });
        }
    }

    /// Changes the protection of a range.
    pub fn protect(&self, start: u64, bytes: u64, protection: Protection) {
        let (start, end) = (page_floor(start), page_ceil(start.saturating_add(bytes)).min(USER_END));
        let mut inner = self.inner.lock();
        for mut area in inner.cut_out(start, end) {
            area.protection = protection;
            self.for_each_page(area.start, area.end, |_, entry, value| {
                let shared = value & bits::COPY_ON_WRITE != 0 || !frames::is_unique(value & bits::ADDRESS);
                let new = (value & bits::ADDRESS) | page_bits(protection, shared);
                // SAFETY: an entry of this space, whose lock is held.
                unsafe { ptr::write_volatile(entry, new) };
            });
            inner.insert(area);
        }
    }

    /// Calls `visit` with every mapped page of a range (address, entry, value), and then flushes the TLB.
    fn for_each_page(&self, start: u64, end: u64, mut visit: impl FnMut(u64, *mut u64, u64)) {
        let mut page = start;
        while page < end {
            let Some(entry) = paging::find(self.tables, page) else {
                // There is no table here, so the 2 MiB that it would cover are skipped.
                page = (page | ((2 << 20) - 1)) + 1;
                continue;
            };
            // SAFETY: this is an entry of this space, whose lock the caller holds.
            let value = unsafe { ptr::read_volatile(entry) };
            if value & bits::PRESENT != 0 {
                visit(page, entry, value);
                tlb::flush(VirtAddr::new(page));
            }
            page += PAGE;
        }
    }

    /// Makes the page at `address` usable for this access. Returns false if the access is not allowed, or if there is
    /// no memory.
    #[inline(never)]
    pub fn fault(&self, address: u64, write: bool, execute: bool) -> bool {
        let page = page_floor(address);
        let inner = self.inner.lock();
        let Some(area) = inner.areas.iter().find(|area| (area.start..area.end).contains(&address)) else {
            return false;
        };
        let allowed = area.protection;
        if allowed.is_empty()
            || write && !allowed.contains(Protection::WRITE)
            || execute && !allowed.contains(Protection::EXECUTE)
        {
            return false;
        }
        let value = match paging::find(self.tables, page) {
            // SAFETY: an entry of this space, whose lock is held.
            Some(entry) => unsafe { ptr::read_volatile(entry) },
            None => 0,
        };
        let frame = if value & bits::PRESENT == 0 {
            match fill(area, page) {
                Some(frame) => frame,
                None => return false,
            }
        } else if write && value & bits::COPY_ON_WRITE != 0 {
            match unshare(value & bits::ADDRESS) {
                Some(frame) => frame,
                None => return false,
            }
        } else {
            // The entry allows the access, but the TLB had an older one, so only the TLB entry is flushed.
            tlb::flush(VirtAddr::new(page));
            return true;
        };
        let mapped = paging::map(self.tables, page, frame, page_bits(allowed, false)).is_some();
        tlb::flush(VirtAddr::new(page));
        mapped
    }

    /// A copy of the space. It shares all pages until one side writes to them. `None` if there is no memory.
    pub fn fork(&self) -> Option<Self> {
        let new = Self::new()?;
        let inner = self.inner.lock();
        let mut enough = true;
        for area in &inner.areas {
            self.for_each_page(area.start, area.end, |page, entry, value| {
                let shared = match value & (bits::WRITABLE | bits::COPY_ON_WRITE) {
                    0 => value,
                    _ => value & !bits::WRITABLE | bits::COPY_ON_WRITE,
                };
                // SAFETY: an entry of this space, whose lock is held.
                unsafe { ptr::write_volatile(entry, shared) };
                let frame = value & bits::ADDRESS;
                if enough && paging::map(new.tables, page, frame, shared & !bits::ADDRESS).is_some() {
                    frames::share(frame);
                } else {
                    enough = false;
                }
            });
        }
        new.inner.lock().areas = inner.areas.clone();
        enough.then_some(new)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        paging::free_user_half(self.tables, &mut |entry| frames::release(entry & bits::ADDRESS));
    }
}

fn page_bits(protection: Protection, shared: bool) -> u64 {
    // A page without any access keeps its frame. It is present but not accessible in user mode.
    let mut value = bits::PRESENT;
    if !protection.is_empty() {
        value |= bits::USER;
    }
    if protection.contains(Protection::WRITE) {
        value |= if shared { bits::COPY_ON_WRITE } else { bits::WRITABLE };
    }
    if !protection.contains(Protection::EXECUTE) {
        value |= bits::NO_EXECUTE;
    }
    value
}

/// A new frame with the contents of `area` at `page`.
#[inline(never)]
fn fill(area: &Area, page: u64) -> Option<u64> {
    let Some(backing) = &area.backing else { return frames::allocate_zeroed() };
    let offset = backing.offset + (page - area.start);
    let end = backing.end.min(backing.bytes.get().len() as u64);
    let shown = end.saturating_sub(offset).min(PAGE) as usize;
    if shown == 0 {
        return frames::allocate_zeroed();
    }
    let frame = frames::allocate()?;
    let bytes = &backing.bytes.get()[offset as usize..][..shown];
    // SAFETY: this is a new frame that no other code uses, and `shown` is at most a page.
    unsafe {
        let target = phys_to_virt(frame) as *mut u8;
        ptr::copy_nonoverlapping(bytes.as_ptr(), target, shown);
        ptr::write_bytes(target.add(shown), 0, PAGE as usize - shown);
    }
    Some(frame)
}

/// A frame with the same contents that is not shared.
#[inline(never)]
fn unshare(frame: u64) -> Option<u64> {
    if frames::is_unique(frame) {
        return Some(frame);
    }
    let copy = frames::allocate()?;
    // SAFETY: both are whole frames in the direct map, and no other code uses the new one.
    unsafe { ptr::copy_nonoverlapping(phys_to_virt(frame) as *const u64, phys_to_virt(copy) as *mut u64, 512) };
    frames::release(frame);
    Some(copy)
}

impl Inner {
    fn insert(&mut self, area: Area) {
        let position = self.areas.partition_point(|other| other.start < area.start);
        self.areas.insert(position, area);
    }

    /// Cuts a range out of all areas. Returns the pieces that were in it.
    fn cut_out(&mut self, start: u64, end: u64) -> Vec<Area> {
        let mut inside = Vec::new();
        let mut kept = Vec::with_capacity(self.areas.len() + 1);
        for area in self.areas.drain(..) {
            if area.end <= start || area.start >= end {
                kept.push(area);
                continue;
            }
            if area.start < start {
                kept.push(Area { end: start, ..area.clone() });
            }
            inside.push(area.part(start.max(area.start), end.min(area.end)));
            if area.end > end {
                kept.push(area.part(end, area.end));
            }
        }
        self.areas = kept;
        inside
    }
}

impl Area {
    fn part(&self, start: u64, end: u64) -> Self {
        let mut part = Self { start, end, ..self.clone() };
        if let Some(backing) = &mut part.backing {
            backing.offset += start - self.start;
        }
        part
    }
}
