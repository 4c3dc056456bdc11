//! Where records come from: one trait, a file for each kind of source.
//!
//! In: a kernel. Out: the bytes of its streams, and its state and counters. Runs in: user
//! process. A source gives bytes as they are; [`crate::read`] parses them. The kernel frees no record before
//! [`Source::acknowledge`].

use crate::ctl::Ctl;
use crate::error::Error;
pub use crate::stream::Stream;
use crate::system::System;
use std::path::Path;
use std::time::Duration;

pub mod kprof_device;
pub mod redox_device;

/// The layout of the words in the sample streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `kprof_format::record`: positions, ticks, kinds.
    Framed,
    /// Redox's raw words: `0xfedfac00|length, rip, tsc, task id, callers`.
    RedoxRaw,
}

/// How a source may use the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads them, and what it acknowledges is freed.
    Reader,
    /// It gets copies of what another reader gets. Nothing is acknowledged. What is overwritten before it was copied is
    /// missing, and the kernel counts it.
    Copies,
    /// It sees only the counters, because another reader has the streams.
    Counters,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The source has waited.
    Waited,
    /// The source cannot wait; the caller has to.
    CannotWait,
}

/// Something that records can be read from.
pub trait Source<S: System> {
    /// The file that is named in messages.
    fn path(&self) -> &Path;

    /// The layout of the sample streams.
    fn layout(&self) -> Layout;

    /// Reads the present state and counters into `ctl`.
    ///
    /// # Errors
    /// If the source is gone or its text cannot be parsed.
    fn observe(&mut self, system: &mut S, ctl: &mut Ctl) -> Result<(), Error>;

    /// Reads as much as fits into `buffer` and returns the number of bytes; 0 if there is nothing now. A stream that
    /// does not exist yet is empty.
    ///
    /// # Errors
    /// If the source is gone.
    fn read(&mut self, system: &mut S, stream: Stream, buffer: &mut [u8]) -> Result<usize, Error>;

    /// Tells the kernel that all records below these positions (in words) are on the disk, so that it can free them.
    ///
    /// # Errors
    /// If the source is gone or refuses.
    fn acknowledge(&mut self, system: &mut S, ends: &[(Stream, u64)]) -> Result<(), Error>;

    /// Sends a command to the kernel (`start`, `hz 1000`, ...).
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    fn command(&mut self, system: &mut S, command: &str) -> Result<(), Error>;

    /// Waits until there is enough to read, or until `limit` has passed.
    ///
    /// # Errors
    /// If the source is gone.
    fn wait(&mut self, system: &mut S, limit: Duration) -> Result<Waited, Error>;

    /// The name of a task that no meta record has named.
    fn task_name(&mut self, _system: &mut S, _task: u64) -> Option<Vec<u8>> {
        None
    }

    /// How the streams can be read.
    fn access(&self) -> Access {
        Access::Reader
    }
}
