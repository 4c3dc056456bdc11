//! Files: the interface of nodes, mounts, and the lookup of paths with symbolic links.
//!
//! `/` is the RAM file system from the initrd, `/root` is the shared folder of the host (9p), `/scheme` and `/dev` have
//! devices. Runs in: system calls, never in interrupts.

pub mod block;
pub mod device;
pub mod file;
pub mod ninep;
pub mod pipe;
pub mod ram;
pub mod serial;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::memory::space::Bytes;
use crate::memory::user;

/// What a node is (the S_IFMT bits of Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A pipe.
    Pipe = 0o010_000,
    /// A character device.
    Device = 0o020_000,
    /// A block device.
    Block = 0o060_000,
    /// A folder.
    Folder = 0o040_000,
    /// A regular file.
    File = 0o100_000,
    /// A symbolic link.
    Link = 0o120_000,
}

impl Kind {
    /// The DT_ number of a directory entry.
    pub fn entry_type(self) -> u8 {
        (self as u32 >> 12) as u8
    }
}

/// The result of `stat`.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// What the node is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Number of the node in its file system.
    pub inode: u64,
    /// Number of its file system.
    pub device: u64,
    /// Time of the last change, seconds.
    pub changed_s: u64,
}

/// A part of user memory that a call reads from or writes to.
#[derive(Clone, Copy)]
pub struct UserBuffer {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: usize,
}

impl UserBuffer {
    /// Copies `bytes` into the buffer at `offset`.
    ///
    /// # Errors
    /// EFAULT.
    pub fn put(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        user::write(self.address + offset as u64, bytes)
    }

    /// Copies from the buffer at `offset`.
    ///
    /// # Errors
    /// EFAULT.
    pub fn get(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        user::read(self.address + offset as u64, bytes)
    }
}

/// A file, folder, link or device. An operation that a node does not support returns the same error as on Linux.
pub trait Node: Send + Sync {
    /// What it is.
    fn stat(&self) -> Result<Stat>;

    /// Called for each open. A node with a state for each open returns another node, which is dropped at the last
    /// close.
    fn open(&self, _write: bool) -> Result<Option<Arc<dyn Node>>> {
        Ok(None)
    }

    /// Reads at `offset`. Returns 0 at the end of the file.
    fn read(&self, _offset: u64, _buffer: UserBuffer) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Writes at `offset`.
    fn write(&self, _offset: u64, _buffer: UserBuffer) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Changes the size.
    fn truncate(&self, _bytes: u64) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// Changes the permission bits.
    fn set_mode(&self, _mode: u32) -> Result<()> {
        Ok(())
    }

    /// Returns after the contents were written to the medium.
    fn sync(&self) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// Whether a read (or a write) would not have to wait.
    fn is_ready(&self, _write: bool) -> bool {
        true
    }

    /// The node called `name` in this folder.
    fn lookup(&self, _name: &str) -> Result<Arc<dyn Node>> {
        Err(Errno::ENOTDIR)
    }

    /// Makes a file or folder in this folder.
    fn create(&self, _name: &str, _kind: Kind, _mode: u32) -> Result<Arc<dyn Node>> {
        Err(Errno::EACCES)
    }

    /// Makes a symbolic link in this folder.
    fn symlink(&self, _name: &str, _target: &str) -> Result<()> {
        Err(Errno::EACCES)
    }

    /// Removes a file (or an empty folder) from this folder.
    fn remove(&self, _name: &str, _folder: bool) -> Result<()> {
        Err(Errno::EACCES)
    }

    /// Moves `name` from this folder to `to_name` in the folder `to`, which belongs to the same file system.
    fn rename(&self, _name: &str, _to: &dyn Node, _to_name: &str) -> Result<()> {
        Err(Errno::EXDEV)
    }

    /// The names in this folder.
    fn entries(&self) -> Result<Vec<(String, Kind)>> {
        Err(Errno::ENOTDIR)
    }

    /// The target of a symbolic link.
    fn link_target(&self) -> Result<String> {
        Err(Errno::EINVAL)
    }

    /// All bytes of the file, to run it as a program.
    fn read_whole(&self) -> Result<Bytes> {
        Err(Errno::EACCES)
    }

    /// The node itself as `Any`, so that a file system can recognise its own nodes (in `rename`).
    fn as_any(&self) -> Option<&dyn core::any::Any> {
        None
    }
}

static MOUNTS: Lock<Vec<(String, Arc<dyn Node>)>> = Lock::new(Vec::new());

/// Mounts `root` at `path`; `/` must be mounted first.
pub fn mount(path: &str, root: Arc<dyn Node>) {
    MOUNTS.lock().push((path.to_string(), root));
}

fn mounted(path: &str) -> Option<Arc<dyn Node>> {
    MOUNTS.lock().iter().rev().find(|(at, _)| at == path).map(|(_, node)| node.clone())
}

/// `path` as seen from `folder`: absolute, without `.`, `..` and doubled slashes.
pub fn absolute(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let start = if path.starts_with('/') { "" } else { folder };
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut text = String::new();
    for part in parts {
        text.push('/');
        text.push_str(part);
    }
    if text.is_empty() { String::from("/") } else { text }
}

/// The folder part and the last name of an absolute path.
pub fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((folder, name)) => (folder, name),
        None => ("/", path),
    }
}

/// The node at an absolute path. With `follow` a link in the last part is followed too.
///
/// # Errors
/// ENOENT, ENOTDIR, ELOOP as on Linux.
pub fn lookup(path: &str, follow: bool) -> Result<Arc<dyn Node>> {
    let mut path = absolute("/", path);
    'restart: for _ in 0..8 {
        let mut node = mounted("/").ok_or(Errno::ENOENT)?;
        let mut at = String::new();
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(String::from).collect();
        for (index, part) in parts.iter().enumerate() {
            let folder = at.clone();
            at.push('/');
            at.push_str(part);
            node = match mounted(&at) {
                Some(node) => node,
                None => node.lookup(part)?,
            };
            let last = index + 1 == parts.len();
            if (!last || follow) && node.stat()?.kind == Kind::Link {
                let mut target = absolute(&folder, &node.link_target()?);
                for rest in &parts[index + 1..] {
                    target.push('/');
                    target.push_str(rest);
                }
                path = absolute("/", &target);
                continue 'restart;
            }
        }
        return Ok(node);
    }
    Err(Errno::ELOOP)
}

/// The folder of an absolute path, and the name in it.
///
/// # Errors
/// Those of [`lookup`] for the folder.
pub fn lookup_parent(path: &str) -> Result<(Arc<dyn Node>, &str)> {
    let (folder, name) = split(path);
    if name.is_empty() {
        return Err(Errno::EEXIST);
    }
    Ok((lookup(folder, true)?, name))
}
