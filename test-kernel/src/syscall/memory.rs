//! System calls on memory.

use super::file;
use crate::errno::{Errno, Result};
use crate::memory::space::{Backing, Bytes, Protection};
use crate::memory::{page_ceil, user};
use crate::random;
use crate::task::process;
use core::sync::atomic::Ordering;

/// Areas without a requested address are put below this one. The stack is above it.
const MMAP_TOP: u64 = 0x7fff_f000_0000;
const MAP_SHARED: u64 = 1;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

/// Anonymous and private file mappings. A file is read as a whole when it is mapped.
pub fn mmap(address: u64, bytes: u64, protection: u64, flags: u64, number: u64, offset: u64) -> Result<u64> {
    if bytes == 0 || !offset.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    let space = process::current().ok_or(Errno::ENOMEM)?.space();
    let protection = Protection::from_bits_truncate(protection);
    let backing = if flags & MAP_ANONYMOUS == 0 {
        if flags & MAP_SHARED != 0 && protection.contains(Protection::WRITE) {
            return Err(Errno::ENODEV);
        }
        let bytes: Bytes = file::get(number)?.node.read_whole().map_err(|_| Errno::ENODEV)?;
        let end = bytes.get().len() as u64;
        Some(Backing { bytes, offset, end })
    } else {
        None
    };
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if fixed && !address.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    let start = match fixed {
        true => address,
        false => space.map_anywhere(bytes, MMAP_TOP, protection).map_err(|_| Errno::ENOMEM)?,
    };
    if fixed || backing.is_some() {
        space.map(start, bytes, protection, backing).map_err(|_| Errno::ENOMEM)?;
    }
    Ok(start)
}

pub fn munmap(address: u64, bytes: u64) -> Result<u64> {
    if !address.is_multiple_of(4096) || bytes == 0 || !user::is_user(address, bytes) {
        return Err(Errno::EINVAL);
    }
    process::current().ok_or(Errno::EINVAL)?.space().unmap(address, bytes);
    Ok(0)
}

pub fn mprotect(address: u64, bytes: u64, protection: u64) -> Result<u64> {
    if !address.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    if !user::is_user(address, bytes) {
        return Err(Errno::ENOMEM);
    }
    process::current().ok_or(Errno::ENOMEM)?.space().protect(
        address,
        bytes,
        Protection::from_bits_truncate(protection),
    );
    Ok(0)
}

/// Moves the end of the heap. Returns the new end, or the old one if it could not be moved.
pub fn brk(wanted: u64) -> Result<u64> {
    let process = process::current().ok_or(Errno::ENOMEM)?;
    let (start, end) = (process.brk_start.load(Ordering::Relaxed), process.brk.load(Ordering::Relaxed));
    if wanted < start || wanted > start + (1 << 32) {
        return Ok(end);
    }
    let (old_top, new_top) = (page_ceil(end), page_ceil(wanted));
    let space = process.space();
    if new_top > old_top {
        let protection = Protection::READ | Protection::WRITE;
        if space.map(old_top, new_top - old_top, protection, None).is_err() {
            return Ok(end);
        }
    } else if new_top < old_top {
        space.unmap(new_top, old_top - new_top);
    }
    process.brk.store(wanted, Ordering::Relaxed);
    Ok(wanted)
}

pub fn random(address: u64, bytes: u64) -> Result<u64> {
    let mut done = 0;
    while done < bytes {
        let chunk = (bytes - done).min(16);
        user::write(address + done, &random::bytes16()[..chunk as usize])?;
        done += chunk;
    }
    Ok(done)
}
