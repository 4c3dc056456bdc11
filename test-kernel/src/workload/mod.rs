//! Work for kernel threads: `/kernel/NAME` runs the workload NAME when a number of rounds is written to it.
//!
//! In: a number. Out: busy kernel threads; the write returns when the work is done. The functions have the names that a
//! flame graph should show.

mod heap;
mod pages;
mod switch;

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use crate::fs::device::{FixedFolder, device_stat};
use crate::fs::{Node, Stat, UserBuffer};
use crate::memory::user;
use crate::syscall::errno::{Errno, Result};

struct Workload {
    inode: u64,
    run: fn(u64),
}

/// The folder `/kernel`.
pub fn folder() -> Arc<dyn Node> {
    let all: [(&str, fn(u64)); 3] =
        [("heap", heap::sort_and_count), ("pages", pages::fill_and_release), ("switch", switch::ping_pong)];
    let node = |(inode, (name, run)): (usize, (&str, fn(u64)))| -> (String, Arc<dyn Node>) {
        (name.to_string(), Arc::new(Workload { inode: 200 + inode as u64, run }))
    };
    FixedFolder::new(all.into_iter().enumerate().map(node).collect())
}

impl Node for Workload {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(self.inode))
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let text = user::read_vec(buffer.address, buffer.bytes.min(32))?;
        let rounds = core::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).ok_or(Errno::EINVAL)?;
        (self.run)(rounds);
        Ok(buffer.bytes)
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}
