//! The profiler's device files: `/scheme/debug/{ctl-profiling, profiling-meta, profiling-N,
//! profiling-event-N}`.
//!
//! In: reads and writes of a daemon. Out: commands to the profiler, records from it. Runs in: system calls. Without the
//! feature `profiling` the folder is empty.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;

use kprof::{ControlFile, ENABLED, ReadError, StreamFile, StreamName as Name};

use super::{PROFILER, READERS, samples_boot};
use crate::cpu::{self, clock};
use crate::errno::{Errno, Result};
use crate::fs::device::{FixedFolder, device_stat};
use crate::fs::{Node, Stat, UserBuffer};
use crate::lock::Lock;
use crate::log;
use crate::memory::user;
use crate::task::{process, scheduler};

const SCRATCH_BYTES: usize = 64 * 1024;
const MAX_COMMAND_BYTES: usize = 4096;

/// The folder `/scheme/debug`.
pub fn folder() -> Arc<dyn Node> {
    let mut names: Vec<(String, Arc<dyn Node>)> = Vec::new();
    if ENABLED {
        names.push((String::from("ctl-profiling"), Arc::new(Control)));
        names.push((String::from("profiling-meta"), Arc::new(Stream(Name::Meta))));
        let sampler = cpu::sampler().filter(|_| !samples_boot());
        for cpu in 0..cpu::count() {
            if Some(cpu) != sampler {
                names.push((format!("{}", Name::Cpu(cpu)), Arc::new(Stream(Name::Cpu(cpu)))));
            }
            names.push((format!("{}", Name::Event(cpu)), Arc::new(Stream(Name::Event(cpu)))));
        }
    }
    FixedFolder::new(names)
}

/// The control file. Each open makes its own handle, and a claim belongs to a handle.
struct Control;

/// An open control file. Its claim ends when it is dropped, at the last close.
struct ControlHandle {
    file: ControlFile,
    /// The text, which is made in the read at offset 0. Later reads return further parts of it.
    text: Lock<String>,
}

impl Node for Control {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(100))
    }

    fn open(&self, _write: bool) -> Result<Option<Arc<dyn Node>>> {
        let file = PROFILER.open_control(this_process());
        Ok(Some(Arc::new(ControlHandle { file, text: Lock::new(String::new()) })))
    }
}

/// The process that opens a file; 0 for the kernel.
fn this_process() -> u64 {
    process::current().map_or(0, |process| u64::from(process.pid))
}

impl Node for ControlHandle {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(100))
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let mut text = self.text.lock();
        if offset == 0 {
            text.clear();
            self.file.read(&mut *text).map_err(|_| Errno::EIO)?;
        }
        let rest = text.as_bytes().get(offset as usize..).unwrap_or(&[]);
        let bytes = rest.len().min(buffer.bytes);
        buffer.put(0, &rest[..bytes])?;
        Ok(bytes)
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        if buffer.bytes > MAX_COMMAND_BYTES {
            return Err(Errno::EINVAL);
        }
        let command = user::read_vec(buffer.address, buffer.bytes)?;
        let done = self.file.write(&command).map_err(|refusal| {
            let mut text = String::new();
            let _ = write!(text, "{refusal}");
            log!("profiling: {} is refused: {text}", String::from_utf8_lossy(&command).trim());
            if refusal.is_busy() { Errno::EBUSY } else { Errno::EINVAL }
        })?;
        if done.wants_names {
            super::tell_again();
        }
        if done.wants_times {
            scheduler::for_each_thread(|thread, doing| super::task_times(thread.task(), &thread.times, doing));
        }
        if let Some(ms) = done.wait_ms {
            let deadline = clock::now_ns() + ms * 1_000_000;
            // A signal ends the wait. The write has succeeded even so: an error would make the C library's handlers
            // wait again, and the reader would see its flag only after that.
            READERS.wait_full(|| PROFILER.reader_due(), Some(deadline), true);
        }
        Ok(buffer.bytes)
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// A stream of one CPU, or the meta stream. Each open makes its own handle.
struct Stream(Name);

/// An open stream.
struct StreamHandle {
    name: Name,
    file: StreamFile,
    /// The buffer for records that may be overwritten before they are copied to user memory. It is kept, so that it is
    /// not cleared in each read.
    scratch: Lock<Vec<u8>>,
}

fn stream_stat(name: Name) -> Stat {
    device_stat(match name {
        Name::Meta => 101,
        Name::Cpu(cpu) => 102 + 2 * cpu as u64,
        Name::Event(cpu) => 103 + 2 * cpu as u64,
    })
}

impl Node for Stream {
    fn stat(&self) -> Result<Stat> {
        Ok(stream_stat(self.0))
    }

    fn open(&self, _write: bool) -> Result<Option<Arc<dyn Node>>> {
        let process = this_process();
        let file = match self.0 {
            Name::Cpu(cpu) => PROFILER.open_stream(cpu, process).map_err(|_| Errno::ENODEV)?,
            Name::Event(cpu) => PROFILER.open_events(cpu, process).map_err(|_| Errno::ENODEV)?,
            Name::Meta => PROFILER.open_meta(process),
        };
        Ok(Some(Arc::new(StreamHandle { name: self.0, file, scratch: Lock::new(vec![0; SCRATCH_BYTES]) })))
    }
}

impl Node for StreamHandle {
    fn stat(&self) -> Result<Stat> {
        Ok(stream_stat(self.name))
    }

    fn read(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        // A fault in user memory consumes no records of a claimed stream: they count as read after they were copied.
        let put = &mut |at, records: &[u8]| buffer.put(at, records).is_ok();
        self.file.read_to(buffer.bytes, &mut self.scratch.lock(), put).map_err(|error| {
            log!("profiling: {}: {error}", self.name);
            match error {
                ReadError::Claimed => Errno::EBUSY,
                ReadError::Busy => Errno::EAGAIN,
                ReadError::NotTaken => Errno::EFAULT,
                _ => Errno::EINVAL,
            }
        })
    }
}
