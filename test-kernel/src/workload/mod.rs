//! `/kernel`: files that start work inside the kernel, and files that control the machine.
//!
//! A write of a number of rounds to `/kernel/NAME` runs the workload NAME, and returns when the work is done. The
//! functions have the names that a flame graph should show. `/kernel/exit` accepts `success` or `failure`;
//! `/kernel/panic` and `/kernel/overflow` accept any text. `/kernel/share` mounts the host's folder if the command line
//! has `share=late`. `/kernel/processes` lists the numbers of all processes, `/kernel/clock` has the nanoseconds since
//! boot, and `/kernel/idle` how many of them each CPU was idle. A write to `/kernel/places` starts counting for the
//! writer (see `profiling::places`). `/kernel/deaf`, `offline` and `online` are for CPUs that do not answer, go offline
//! and come back (see `away.rs`), `/kernel/stuck` for CPUs that are locked up (see `stuck.rs`).

#[cfg(feature = "profiling")]
mod away;
mod block;
#[cfg(feature = "profiling")]
mod built;
mod chains;
#[cfg(feature = "profiling")]
mod dice;
#[cfg(feature = "profiling")]
mod event_cost;
#[cfg(feature = "profiling")]
mod handler;
mod heap;
#[cfg(feature = "profiling")]
mod heap_cost;
#[cfg(feature = "profiling")]
mod leak;
#[cfg(feature = "profiling")]
mod lock_cost;
#[cfg(feature = "profiling")]
mod locks;
mod pages;
#[cfg(feature = "profiling")]
mod points;
#[cfg(feature = "profiling")]
mod probe_cost;
#[cfg(feature = "profiling")]
mod registers;
#[cfg(feature = "profiling")]
pub mod stuck;
#[cfg(feature = "profiling")]
mod sweep;
mod switch;
#[cfg(feature = "profiling")]
mod tree;
pub mod truth;
#[cfg(feature = "profiling")]
mod vectors;
#[cfg(feature = "profiling")]
mod waits;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::cpu::{self, CPUS, clock};
use crate::errno::{Errno, Result};
use crate::fs::device::{FixedFolder, device_stat};
use crate::fs::{Node, Stat, UserBuffer};
use crate::memory::{module, user};
use crate::power::{self, ExitCode};
use crate::profiling;
#[cfg(feature = "profiling")]
use crate::profiling::places;
use crate::task::process;

/// A file that runs a function when it is written to.
struct Command {
    inode: u64,
    run: fn(&[u8]) -> Result<()>,
}

/// The function that mounts the host's folder, if that was not done at boot.
static MOUNT_SHARE: spin::Once<fn() -> Option<()>> = spin::Once::new();

