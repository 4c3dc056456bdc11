//! The interface to the operating system: each method is one system call.
//!
//! In: the daemon's calls. Out: the system's results. Runs in: user process. All input and output of the daemon goes
//! through this trait. So a test can run the unchanged daemon with a simulated kernel and disk, stop it between any two
//! calls, and count the calls. Nothing here decides anything.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

pub mod host;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Read only.
    Read,
    /// Read only, to see what is there: a pipe without a writer does not block.
    Probe,
    /// As `Probe`, and a symbolic link is not followed.
    ProbeNoLink,
    /// Read and write an existing file (the ctl file).
    ReadWrite,
    /// Read and write a sample file; it is created with mode 0600 if it does not exist.
    SampleFile,
    /// As `SampleFile`, but a symbolic link is not followed. It is for a name that the daemon has chosen itself.
    NextFile,
}

/// The system calls that the daemon uses.
///
/// Every method that gives an `io::Result` may fail with `Interrupted`; the caller then tries again.
pub trait System {
    /// An open file; dropping it closes it.
    type File;

    /// Opens a file.
    fn open(&mut self, path: &Path, how: Open) -> io::Result<Self::File>;
    /// The standard output.
    fn stdout(&mut self) -> io::Result<Self::File>;
    /// Reads at most `buffer.len()` bytes. 0 means the end of a file, or that a stream has nothing now.
    fn read(&mut self, file: &mut Self::File, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes at most `bytes.len()` bytes.
    fn write(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<usize>;
    /// Sets the offset of the next read or write, in bytes from the start.
    fn seek(&mut self, file: &mut Self::File, offset: u64) -> io::Result<()>;
    /// Truncates a file to `bytes`.
    fn truncate(&mut self, file: &mut Self::File, bytes: u64) -> io::Result<()>;
    /// Returns when the file's content is on the disk.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Returns when the names in the folder of `path` are on the disk.
    fn sync_folder(&mut self, path: &Path) -> io::Result<()>;
    /// What kind of file it is, how many names it has and how long it is; `None` if the system cannot tell.
    fn facts_of(&mut self, file: &mut Self::File) -> io::Result<Option<FileFacts>>;
    /// Waits until a pipe or a terminal accepts [`PIPE_BYTES`], at most for `limit`. Returns whether it does.
    fn wait_writable(&mut self, file: &mut Self::File, limit: Duration) -> io::Result<bool>;
    /// Restricts a file to its owner, because it contains kernel addresses.
    fn make_private(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Locks the file against other instances; `WouldBlock` if another instance has the lock.
    fn lock(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Renames a file.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Tells the administrator something, in one line. If nobody can read it, nothing else happens.
    fn say(&mut self, line: fmt::Arguments<'_>);
    /// Sleeps for this time.
    fn sleep(&mut self, time: Duration) -> io::Result<()>;
    /// Time since some fixed moment; never goes back.
    fn now(&mut self) -> Duration;
    /// The name that a Redox kernel has for a task, asked for by `call` on an open stream. `None` on other systems, and
    /// if the task has no name.
    fn redox_task_name(&mut self, _stream: &mut Self::File, _task: u64) -> Option<Vec<u8>> {
        None
    }
}

/// A write of this many bytes does not block if [`System::wait_writable`] has returned true: `PIPE_BUF` of Linux, see
/// pipe(7).
pub const PIPE_BYTES: usize = 4096;

/// What is known about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Whether it is a regular file (not a pipe, not a terminal).
    pub is_regular: bool,
    /// The number of names it has; 0 after it was deleted.
    pub names: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Reads into `buffer`; repeats the call after a signal.
pub fn read<S: System>(system: &mut S, file: &mut S::File, buffer: &mut [u8]) -> io::Result<usize> {
    again(|| system.read(file, buffer))
}

/// Repeats a call that a signal has interrupted.
pub fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
