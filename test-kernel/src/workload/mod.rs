//! `/kernel`: work for kernel threads, and the end of the machine.
//!
//! `/kernel/NAME` runs the workload NAME when a number of rounds is written to it; the write returns when the work is
//! done. The functions have the names that a flame graph should show. `/kernel/exit` takes `success` or `failure`,
//! `/kernel/panic` and `/kernel/overflow` any text; `/kernel/processes` lists the numbers of all processes.

mod chains;
#[cfg(feature = "profiling")]
mod handler;
mod heap;
mod pages;
mod switch;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::boot::{self, ExitCode};
use crate::fs::device::{FixedFolder, device_stat};
use crate::fs::{Node, Stat, UserBuffer};
use crate::memory::user;
use crate::syscall::errno::{Errno, Result};
use crate::task::process;

struct Workload {
    inode: u64,
    run: fn(u64),
}

/// The folder `/kernel`.
pub fn folder() -> Arc<dyn Node> {
    let workload = |inode, run: fn(u64)| Arc::new(Workload { inode, run });
    let names: Vec<(String, Arc<dyn Node>)> = vec![
        (String::from("chains"), workload(203, chains::spin_through)),
        (String::from("heap"), workload(200, heap::sort_and_count)),
        (String::from("pages"), workload(201, pages::fill_and_release)),
        (String::from("switch"), workload(202, switch::ping_pong)),
        #[cfg(feature = "profiling")]
        (String::from("handler"), workload(204, handler::measure)),
        (String::from("exit"), Arc::new(Exit)),
        (String::from("processes"), Arc::new(Processes)),
        (String::from("panic"), Arc::new(Panic)),
        (String::from("overflow"), Arc::new(Overflow)),
    ];
    FixedFolder::new(names)
}

/// Ends the machine with a verdict.
struct Exit;

impl Node for Exit {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(300))
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        match user::read_vec(buffer.address, buffer.bytes.min(32))?.trim_ascii() {
            b"success" => boot::power_off(ExitCode::Success),
            b"failure" => boot::power_off(ExitCode::Failure),
            _ => Err(Errno::EINVAL),
        }
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// The numbers of all processes, one a line.
struct Processes;

impl Node for Processes {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(302))
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let text: String = process::all().iter().map(|process| alloc::format!("{}\n", process.pid)).collect();
        let rest = text.as_bytes().get(offset as usize..).unwrap_or(&[]);
        let bytes = rest.len().min(buffer.bytes);
        buffer.put(0, &rest[..bytes])?;
        Ok(bytes)
    }
}

/// Uses up the kernel stack.
struct Overflow;

impl Node for Overflow {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(303))
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        #[allow(unconditional_recursion, reason = "running out of stack is what it is for")]
        #[inline(never)]
        fn deeper() -> usize {
            core::hint::black_box(deeper()) + 1
        }
        Ok(deeper() + buffer.bytes)
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// Panics, with the text as the reason.
struct Panic;

impl Node for Panic {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(301))
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let text = user::read_vec(buffer.address, buffer.bytes.min(80))?;
        panic!("asked for: {}", String::from_utf8_lossy(&text).trim());
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
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
