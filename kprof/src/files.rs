//! The types for open control files and open streams, which a kernel keeps with its open files. Their interface is the
//! same with the feature `profiling` on and off.
//!
//! In: the kernel's device files (`open`, `read`, `write`, `close`). Out: the stages `control` and `drain`. Runs in:
//! ordinary code. With the feature off every type is empty, and every call is refused.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

#[cfg(not(feature = "profiling"))]
use crate::errors::CommandError;
use crate::errors::{ControlError, ReadError};
use crate::kernel::ControlDone;
use core::fmt;

/// An open control file. Dropping it closes it, which ends its claim and its lease.
///
/// A kernel makes one for each `open` of `ctl-profiling` ([`crate::Profiler::open_control`]) and keeps it with the open
/// file.
pub struct ControlFile {
    #[cfg(feature = "profiling")]
    pub(crate) control: crate::control::OpenControl,
}

impl ControlFile {
    /// Carries out a write to ctl, either completely or not at all. Runs in: ordinary code. It may wait for other
    /// writers and readers, 3 s at most, and does not change whether interrupts are on.
    ///
    /// # Errors
    /// The first line that is wrong. Nothing has changed then, except after a `stop` or `freeze` that ended with ticks
    /// still pending.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn write(&self, bytes: &[u8]) -> Result<ControlDone, ControlError> {
        feature!(self.control.write(bytes); else Err(ControlError { line: 1, reason: CommandError::Off }))
    }

    /// Writes the text that a read of ctl returns: state, settings, counters, and why the last write through this file
    /// was refused. If this file's process reads copies (`copy 1`), the counters are the account of these copies. Runs
    /// in: ordinary code.
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
    /// Reads records into `buffer`. Returns the number of bytes, 0 if there are no records now. The process that has
    /// claimed the streams gets framed records, and the one that reads copies gets copies of them; otherwise, while the
    /// streams are not claimed, a read returns raw words. Runs in: ordinary code; it may wait 1 s for other readers.
    ///
    /// # Errors
    /// [`ReadError`]; no record is consumed then.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        feature!(self.stream.read(buffer); else Err(ReadError::NoStream))
    }
    /// Reads as [`StreamFile::read`] does, at most this many bytes, and passes the records to `put` where they lie in
    /// the ring, in one piece or two: the offset of the piece in the read, and its bytes. So the records are copied
    /// once, by `put`, which returns whether it has taken them. Records that may be overwritten meanwhile (of a running
    /// flight recorder, or copies) and raw words are first copied into `scratch`, as many as fit there. Runs in:
    /// ordinary code; `put` too, during which no other reader gets records of this stream.
    ///
    /// # Errors
    /// [`ReadError`]; no record is consumed then, except after [`ReadError::NotTaken`] those that were copied into
    /// `scratch`.
    #[cfg_attr(not(feature = "profiling"), inline(always))]
    pub fn read_to(
        &self,
        bytes: usize,
        scratch: &mut [u8],
        put: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<usize, ReadError> {
        feature!(self.stream.read_to(bytes, scratch, put); else Err(ReadError::NoStream))
    }
}
