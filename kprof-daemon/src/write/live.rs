//! The live stream: the same lines or chunks, to a device that may be slow or absent.
//!
//! ```text
//! round's bytes ─► lines as `~kprof seq crc line`, or chunks ─► queue of 256 KiB ─► write that never waits
//!                        no room in the queue: dropped, counted; the gap in seq tells the receiver
//! ```
//!
//! In: bytes that are on the disk already. Out: whole lines or chunks, as many as the device accepts. Runs in: user
//! process. Never waits and never fails: an absent device is tried again once a second, and what it does not take is
//! counted as dropped.

use crate::system::{Open, System};
use kprof_format::chunk::{Chunk, MAGIC};
use kprof_format::serial;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of bytes that wait for the device.
const QUEUE_BYTES: usize = 256 * 1024;
/// Time after a failure until the device is opened again.
const RETRY: Duration = Duration::from_secs(1);

/// How long the device may take nothing at the end before the session gives up on it.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// A live stream.
pub struct Live<S: System> {
    path: PathBuf,
    device: Option<S::File>,
    is_binary: bool,
    has_said: bool,
    next_try: Duration,
    queue: Vec<u8>,
    /// Bytes of the queue that the device has taken.
    taken: usize,
    sequence: u64,
    queued: u64,
    dropped: u64,
}

impl<S: System> Live<S> {
    /// A stream to this device. The device is opened when there are bytes for it.
    pub fn new(path: PathBuf, is_binary: bool) -> Self {
        Self {
            path,
            device: None,
            is_binary,
            has_said: false,
            next_try: Duration::ZERO,
            queue: Vec::new(),
            taken: 0,
            sequence: 0,
            queued: 0,
            dropped: 0,
        }
    }

    /// Lines or chunks that were queued for the device, and those that were dropped.
    pub fn counts(&self) -> (u64, u64) {
        (self.queued, self.dropped)
    }

    /// Opens the device if it is not open. Returns true if it has just been opened and needs the header and the names
    /// first.
    pub fn connect(&mut self, system: &mut S) -> bool {
        if self.device.is_some() || system.now() < self.next_try {
            return false;
        }
        let opened = system.open(&self.path, Open::StreamDevice).and_then(|mut device| {
            // A file's content would be overwritten.
            match system.facts_of(&mut device)? {
                Some(facts) if facts.is_regular => Err(std::io::Error::other("it is a file and no device")),
                _ => Ok(device),
            }
        });
        match opened {
            Ok(device) => self.device = Some(device),
            Err(error) => self.failed(system, &error),
        }
        self.device.is_some()
    }

    /// Queues new bytes, or counts them as dropped.
    pub fn queue(&mut self, bytes: &[u8]) {
        if self.is_binary { self.queue_chunks(bytes) } else { self.queue_lines(bytes) }
    }

    /// Writes as much as the device accepts without waiting. Returns whether it took anything.
    pub fn pump(&mut self, system: &mut S) -> bool {
        let before = self.taken;
        while self.taken < self.queue.len() {
            let Some(device) = &mut self.device else { break };
            match system.write(device, &self.queue[self.taken..]) {
                Ok(0) => break,
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.failed(system, &error);
                    return false;
                }
            }
        }
        let progress = self.taken > before;
        if self.taken == self.queue.len() || self.taken > QUEUE_BYTES / 2 {
            self.queue.drain(..self.taken);
            self.taken = 0;
        }
        progress
    }

    /// Writes the last bytes as long as the device accepts some. The rest is counted as dropped.
    pub fn finish(&mut self, system: &mut S) {
        while self.taken < self.queue.len() && self.device.is_some() {
            if !self.pump(system) {
                let _ = system.sleep(LAST_PAUSE);
                if !self.pump(system) {
                    break;
                }
            }
        }
        self.drop_the_rest();
    }

    fn drop_the_rest(&mut self) {
        let rest = &self.queue[self.taken..];
        let left = if self.is_binary {
            rest.windows(MAGIC.len()).filter(|window| **window == MAGIC).count()
        } else {
            rest.iter().filter(|byte| **byte == b'\n').count()
        } as u64;
        self.dropped += left;
        self.queued = self.queued.saturating_sub(left);
        self.queue.clear();
        self.taken = 0;
    }

    fn failed(&mut self, system: &mut S, error: &std::io::Error) {
        if !self.has_said {
            let path = self.path.display();
            system.say(format_args!("{path}: {error}; the file goes on without it, what it misses is counted"));
            self.has_said = true;
        }
        self.device = None;
        self.next_try = system.now() + RETRY;
        // A line or chunk that was sent in part cannot be completed after the device is opened again.
        self.drop_the_rest();
    }

    fn queue_lines(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let before = self.queue.len();
            let sequence = self.sequence;
            self.sequence += 1;
            if self.device.is_some() && before - self.taken < QUEUE_BYTES {
                let mut text = String::with_capacity(line.len() + 32);
                // The text form is ASCII.
                let _ = serial::write(&mut text, sequence, &String::from_utf8_lossy(line));
                self.queue.extend_from_slice(text.as_bytes());
                self.queued += 1;
            } else {
                self.dropped += 1;
            }
        }
    }

    fn queue_chunks(&mut self, mut bytes: &[u8]) {
        while let Ok((_, rest)) = Chunk::split(bytes) {
            let chunk = &bytes[..bytes.len() - rest.len()];
            bytes = rest;
            if self.device.is_some() && self.queue.len() - self.taken + chunk.len() <= 4 * QUEUE_BYTES {
                self.queue.extend_from_slice(chunk);
                self.queued += 1;
            } else {
                self.dropped += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::host::Host;

    #[test]
    fn bytes_that_the_device_has_taken_take_no_memory() {
        let (mut host, mut live) = (Host::default(), Live::new("/dev/null".into(), false));
        assert!(live.connect(&mut host), "a device is no file");
        for _ in 0..3 {
            live.queue(b"one\ntwo\n");
            assert!(!live.queue.is_empty() && live.pump(&mut host));
            assert_eq!((live.queue.len(), live.taken, live.counts()), (0, 0, (live.sequence, 0)));
        }
    }
}
