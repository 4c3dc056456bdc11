//! Open files: a node with a position. File numbers that were duplicated share one open file.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Kind, Node, UserBuffer, device};
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::wait::{Reason, WaitQueue, Wakeup};

/// Linux's O_ flags.
#[allow(missing_docs)]
pub mod flags {
    pub const WRITE_ONLY: u32 = 0o1;
    pub const READ_WRITE: u32 = 0o2;
    pub const CREATE: u32 = 0o100;
    pub const EXCLUSIVE: u32 = 0o200;
    pub const TRUNCATE: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    pub const NON_BLOCKING: u32 = 0o4000;
    pub const FOLDER: u32 = 0o200_000;
    pub const NO_FOLLOW: u32 = 0o400_000;
    pub const CLOSE_ON_EXEC: u32 = 0o2_000_000;
}

/// Maximum number of files that a process can have open.
pub const MAX_FILES: usize = 1024;

/// An open file.
pub struct OpenFile {
    /// What is open.
    pub node: Arc<dyn Node>,
    /// Its absolute path.
    pub path: String,
    /// The O_ flags. Some of them can be changed.
    pub flags: AtomicU32,
    position: AtomicU64,
}

impl OpenFile {
    /// A node that was just opened.
    pub fn new(node: Arc<dyn Node>, path: String, flags: u32) -> Arc<Self> {
        Arc::new(Self { node, path, flags: AtomicU32::new(flags), position: AtomicU64::new(0) })
    }

    fn can(&self, write: bool) -> bool {
        match self.flags.load(Ordering::Relaxed) & 3 {
            flags::READ_WRITE => true,
            flags::WRITE_ONLY => write,
            _ => !write,
        }
    }

