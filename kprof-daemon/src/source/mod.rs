//! Where records come from: one trait, a file for each kind of source.
//!
//! In: a kernel, or what was recorded of one. Out: the bytes of its streams and one reading of its state. Context:
//! user process. A source gives bytes as they are; taking them apart is [`crate::read`]'s work. Nothing is given up by
//! the kernel before [`Source::acknowledge`].

use crate::ctl::Ctl;
use crate::error::Error;
use crate::system::System;
use kprof_format::command::StreamName;
use std::fmt;
use std::path::Path;
use std::time::Duration;

pub mod kprof_device;
pub mod recorded;
pub mod redox_device;

/// One of the streams of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Names, images, marks, settings.
    Meta,
    /// The samples of one CPU.
    Cpu(u32),
}

impl From<Stream> for StreamName {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Meta => Self::Meta,
            Stream::Cpu(cpu) => Self::Cpu(cpu as usize),
        }
    }
}

impl fmt::Display for Stream {
    /// As in `ack` commands, in batch lines and in the names of the device files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Cpu(cpu) => write!(f, "{cpu}"),
        }
    }
}

/// What the words of the sample streams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `kprof_format::record`: positions, ticks, kinds.
    Framed,
    /// Redox's raw words: `0xfedfac00|length, rip, tsc, task id, callers`.
    RedoxRaw,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The source waited itself.
    Waited,
    /// The source cannot wait; the caller has to.
    CannotWait,
}

/// Something that records can be had from.
pub trait Source<S: System> {
    /// The file that messages name.
    fn path(&self) -> &Path;

    /// What the sample streams speak.
    fn layout(&self) -> Layout;

    /// Brings `ctl` up to date: state and counters as they are now.
    ///
    /// # Errors
    /// When the source is gone or says what cannot be understood.
    fn observe(&mut self, system: &mut S, ctl: &mut Ctl) -> Result<(), Error>;

    /// Reads what fits into `buffer`, in bytes; 0 when there is nothing now. A stream that does not exist yet is empty.
    ///
    /// # Errors
    /// When the source is gone.
    fn read(&mut self, system: &mut S, stream: Stream, buffer: &mut [u8]) -> Result<usize, Error>;

    /// Gives up, in the kernel, everything below these positions (in words): it is on the disk.
    ///
    /// # Errors
    /// When the source is gone or refuses.
    fn acknowledge(&mut self, system: &mut S, ends: &[(Stream, u64)]) -> Result<(), Error>;

    /// Gives the kernel a command (`start`, `hz 1000`, ...).
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    fn command(&mut self, system: &mut S, command: &str) -> Result<(), Error>;

    /// Waits until there is enough to read, or `limit` has gone by.
    ///
    /// # Errors
    /// When the source is gone.
    fn wait(&mut self, system: &mut S, limit: Duration) -> Result<Waited, Error>;

    /// The name of a task that no meta record has named.
    fn task_name(&mut self, _system: &mut S, _context: u64) -> Option<Vec<u8>> {
        None
    }

    /// Whether the source ends: once all its streams are empty, nothing will come any more.
    fn is_finite(&self) -> bool {
        false
    }
}
