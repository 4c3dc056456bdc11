//! `/kernel`: work for kernel threads, and the end of the machine.
//!
//! `/kernel/NAME` runs the workload NAME when a number of rounds is written to it; the write returns when the work is
//! done. The functions have the names that a flame graph should show. `/kernel/exit` takes `success` or `failure`;
//! `/kernel/panic` and `/kernel/overflow` any text; `/kernel/share` mounts the host's folder where `share=late` was asked
//! for; `/kernel/processes` lists the numbers of all processes, `/kernel/clock` says how many nanoseconds have gone by
//! since boot.

mod chains;
#[cfg(feature = "profiling")]
mod dice;
#[cfg(feature = "profiling")]
mod handler;
mod heap;
mod pages;
#[cfg(feature = "profiling")]
mod sweep;
mod switch;
#[cfg(feature = "profiling")]
mod tree;
mod truth;
#[cfg(feature = "profiling")]
mod vectors;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::boot::{self, ExitCode};
use crate::cpu::clock;
use crate::fs::device::{FixedFolder, device_stat};
use crate::fs::{Node, Stat, UserBuffer};
use crate::memory::{module, user};
use crate::syscall::errno::{Errno, Result};
use crate::task::process;

/// A file that does something when it is written to.
struct Command {
    inode: u64,
    run: fn(&[u8]) -> Result<()>,
}

/// The folder `/kernel`.
pub fn folder() -> Arc<dyn Node> {
    let commands = [
        ("chains", (|text| rounds(text, chains::spin_through)) as fn(&[u8]) -> Result<()>),
        ("heap", |text| rounds(text, heap::sort_and_count)),
        ("pages", |text| rounds(text, pages::fill_and_release)),
        ("switch", |text| rounds(text, switch::ping_pong)),
        ("truth-a", |text| rounds(text, truth::mix_a)),
        ("truth-b", |text| rounds(text, truth::mix_b)),
        #[cfg(feature = "profiling")]
        ("handler", |text| rounds(text, handler::measure)),
        #[cfg(feature = "profiling")]
        ("sweep", sweep::run),
        ("module", module),
        ("exit", exit),
        ("panic", |text| panic!("asked for: {}", String::from_utf8_lossy(text))),
        ("overflow", |_| overflow()),
        ("share", |_| boot::mount_share().ok_or(Errno::EBUSY)),
    ];
    let mut names: Vec<(String, Arc<dyn Node>)> =
        vec![(String::from("processes"), Arc::new(Processes)), (String::from("clock"), Arc::new(Clock))];
    for (inode, (name, run)) in (301..).zip(commands) {
        names.push((String::from(name), Arc::new(Command { inode, run })));
    }
    FixedFolder::new(names)
}

/// Does so many rounds of some work.
fn rounds(text: &[u8], work: fn(u64)) -> Result<()> {
    work(core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EINVAL)?);
    Ok(())
}

/// Does so many rounds of the work in the module, which is loaded the first time.
fn module(text: &[u8]) -> Result<()> {
    let entry = module::entry().ok_or(Errno::ENOEXEC)?;
    let rounds = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EINVAL)?;
    core::hint::black_box(entry(rounds));
    Ok(())
}

/// Ends the machine with a verdict.
fn exit(text: &[u8]) -> Result<()> {
    match text {
        b"success" => boot::power_off(ExitCode::Success),
        b"failure" => boot::power_off(ExitCode::Failure),
        _ => Err(Errno::EINVAL),
    }
}

/// Uses up the kernel stack.
fn overflow() -> Result<()> {
    #[allow(unconditional_recursion, reason = "running out of stack is what it is for")]
    #[inline(never)]
    fn deeper() -> usize {
        core::hint::black_box(deeper()) + 1
    }
    core::hint::black_box(deeper());
    Ok(())
}

impl Node for Command {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(self.inode))
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let text = user::read_vec(buffer.address, buffer.bytes.min(80))?;
        (self.run)(text.trim_ascii())?;
        Ok(buffer.bytes)
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// Nanoseconds since boot, in one read.
struct Clock;

impl Node for Clock {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(320))
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        if offset > 0 {
            return Ok(0);
        }
        let text = alloc::format!("{}\n", clock::now_ns());
        let bytes = text.len().min(buffer.bytes);
        buffer.put(0, &text.as_bytes()[..bytes])?;
        Ok(bytes)
    }
}

/// The numbers of all processes, one a line.
struct Processes;

impl Node for Processes {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(300))
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let text: String = process::all().iter().map(|process| alloc::format!("{}\n", process.pid)).collect();
        let rest = text.as_bytes().get(offset as usize..).unwrap_or(&[]);
        let bytes = rest.len().min(buffer.bytes);
        buffer.put(0, &rest[..bytes])?;
        Ok(bytes)
    }
}
