//! The RAM file system. Files of the initrd are used in place; new files are in page frames.
//!
//! A limit on the number of frames simulates a full disk: writes beyond it give ENOSPC.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::{Kind, Node, Stat, UserBuffer};
use crate::cpu::clock;
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::memory::space::Bytes;
use crate::memory::{PAGE, frames, phys_to_virt};

const DEVICE: u64 = 1;

static PAGES_LEFT: AtomicUsize = AtomicUsize::new(16384);
static NEXT_INODE: AtomicU64 = AtomicU64::new(1);

/// Sets how many pages all files together may use.
pub fn set_limit(pages: usize) {
    PAGES_LEFT.store(pages, Ordering::Relaxed);
}

enum Content {
    Initrd(&'static [u8]),
    Pages { frames: Vec<u64>, bytes: u64 },
    Folder(BTreeMap<String, Arc<RamNode>>),
    Link(String),
}

/// A node of the RAM file system.
pub struct RamNode {
    inode: u64,
    mode: AtomicU32,
    changed_ns: AtomicU64,
    content: Lock<Content>,
}

impl RamNode {
    fn new(content: Content, mode: u32) -> Arc<Self> {
        Arc::new(Self {
            inode: NEXT_INODE.fetch_add(1, Ordering::Relaxed),
            mode: AtomicU32::new(mode & 0o7777),
            changed_ns: AtomicU64::new(clock::now_ns()),
            content: Lock::new(content),
        })
    }

    /// An empty folder.
    pub fn folder() -> Arc<Self> {
        Self::new(Content::Folder(BTreeMap::new()), 0o755)
    }

    fn add(&self, name: &str, node: Arc<RamNode>) -> Result<()> {
        match &mut *self.content.lock() {
            Content::Folder(names) => {
                names.insert(name.to_string(), node);
                Ok(())
            }
            _ => Err(Errno::ENOTDIR),
        }
    }
}

/// Builds the tree from a cpio archive (newc). Missing folders are created.
pub fn from_cpio(archive: &'static [u8]) -> Arc<RamNode> {
    let root = RamNode::folder();
    for entry in cpio_reader::iter_files(archive) {
        let mode = entry.mode().bits();
        let content = match mode & 0o170_000 {
            0o040_000 => Content::Folder(BTreeMap::new()),
            0o120_000 => Content::Link(String::from_utf8_lossy(entry.file()).into_owned()),
            _ => Content::Initrd(entry.file()),
        };
        let mut folder = root.clone();
        let mut parts: Vec<&str> = entry.name().split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let Some(name) = parts.pop() else { continue };
        for part in parts {
            folder = folder.child_or_folder(part);
        }
        // If the parent is not a folder the archive contradicts itself, and the entry is dropped.
        let _ = folder.add(name, RamNode::new(content, mode));
    }
    root
}

impl RamNode {
    fn child_or_folder(&self, name: &str) -> Arc<RamNode> {
        match &mut *self.content.lock() {
            Content::Folder(names) => names.entry(name.to_string()).or_insert_with(RamNode::folder).clone(),
            _ => RamNode::folder(),
        }
    }
}

impl Content {
    fn size(&self) -> u64 {
        match self {
            Self::Initrd(bytes) => bytes.len() as u64,
            Self::Pages { bytes, .. } => *bytes,
            Self::Folder(names) => names.len() as u64,
            Self::Link(target) => target.len() as u64,
        }
    }

