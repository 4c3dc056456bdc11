//! The streams of a source, by name.
//!
//! In and out: the number of a CPU, its samples or its events, or the meta stream, as ctl, batch lines and device files
//! name it. Runs in: user process, pure.

use kprof_format::command::StreamName;
use kprof_format::text::EVENT_PREFIX;
use std::fmt;

/// One of the streams of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Task names, images, marks, settings, counts of events by task.
    Meta,
    /// The samples of one CPU.
    Cpu(u32),
    /// The recorded hits of points on one CPU.
    Event(u32),
}

impl From<Stream> for StreamName {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Meta => Self::Meta,
            Stream::Cpu(cpu) => Self::Cpu(cpu as usize),
            Stream::Event(cpu) => Self::Event(cpu as usize),
        }
    }
}

impl From<Stream> for kprof_format::line::Stream {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Meta => Self::Meta,
            Stream::Cpu(cpu) => Self::Cpu(cpu),
            Stream::Event(cpu) => Self::Event(cpu),
        }
    }
}

impl From<kprof_format::line::Stream> for Stream {
    fn from(stream: kprof_format::line::Stream) -> Self {
        match stream {
            kprof_format::line::Stream::Meta => Self::Meta,
            kprof_format::line::Stream::Cpu(cpu) => Self::Cpu(cpu),
            kprof_format::line::Stream::Event(cpu) => Self::Event(cpu),
        }
    }
}

impl fmt::Display for Stream {
    /// The form used in `ack` commands, in batch lines and in the names of the device files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Cpu(cpu) => write!(f, "{cpu}"),
            Self::Event(cpu) => write!(f, "{EVENT_PREFIX}{cpu}"),
        }
    }
}
