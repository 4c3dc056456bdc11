//! ctl: commands in, state and counters out.
//!
//! In: one write, one command per line. Out: all of it done, or nothing and a reason. Context: ordinary code. The whole
//! write is checked against the state it would find before its first command is carried out; the reason for a refusal is
//! also the `error` line of the next read. One handle at a time may hold the claim on the streams (`protocol 1`).

mod apply;
mod command;
mod text;

use crate::x86_64::interrupts;
use command::Command;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
pub(crate) use text::for_each_counter;

/// A write to ctl that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDone {
    /// The write held `wait MS`: let the writer sleep until [`crate::Profiler::reader_due`] or for this long.
    pub wait_ms: Option<u64>,
    /// The streams were claimed, by somebody who may never have seen what earlier readers did: call
    /// [`crate::Profiler::context_name`] for each context that lives now, and [`crate::Profiler::image`] for each module.
    pub is_claim: bool,
}

/// A write to ctl that was refused; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: Refusal,
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a command of this version.
    Unknown,
    /// A value is missing, is not of the right kind, or is out of its range.
    Value(&'static str),
    /// The command does not fit the present state.
    State(&'static str),
    /// Another handle holds the claim. (EBUSY)
    Busy,
    /// It was carried out, but ticks stayed out longer than a second.
    Pending,
}

impl ControlError {
    /// Whether another reader holds the claim: EBUSY where there are error numbers, EINVAL for all other refusals.
    pub fn is_busy(&self) -> bool {
        self.reason == Refusal::Busy
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.reason {
            Refusal::Unknown => f.write_str("no such command"),
            Refusal::Value(expected) => write!(f, "expected {expected}"),
            Refusal::State(reason) => f.write_str(reason),
            Refusal::Busy => f.write_str("the streams are claimed by another reader"),
            Refusal::Pending => f.write_str("stopped, but a cpu has not taken its ticks within a second"),
        }
    }
}

/// What ctl itself remembers.
pub(crate) struct ControlState {
    /// The handle that holds the claim, plus 1; 0: nobody.
    claim: AtomicU64,
    error: spin::Mutex<heapless::String<128>>,
    lock: spin::Mutex<()>,
}

impl ControlState {
    pub(crate) const fn new() -> Self {
        Self { claim: AtomicU64::new(0), error: spin::Mutex::new(heapless::String::new()), lock: spin::Mutex::new(()) }
    }

    /// Whether somebody has claimed the streams.
    pub(crate) fn claimed(&self) -> bool {
        self.claim.load(Ordering::Acquire) != 0
    }

    fn claimed_by(&self, handle: u64) -> bool {
        self.claim.load(Ordering::Acquire) == handle.wrapping_add(1)
    }

    fn set_error(&self, error: Option<&ControlError>) {
        interrupts::without(|| {
            let mut kept = self.error.lock();
            kept.clear();
            if let Some(error) = error {
                // A reason that is too long is cut; none is.
                let _ = write!(kept, "{error}");
            }
        });
    }

    fn error(&self) -> heapless::String<128> {
        interrupts::without(|| self.error.lock().clone())
    }
}

/// The commands of a write with their line numbers from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Result<Command<'_>, Refusal>)> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| (index + 1, command::parse(line)))
}