    /// The frames and the size of the file, for changing it. A file of the initrd is copied first.
    fn writable(&mut self) -> Result<(&mut Vec<u64>, &mut u64)> {
        if let Self::Initrd(bytes) = *self {
            let mut frames = Vec::new();
            grow(&mut frames, bytes.len() as u64)?;
            for (frame, chunk) in frames.iter().zip(bytes.chunks(PAGE as usize)) {
                page(*frame)[..chunk.len()].copy_from_slice(chunk);
            }
            *self = Self::Pages { frames, bytes: bytes.len() as u64 };
        }
        match self {
            Self::Pages { frames, bytes } => Ok((frames, bytes)),
            _ => Err(Errno::EISDIR),
        }
    }
}

/// The bytes of a frame that belongs to a file.
#[allow(clippy::mut_from_ref)]
fn page<'a>(frame: u64) -> &'a mut [u8] {
    // SAFETY: only this file uses the frame, and the file's lock is held as long as the slice is used.
    unsafe { core::slice::from_raw_parts_mut(phys_to_virt(frame) as *mut u8, PAGE as usize) }
}

fn grow(frames: &mut Vec<u64>, bytes: u64) -> Result<()> {
    while (frames.len() as u64 * PAGE) < bytes {
        let taken = PAGES_LEFT.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let frame = taken.ok().and_then(|_| {
            frames::allocate_zeroed().or_else(|| {
                PAGES_LEFT.fetch_add(1, Ordering::Relaxed);
                None
            })
        });
        frames.push(frame.ok_or(Errno::ENOSPC)?);
    }
    Ok(())
}

fn shrink(frames: &mut Vec<u64>, keep: usize) {
    for frame in frames.drain(keep.min(frames.len())..) {
        frames::release(frame);
        PAGES_LEFT.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RamNode {
    fn drop(&mut self) {
        if let Content::Pages { frames, .. } = &mut *self.content.lock() {
            shrink(frames, 0);
        }
    }
}

impl Node for RamNode {
    fn stat(&self) -> Result<Stat> {
        let content = self.content.lock();
        let kind = match &*content {
            Content::Initrd(_) | Content::Pages { .. } => Kind::File,
            Content::Folder(_) => Kind::Folder,
            Content::Link(_) => Kind::Link,
        };
        Ok(Stat {
            kind,
            mode: self.mode.load(Ordering::Relaxed),
            size: content.size(),
            inode: self.inode,
            device: DEVICE,
            changed_s: self.changed_ns.load(Ordering::Relaxed) / 1_000_000_000,
        })
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let content = self.content.lock();
        let bytes = content.size().saturating_sub(offset).min(buffer.bytes as u64) as usize;
        match &*content {
            Content::Initrd(data) => {
                buffer.put(0, data.get(offset as usize..).map_or(&[][..], |rest| &rest[..bytes]))?
            }
            Content::Pages { frames, .. } => {
                let mut done = 0;
                while done < bytes {
                    let at = offset + done as u64;
                    let chunk = &page(frames[(at / PAGE) as usize])[(at % PAGE) as usize..];
                    let chunk = &chunk[..chunk.len().min(bytes - done)];
                    buffer.put(done, chunk)?;
                    done += chunk.len();
                }
            }
            Content::Folder(_) => return Err(Errno::EISDIR),
            Content::Link(_) => return Err(Errno::EINVAL),
        }
        Ok(bytes)
    }

    fn write(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let mut content = self.content.lock();
        let (frames, size) = content.writable()?;
        let end = offset.checked_add(buffer.bytes as u64).ok_or(Errno::EFBIG)?;
        let grown = grow(frames, end);
        // If the disk is nearly full, the bytes that fit are written. ENOSPC is returned only if none fits.
        let room = (frames.len() as u64 * PAGE).saturating_sub(offset).min(buffer.bytes as u64) as usize;
        if room == 0 && buffer.bytes != 0 {
            grown?;
        }
        let mut done = 0;
        while done < room {
            let at = offset + done as u64;
            let chunk = &mut page(frames[(at / PAGE) as usize])[(at % PAGE) as usize..];
            let bytes = chunk.len().min(room - done);
            buffer.get(done, &mut chunk[..bytes])?;
            done += bytes;
        }
        *size = (*size).max(offset + room as u64);
        self.changed_ns.store(clock::now_ns(), Ordering::Relaxed);
        Ok(room)
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        let mut content = self.content.lock();
        let (frames, size) = content.writable()?;
        grow(frames, bytes)?;
        shrink(frames, bytes.div_ceil(PAGE) as usize);
        if bytes < *size && !bytes.is_multiple_of(PAGE) {
            page(frames[(bytes / PAGE) as usize])[(bytes % PAGE) as usize..].fill(0);
        }
        *size = bytes;
        Ok(())
    }

    fn set_mode(&self, mode: u32) -> Result<()> {
        self.mode.store(mode & 0o7777, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lookup(&self, name: &str) -> Result<Arc<dyn Node>> {
        match &*self.content.lock() {
            Content::Folder(names) => names.get(name).cloned().map(|node| node as _).ok_or(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn create(&self, name: &str, kind: Kind, mode: u32) -> Result<Arc<dyn Node>> {
        let content = match kind {
            Kind::File => Content::Pages { frames: Vec::new(), bytes: 0 },
            Kind::Folder => Content::Folder(BTreeMap::new()),
            _ => return Err(Errno::EPERM),
        };
        let node = RamNode::new(content, mode);
        match &mut *self.content.lock() {
            Content::Folder(names) if names.contains_key(name) => Err(Errno::EEXIST),
            Content::Folder(names) => {
                names.insert(name.to_string(), node.clone());
                Ok(node)
            }
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn symlink(&self, name: &str, target: &str) -> Result<()> {
        match self.lookup(name) {
            Err(Errno::ENOENT) => self.add(name, RamNode::new(Content::Link(target.to_string()), 0o777)),
            Err(error) => Err(error),
            Ok(_) => Err(Errno::EEXIST),
        }
    }

    fn remove(&self, name: &str, folder: bool) -> Result<()> {
        let removed = match &mut *self.content.lock() {
            Content::Folder(names) => {
                let node = names.get(name).ok_or(Errno::ENOENT)?;
                match (&*node.content.lock(), folder) {
                    (Content::Folder(_), false) => return Err(Errno::EISDIR),
                    (Content::Folder(names), true) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
                    (Content::Folder(_), true) => {}
                    (_, true) => return Err(Errno::ENOTDIR),
                    (_, false) => {}
                }
                names.remove(name)
            }
            _ => return Err(Errno::ENOTDIR),
        };
        drop(removed);
        Ok(())
    }

    fn rename(&self, name: &str, to: &dyn Node, to_name: &str) -> Result<()> {
        let to = to.as_any().and_then(|to| to.downcast_ref::<RamNode>()).ok_or(Errno::EXDEV)?;
        let node = match &mut *self.content.lock() {
            Content::Folder(names) => names.remove(name).ok_or(Errno::ENOENT)?,
            _ => return Err(Errno::ENOTDIR),
        };
        to.add(to_name, node)
    }

    fn entries(&self) -> Result<Vec<(String, Kind)>> {
        match &*self.content.lock() {
            Content::Folder(names) => names.iter().map(|(name, node)| Ok((name.clone(), node.stat()?.kind))).collect(),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn link_target(&self) -> Result<String> {
        match &*self.content.lock() {
            Content::Link(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn read_whole(&self) -> Result<Bytes> {
        match &*self.content.lock() {
            Content::Initrd(bytes) => Ok(Bytes::Static(bytes)),
            Content::Pages { frames, bytes } => {
                let mut whole = Vec::with_capacity(frames.len() * PAGE as usize);
                frames.iter().for_each(|frame| whole.extend_from_slice(page(*frame)));
                whole.truncate(*bytes as usize);
                Ok(Bytes::Shared(whole.into()))
            }
            _ => Err(Errno::EACCES),
        }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