    /// Returns EAGAIN if the call would have to wait and the file is non-blocking.
    fn must_not_block(&self, write: bool) -> Result<()> {
        let waits = self.flags.load(Ordering::Relaxed) & flags::NON_BLOCKING == 0;
        if waits || self.node.is_ready(write) { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    /// Reads at the position and moves it.
    ///
    /// # Errors
    /// EBADF if the file is not open for reading; errors of the node.
    #[inline(never)]
    pub fn read(&self, buffer: UserBuffer) -> Result<usize> {
        if !self.can(false) {
            return Err(Errno::EBADF);
        }
        self.must_not_block(false)?;
        let position = self.position.load(Ordering::Relaxed);
        let bytes = self.node.read(position, buffer)?;
        self.position.store(position + bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Writes at the position (or the end) and moves it.
    ///
    /// # Errors
    /// EBADF if the file is not open for writing; errors of the node.
    #[inline(never)]
    pub fn write(&self, buffer: UserBuffer) -> Result<usize> {
        if !self.can(true) {
            return Err(Errno::EBADF);
        }
        self.must_not_block(true)?;
        let position = match self.flags.load(Ordering::Relaxed) & flags::APPEND {
            0 => self.position.load(Ordering::Relaxed),
            _ => self.node.stat()?.size,
        };
        let bytes = self.node.write(position, buffer)?;
        self.position.store(position + bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Reads or writes at `offset` without moving the position.
    ///
    /// # Errors
    /// As `read` and `write`; ESPIPE on a pipe.
    pub fn at(&self, offset: u64, buffer: UserBuffer, write: bool) -> Result<usize> {
        if !self.can(write) {
            return Err(Errno::EBADF);
        }
        if self.node.stat()?.kind == Kind::Pipe {
            return Err(Errno::ESPIPE);
        }
        if write { self.node.write(offset, buffer) } else { self.node.read(offset, buffer) }
    }

    /// Moves the position: `whence` 0 from the start, 1 from here, 2 from the end.
    ///
    /// # Errors
    /// EINVAL for a position before the start, ESPIPE on a pipe.
    pub fn seek(&self, offset: i64, whence: u32) -> Result<u64> {
        let stat = self.node.stat()?;
        let base = match (stat.kind, whence) {
            (Kind::Pipe, _) => return Err(Errno::ESPIPE),
            (_, 0) => 0,
            (_, 1) => self.position.load(Ordering::Relaxed),
            (_, 2) => stat.size,
            _ => return Err(Errno::EINVAL),
        };
        let position = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
        self.position.store(position, Ordering::Relaxed);
        Ok(position)
    }
}

/// Whole-file locks (`flock`): the node, and the open file that holds the lock. Each lock has only one holder, so
/// shared locks are exclusive here.
static LOCKS: Lock<Vec<((u64, u64), usize)>> = Lock::new(Vec::new());
static UNLOCKED: WaitQueue = WaitQueue::new(Reason::FileLock);
/// The number of unlocks. A waiting thread reads it, because a wait condition must not take a lock.
static UNLOCKS: AtomicU64 = AtomicU64::new(0);

impl OpenFile {
    fn token(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Takes the lock of the node. With `wait` it waits until the lock is free.
    ///
    /// # Errors
    /// EAGAIN if another open file holds it, EINTR if a signal is pending.
    pub fn lock(&self, wait: bool) -> Result<()> {
        let stat = self.node.stat()?;
        let node = (stat.device, stat.inode);
        loop {
            let unlocks = UNLOCKS.load(Ordering::Acquire);
            {
                let mut locks = LOCKS.lock();
                match locks.iter().find(|(locked, _)| *locked == node) {
                    None => {
                        locks.push((node, self.token()));
                        return Ok(());
                    }
                    Some((_, holder)) if *holder == self.token() => return Ok(()),
                    Some(_) if !wait => return Err(Errno::EAGAIN),
                    Some(_) => {}
                }
            }
            if UNLOCKED.wait_interruptible(|| UNLOCKS.load(Ordering::Acquire) != unlocks) == Wakeup::Interrupted {
                return Err(Errno::EINTR);
            }
        }
    }

    /// Releases the lock if this open file holds it.
    pub fn unlock(&self) {
        let mut locks = LOCKS.lock();
        let before = locks.len();
        locks.retain(|(_, holder)| *holder != self.token());
        let freed = locks.len() != before;
        drop(locks);
        if freed {
            UNLOCKS.fetch_add(1, Ordering::Release);
            UNLOCKED.wake();
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.unlock();
    }
}

/// The open files of a process by number.
#[derive(Clone, Default)]
pub struct FileTable {
    entries: Vec<Option<Entry>>,
}

#[derive(Clone)]
struct Entry {
    file: Arc<OpenFile>,
    close_on_exec: bool,
}

impl FileTable {
    /// No open files.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Opens the serial console as the numbers 0, 1 and 2.
    pub fn open_console(&mut self) {
        let file = OpenFile::new(device::console(), String::from("/dev/console"), flags::READ_WRITE);
        for _ in 0..3 {
            // This cannot fail, because the table is empty.
            let _ = self.insert(file.clone(), false, 0);
        }
    }

    /// The file with this number.
    ///
    /// # Errors
    /// EBADF.
    pub fn get(&self, number: u64) -> Result<Arc<OpenFile>> {
        self.entry(number).map(|entry| entry.file.clone())
    }

    fn entry(&self, number: u64) -> Result<&Entry> {
        self.entries.get(number as usize).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// Gives a file the lowest free number that is at least `least`.
    ///
    /// # Errors
    /// EMFILE.
    pub fn insert(&mut self, file: Arc<OpenFile>, close_on_exec: bool, least: usize) -> Result<u64> {
        let number = (least..MAX_FILES)
            .find(|index| self.entries.get(*index).is_none_or(Option::is_none))
            .ok_or(Errno::EMFILE)?;
        self.set(number, file, close_on_exec);
        Ok(number as u64)
    }

    /// Gives a file exactly this number. Returns the file that had the number before.
    pub fn set(&mut self, number: usize, file: Arc<OpenFile>, close_on_exec: bool) -> Option<Arc<OpenFile>> {
        if self.entries.len() <= number {
            self.entries.resize(number + 1, None);
        }
        self.entries[number].replace(Entry { file, close_on_exec }).map(|entry| entry.file)
    }

    /// Frees a number. The caller drops the returned file after it has released the table's lock.
    ///
    /// # Errors
    /// EBADF.
    pub fn remove(&mut self, number: u64) -> Result<Arc<OpenFile>> {
        let entry = self.entries.get_mut(number as usize).and_then(Option::take).ok_or(Errno::EBADF)?;
        Ok(entry.file)
    }

    /// Whether a number is closed by exec.
    ///
    /// # Errors
    /// EBADF.
    pub fn closes_on_exec(&self, number: u64) -> Result<bool> {
        Ok(self.entry(number)?.close_on_exec)
    }

    /// Sets whether a number is closed by exec.
    ///
    /// # Errors
    /// EBADF.
    pub fn set_close_on_exec(&mut self, number: u64, close: bool) -> Result<()> {
        self.entry(number)?;
        if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
            entry.close_on_exec = close;
        }
        Ok(())
    }

    /// Closes the numbers that exec closes.
    pub fn close_on_exec(&mut self) {
        for entry in &mut self.entries {
            if entry.as_ref().is_some_and(|entry| entry.close_on_exec) {
                *entry = None;
            }
        }
    }
}
