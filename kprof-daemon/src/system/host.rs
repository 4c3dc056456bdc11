//! The real system: Linux, Redox, and the test kernel, which speaks the Linux calls.
//!
//! In, out: see [`System`]. Runs in: user process, one thread. Uses few system calls, so that a small kernel can run
//! the static binary; if such a kernel lacks a call (`fsync` of a folder, file locks, times), the daemon does without
//! it.

use super::{FileFacts, Open, System};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The operating system that this process runs on.
#[derive(Debug)]
pub struct Host {
    began: Instant,
}

impl Default for Host {
    fn default() -> Self {
        Self { began: Instant::now() }
    }
}

impl System for Host {
    type File = File;

    fn open(&mut self, path: &Path, how: Open) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match how {
            Open::Read => options.read(true),
            Open::Probe => options.read(true).custom_flags(libc::O_NONBLOCK),
            Open::ProbeNoLink => options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW),
            Open::ReadWrite => options.read(true).write(true),
            Open::SampleFile => options.read(true).write(true).create(true).mode(0o600),
            Open::NextFile => options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW),
        };
        options.open(path)
    }

    fn stdout(&mut self) -> io::Result<File> {
        Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    }

    fn read(&mut self, file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        file.read(buffer)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    fn seek(&mut self, file: &mut File, offset: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(offset)).map(drop)
    }

    fn truncate(&mut self, file: &mut File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        match file.sync_data() {
            // A pipe or a terminal cannot be synced, because it is not on a disk.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::StorageFull) => Err(error),
            // Not every system allows a folder to be opened or synced. The file's own content is safe without it.
            _ => Ok(()),
        }
    }

    fn facts_of(&mut self, file: &mut File) -> io::Result<Option<FileFacts>> {
        match file.metadata() {
            Ok(facts) => {
                let kind = facts.file_type();
                let special = kind.is_fifo() || kind.is_char_device() || kind.is_socket();
                Ok(Some(FileFacts { is_regular: !special, names: facts.nlink(), bytes: facts.len() }))
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn wait_writable(&mut self, file: &mut File, limit: Duration) -> io::Result<bool> {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        match poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            // A small kernel without this call: the write may block.
            Err(Errno::NOSYS) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn make_private(&mut self, file: &mut File) -> io::Result<()> {
        let facts = file.metadata()?;
        if !facts.file_type().is_file() || facts.permissions().mode() & 0o077 == 0 {
            return Ok(());
        }
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
    }

    fn lock(&mut self, file: &mut File) -> io::Result<()> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            // On a system without locks the claim on the source still keeps a second instance out.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn say(&mut self, line: fmt::Arguments<'_>) {
        // One write, so that lines of other processes do not come between. A closed standard error is no reason to end.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }

    fn sleep(&mut self, time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }

    fn now(&mut self) -> Duration {
        self.began.elapsed()
    }

    #[cfg(target_os = "redox")]
    fn redox_task_name(&mut self, stream: &mut File, task: u64) -> Option<Vec<u8>> {
        use std::os::fd::AsRawFd;
        let file = usize::try_from(stream.as_raw_fd()).ok()?;
        // On Redox a name has at most 32 bytes.
        let mut name = [0; 64];
        let bytes = libredox::call::call_ro(file, &mut name, syscall::CallFlags::empty(), &[task]).ok()?;
        Some(name.get(..bytes)?.to_vec()).filter(|name| !name.is_empty())
    }
}
