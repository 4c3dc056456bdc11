//! Disks as files: `/dev/vda`, `/dev/vdb` and so on. They are mounted at their names, so `/dev` does not list them.
//!
//! There is no cache: every read and write goes to the disk, in requests of at most 64 KiB, and returns when the last
//! of them is completed. Offset and size must be whole sectors, as with O_DIRECT on Linux.

use alloc::sync::Arc;

use super::{Kind, Node, Stat, UserBuffer};
use crate::device::disk::{Disk, SECTOR};
use crate::device::pci::Found;
use crate::errno::{Errno, Result};
use crate::log;
use crate::memory::user;

/// The most bytes of a request.
pub const MAX_REQUEST: usize = 64 << 10;
const MAX_DISKS: usize = 4;

static DISKS: [spin::Once<Disk>; MAX_DISKS] = [const { spin::Once::new() }; MAX_DISKS];

/// All disks.
pub fn disks() -> impl Iterator<Item = &'static Disk> {
    DISKS.iter().filter_map(spin::Once::get)
}

/// Sets up the disk that was found, and mounts it as a file.
pub fn attach(found: Found) {
    let number = disks().count();
    let Some(place) = DISKS.get(number) else { return log!("disk: there are more than {MAX_DISKS}") };
    let Some(disk) = Disk::new(found, number as u16) else { return log!("disk: {number} does not start") };
    let disk = place.call_once(|| disk);
    let name = alloc::format!("/dev/vd{}", char::from(b'a' + number as u8));
    log!("disk: {name} has {} bytes", disk.bytes());
    super::mount(&name, Arc::new(File { number, disk }));
}

struct File {
    number: usize,
    disk: &'static Disk,
}

impl File {
    /// The part of a read or write at `offset` that is on the disk, as requests: each its sector, and its range in the
    /// buffer.
    fn requests(&self, offset: u64, bytes: usize) -> Result<impl Iterator<Item = (u64, usize, usize)>> {
        if !offset.is_multiple_of(SECTOR as u64) || !bytes.is_multiple_of(SECTOR) {
            return Err(Errno::EINVAL);
        }
        let bytes = (bytes as u64).min(self.disk.bytes().saturating_sub(offset)) as usize;
        Ok((0..bytes)
            .step_by(MAX_REQUEST)
            .map(move |from| ((offset + from as u64) / SECTOR as u64, from, MAX_REQUEST.min(bytes - from))))
    }
}

impl Node for File {
    fn stat(&self) -> Result<Stat> {
        let inode = 20 + self.number as u64;
        Ok(Stat { kind: Kind::Block, mode: 0o660, size: self.disk.bytes(), inode, device: 3, changed_s: 0 })
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let mut done = 0;
        for (sector, from, bytes) in self.requests(offset, buffer.bytes)? {
            buffer.put(from, &self.disk.read(sector, bytes)?)?;
            done += bytes;
        }
        Ok(done)
    }

    fn write(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let mut done = 0;
        for (sector, from, bytes) in self.requests(offset, buffer.bytes)? {
            self.disk.write(sector, user::read_vec(buffer.address + from as u64, bytes)?)?;
            done += bytes;
        }
        if done == 0 && buffer.bytes > 0 { Err(Errno::ENOSPC) } else { Ok(done) }
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