/// The folder `/kernel`. `mount_share` mounts the host's folder, once.
pub fn folder(mount_share: fn() -> Option<()>) -> Arc<dyn Node> {
    MOUNT_SHARE.call_once(|| mount_share);
    let commands = [
        ("chains", (|text| rounds(text, chains::spin_through)) as fn(&[u8]) -> Result<()>),
        ("heap", |text| rounds(text, heap::sort_and_count)),
        ("pages", |text| rounds(text, pages::fill_and_release)),
        ("switch", |text| rounds(text, switch::ping_pong)),
        ("truth-a", |text| rounds(text, truth::mix_a)),
        ("truth-b", |text| rounds(text, truth::mix_b)),
        ("interrupts", |text| rounds(text, truth::interrupts_alone)),
        #[cfg(feature = "profiling")]
        ("handler", |text| rounds(text, handler::measure)),
        #[cfg(feature = "profiling")]
        ("points", |text| rounds(text, points::measure)),
        #[cfg(feature = "profiling")]
        ("event-cost", |text| rounds(text, event_cost::measure)),
        #[cfg(feature = "profiling")]
        ("heap-cost", |text| rounds(text, heap_cost::measure)),
        #[cfg(feature = "profiling")]
        ("probe-cost", |text| rounds(text, probe_cost::measure)),
        #[cfg(feature = "profiling")]
        ("leak", |text| rounds(text, leak::allocate)),
        #[cfg(feature = "profiling")]
        ("lock-cost", |text| rounds(text, lock_cost::measure)),
        #[cfg(feature = "profiling")]
        ("locks", |text| rounds(text, locks::run)),
        #[cfg(feature = "profiling")]
        ("waits", |text| rounds(text, waits::run)),
        #[cfg(feature = "profiling")]
        ("sweep", sweep::run),
        #[cfg(feature = "profiling")]
        ("deaf", away::deaf),
        #[cfg(feature = "profiling")]
        ("offline", away::offline),
        #[cfg(feature = "profiling")]
        ("online", away::online),
        #[cfg(feature = "profiling")]
        ("stuck", stuck::run),
        ("block", |text| rounds_of(text, block::run)),
        ("module", module),
        ("exit", exit),
        ("panic", |text| panic!("asked for: {}", String::from_utf8_lossy(text))),
        ("overflow", |_| overflow()),
        ("share", |_| MOUNT_SHARE.get().and_then(|mount| mount()).ok_or(Errno::EBUSY)),
    ];
    let mut names: Vec<(String, Arc<dyn Node>)> = vec![
        (String::from("processes"), Arc::new(Processes)),
        (String::from("clock"), Arc::new(Text { inode: 320, make: clock })),
        (String::from("idle"), Arc::new(Text { inode: 321, make: idle })),
        #[cfg(feature = "profiling")]
        (String::from("places"), Arc::new(Places(Text { inode: 322, make: places::text }))),
    ];
    for (inode, (name, run)) in (301..).zip(commands) {
        names.push((String::from(name), Arc::new(Command { inode, run })));
    }
    FixedFolder::new(names)
}

/// Does the number of rounds in `text` of some work.
fn rounds(text: &[u8], work: fn(u64)) -> Result<()> {
    rounds_of(text, |rounds| {
        work(rounds);
        Ok(())
    })
}

/// The same, for work that can fail.
fn rounds_of(text: &[u8], work: impl FnOnce(u64) -> Result<()>) -> Result<()> {
    work(core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EINVAL)?)
}

/// Does the number of rounds in `text` of the work in the module. The first call loads the module.
fn module(text: &[u8]) -> Result<()> {
    let entry = module::entry(profiling::tell_of_module).ok_or(Errno::ENOEXEC)?;
    let rounds = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EINVAL)?;
    core::hint::black_box(entry(rounds));
    Ok(())
}

/// Powers the machine off with an exit code for success or failure.
fn exit(text: &[u8]) -> Result<()> {
    match text {
        b"success" => power::power_off(ExitCode::Success),
        b"failure" => power::power_off(ExitCode::Failure),
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

/// A file whose text is made by a read from its beginning. That read gets all of it.
struct Text {
    inode: u64,
    make: fn() -> String,
}

impl Node for Text {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(self.inode))
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        if offset > 0 {
            return Ok(0);
        }
        let text = (self.make)();
        let bytes = text.len().min(buffer.bytes);
        buffer.put(0, &text.as_bytes()[..bytes])?;
        Ok(bytes)
    }
}

/// The file `/kernel/places`: a write to it starts counting the published places of the writer.
#[cfg(feature = "profiling")]
struct Places(Text);

#[cfg(feature = "profiling")]
impl Node for Places {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        self.0.read(offset, buffer)
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        if places::start() { Ok(buffer.bytes) } else { Err(Errno::EINVAL) }
    }
}

/// Nanoseconds since boot.
fn clock() -> String {
    alloc::format!("{}\n", clock::now_ns())
}

/// A line for each CPU that runs threads: `idle: cpu 1 NANOSECONDS of NANOSECONDS since boot`.
fn idle() -> String {
    let now_ns = clock::now_ns();
    let line = |number: usize| {
        let cpu = &CPUS[number];
        let since_ns = cpu.idle_since_ns.load(Ordering::Relaxed);
        let now_idle_ns = if since_ns > 0 { now_ns.saturating_sub(since_ns) } else { 0 };
        alloc::format!("idle: cpu {number} {} of {now_ns}\n", cpu.idle_ns.load(Ordering::Relaxed) + now_idle_ns)
    };
    (0..cpu::count()).filter(|number| Some(*number) != cpu::sampler()).map(line).collect()
}

/// The numbers of all processes, one per line.
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
