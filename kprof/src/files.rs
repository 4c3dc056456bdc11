//! What a kernel keeps: open control files and streams. The same with the feature on and
//! off.
//!
//! In: the kernel's device files (`open`, `read`, `write`, `close`). Out: the stages `control` and `drain`. Runs in:
//! ordinary code. With the feature off every type is empty, and every call is refused.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

#[cfg(not(feature = "profiling"))]
use crate::errors::CommandError;
use crate::errors::{ControlError, ReadError};
use crate::kernel::ControlDone;
use core::fmt;

/// An open control file. Dropping it closes it: its claim and its lease end.
///
/// A kernel makes one for each `open` of `ctl-profiling` ([`crate::Profiler::open_control`]) and keeps it with the open
/// file.
pub struct ControlFile {
    #[cfg(feature = "profiling")]
    pub(crate) control: crate::control::OpenControl,
}

impl ControlFile {
    /// Carries a write to ctl out, all of it or nothing. Runs in: ordinary code; it may wait for other writers and
    /// readers, 3 s at most, with interrupts as they are.
    ///
    /// # Errors
    /// The first line that is wrong; nothing has changed then, except after a `stop` or `freeze` whose ticks stay on
    /// their way.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn write(&self, bytes: &[u8]) -> Result<ControlDone, ControlError> {
        feature!(self.control.write(bytes); else Err(ControlError { line: 1, reason: CommandError::Off }))
    }

    /// Writes what a read of ctl shows: state, settings, counters, and why the last write through this file was
    /// refused. Runs in: ordinary code.
    ///
    /// # Errors
    /// Those of the sink.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn read(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        feature!(self.control.read(out); else Ok(()))
    }
}

/// An open stream. A kernel makes one for each `open` of `profiling-N` or `profiling-meta`
/// ([`crate::Profiler::open_stream`], [`crate::Profiler::open_meta`]) and keeps it with the open file.
pub struct StreamFile {
    #[cfg(feature = "profiling")]
    pub(crate) stream: crate::drain::OpenStream,
}

impl StreamFile {
    /// Reads records into `buffer`; the number of bytes, 0 when there is nothing now. Framed records for the process
    /// that has claimed the streams, raw words while nobody has. Runs in: ordinary code; it may wait 1 s for other
    /// readers.
    ///
    /// # Errors
    /// [`ReadError`]; nothing is consumed then.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        feature!(self.stream.read(buffer); else Err(ReadError::NoStream))
    }
}
