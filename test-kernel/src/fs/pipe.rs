//! Pipes: a buffer of 64 KiB between a reading and a writing end.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Kind, Node, Stat, UserBuffer};
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::task::{process, signal};
use crate::wait::{Reason, WaitQueue, Wakeup};

const CAPACITY: usize = 64 * 1024;

struct Pipe {
    data: Lock<VecDeque<u8>>,
    /// The number of bytes in `data`, which can be read without the lock: a wait condition may only read atomics.
    filled: AtomicUsize,
    readers: AtomicUsize,
    writers: AtomicUsize,
    changed: WaitQueue,
}

/// One end of a pipe.
struct End {
    pipe: Arc<Pipe>,
    writes: bool,
}

/// Makes a pipe. Returns the reading end and the writing end.
pub fn new() -> (Arc<dyn Node>, Arc<dyn Node>) {
    let pipe = Arc::new(Pipe {
        data: Lock::new(VecDeque::new()),
        filled: AtomicUsize::new(0),
        readers: AtomicUsize::new(1),
        writers: AtomicUsize::new(1),
        changed: WaitQueue::new(Reason::Pipe),
    });
    (Arc::new(End { pipe: pipe.clone(), writes: false }), Arc::new(End { pipe, writes: true }))
}

impl Drop for End {
    fn drop(&mut self) {
        let ends = if self.writes { &self.pipe.writers } else { &self.pipe.readers };
        ends.fetch_sub(1, Ordering::Release);
        self.pipe.changed.wake();
    }
}

impl Pipe {
    fn can_read(&self) -> bool {
        self.filled.load(Ordering::Acquire) > 0 || self.writers.load(Ordering::Acquire) == 0
    }

    fn can_write(&self) -> bool {
        self.filled.load(Ordering::Acquire) < CAPACITY || self.readers.load(Ordering::Acquire) == 0
    }
}

impl Node for End {
    fn stat(&self) -> Result<Stat> {
        let size = self.pipe.filled.load(Ordering::Acquire) as u64;
        Ok(Stat { kind: Kind::Pipe, mode: 0o600, size, inode: Arc::as_ptr(&self.pipe) as u64, device: 2, changed_s: 0 })
    }

    fn is_ready(&self, write: bool) -> bool {
        if write { self.pipe.can_write() } else { self.pipe.can_read() }
    }

    #[inline(never)]
    fn read(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        loop {
            {
                let mut data = self.pipe.data.lock();
                if !data.is_empty() || buffer.bytes == 0 {
                    let (first, _) = data.as_slices();
                    let bytes = first.len().min(buffer.bytes);
                    buffer.put(0, &first[..bytes])?;
                    data.drain(..bytes);
                    self.pipe.filled.store(data.len(), Ordering::Release);
                    drop(data);
                    self.pipe.changed.wake();
                    return Ok(bytes);
                }
                if self.pipe.writers.load(Ordering::Acquire) == 0 {
                    return Ok(0);
                }
            }
            if self.pipe.changed.wait_interruptible(|| self.pipe.can_read()) == Wakeup::Interrupted {
                return Err(Errno::EINTR);
            }
        }
    }

    #[inline(never)]
    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let mut done = 0;
        while done < buffer.bytes {
            if self.pipe.readers.load(Ordering::Acquire) == 0 {
                if let Some(process) = process::current() {
                    signal::send(process, signal::SIGPIPE);
                }
                return if done > 0 { Ok(done) } else { Err(Errno::EPIPE) };
            }
            let room = {
                let mut data = self.pipe.data.lock();
                let room = (CAPACITY - data.len()).min(buffer.bytes - done).min(4096);
                let mut chunk = [0; 4096];
                buffer.get(done, &mut chunk[..room])?;
                data.extend(&chunk[..room]);
                self.pipe.filled.store(data.len(), Ordering::Release);
                room
            };
            done += room;
            self.pipe.changed.wake();
            if room == 0 && self.pipe.changed.wait_interruptible(|| self.pipe.can_write()) == Wakeup::Interrupted {
                return if done > 0 { Ok(done) } else { Err(Errno::EINTR) };
            }
        }
        Ok(done)
    }
}
