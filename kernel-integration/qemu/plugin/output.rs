//! Messages to the tool. Stage: capture.
//!
//! In: words. Out: bytes on the socket. If the tool has gone, messages are dropped: the guest goes on without it.

use std::io::{BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// Kinds of messages. Each is a word `kind | vCPU << 8 | words << 32` and this many words after it, little-endian.
pub mod message {
    /// A sample: time, RIP, RFLAGS, CS, the candidate, the end, callers. Those after CS only if CS is the kernel's.
    pub const SAMPLE: u64 = 1;
    /// A tick while the vCPU was halted: time.
    pub const IDLE: u64 = 2;
    /// A tick while an earlier one had not been taken.
    pub const COALESCED: u64 = 3;
    /// A tick that was not taken when QEMU ended.
    pub const PENDING: u64 = 4;
    /// Instructions that were executed equally often: how often, address of the first one, 1 for user code or 2
    /// for other code in no function that was known when it was translated, their number, their lengths in bytes (16 to
    /// a word, the first one lowest).
    pub const RUN: u64 = 5;
    /// A calling context: number of its caller's, function, instructions, calls. Numbered from 0 as they come.
    pub const CONTEXT: u64 = 6;
    /// Totals: see [`Totals`](super::super::totals::Totals).
    pub const TOTALS: u64 = 7;
    /// Instructions of a vCPU in a context, between two functions: number of the context, instructions, task.
    pub const PART: u64 = 8;
    /// A visit of a handler: RIP and CS of what it interrupted, the number of the context that RIP is in, 1 if it
    /// is between the two functions.
    pub const VISIT: u64 = 9;
    /// A system call: number, its own instructions, those of interrupts meanwhile, 1 if it has returned.
    pub const CALL: u64 = 10;
    /// Instructions of a function: 0 of no call, 1 of user code, 2 of interrupts, 3 of user code's exceptions, 4 of the
    /// call with the next number; that number, the function, instructions.
    pub const HELD: u64 = 11;
    /// A probe: its number, calls, calls that have returned, the sum of their times, the shortest and longest one.
    pub const PROBE: u64 = 12;
    /// Calls of a probe with a key: the probe, the key, calls.
    pub const KEY: u64 = 13;
    /// A call that was asked for: the probe, the context's number, the guest's time, six arguments.
    pub const HIT: u64 = 14;
    /// Times of a probe: its number, a range (see `histogram.rs`), how many times are in it.
    pub const TIMES: u64 = 15;
    /// A vCPU after the machine was stopped: how often it was, RIP, CS, the number of the context.
    pub const STOP: u64 = 16;
    /// Where the kernel runs: see [`Outcome`](super::super::place::Outcome).
    pub const PLACE: u64 = 17;
    /// How long a vCPU was halted: see [`Halts::all`](super::super::halts::Halts::all).
    pub const HALTED: u64 = 18;
    /// The last message: without it, QEMU has ended before everything was sent.
    pub const END: u64 = 19;
    /// The machine was reset: what follows may belong to another boot.
    pub const RESET: u64 = 20;
}

/// The socket.
pub struct Output(Mutex<Option<BufWriter<UnixStream>>>);

impl Output {
    pub fn new(socket: UnixStream) -> Self {
        Self(Mutex::new(Some(BufWriter::new(socket))))
    }

    pub fn send(&self, kind: u64, cpu: usize, words: &[u64]) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(out) = guard.as_mut() else { return };
        let head = kind | (cpu as u64) << 8 | (words.len() as u64) << 32;
        let mut all = std::iter::once(&head).chain(words);
        if all.try_for_each(|word| out.write_all(&word.to_le_bytes())).is_err() {
            *guard = None;
        }
    }

    /// Says that this was all.
    pub fn end(&self) {
        self.send(message::END, 0, &[]);
        self.flush();
    }

    pub fn flush(&self) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.as_mut().is_some_and(|out| out.flush().is_err()) {
            *guard = None;
        }
    }
}
