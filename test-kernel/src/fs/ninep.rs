//! The host's shared folder: a 9P2000.L client over virtio.
//!
//! In: file operations. Out: requests to QEMU's server. Its errors are Linux errno numbers and are returned unchanged.
//! Nothing is cached, so the host sees every write at once. Source: the 9P2000.L description of diod.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{Kind, Node, Stat, UserBuffer};
use crate::device::virtio::Device;
use crate::errno::{Errno, Result};
use crate::memory::space::Bytes;
use crate::memory::user;

const MESSAGE_BYTES: u32 = 128 * 1024;
/// Bytes that are reserved for the headers of a read or write.
const OVERHEAD: u32 = 64;
const NO_FID: u32 = u32::MAX;
const DEVICE: u64 = 9;

mod kind {
    pub const LERROR: u8 = 7;
    pub const LOPEN: u8 = 12;
    pub const LCREATE: u8 = 14;
    pub const SYMLINK: u8 = 16;
    pub const READLINK: u8 = 22;
    pub const GETATTR: u8 = 24;
    pub const SETATTR: u8 = 26;
    pub const READDIR: u8 = 40;
    pub const FSYNC: u8 = 50;
    pub const MKDIR: u8 = 72;
    pub const RENAMEAT: u8 = 74;
    pub const UNLINKAT: u8 = 76;
    pub const VERSION: u8 = 100;
    pub const ATTACH: u8 = 104;
    pub const WALK: u8 = 110;
    pub const READ: u8 = 116;
    pub const WRITE: u8 = 118;
    pub const CLUNK: u8 = 120;
}

/// A message that is being built: size, type, tag, then the fields.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u8) -> Self {
        let mut bytes = alloc::vec![0; 7];
        bytes[4] = kind;
        Self(bytes)
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn text(self, text: &str) -> Self {
        let mut this = self.u16(text.len() as u16);
        this.0.extend_from_slice(text.as_bytes());
        this
    }
}

/// An answer that is being parsed. Reading a field beyond its end gives EIO.
struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    fn take(&mut self, bytes: usize) -> Result<&[u8]> {
        let part = self.bytes.get(self.at..self.at + bytes).ok_or(Errno::EIO)?;
        self.at += bytes;
        Ok(part)
    }

    fn number(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |value, byte| value << 8 | *byte as u64))
    }

    fn text(&mut self) -> Result<String> {
        let bytes = self.number(2)? as usize;
        Ok(String::from_utf8_lossy(self.take(bytes)?).into_owned())
    }
}

/// The connection.
struct Client {
    device: &'static Device,
    next_fid: AtomicU32,
}

impl Client {
    fn call(&self, mut message: Message, answer_bytes: u32) -> Result<Answer> {
        let kind = message.0[4];
        let size = message.0.len() as u32;
        message.0[..4].copy_from_slice(&size.to_le_bytes());
        let mut bytes = alloc::vec![0; answer_bytes as usize];
        let length = self.device.request(&message.0, &mut bytes)?;
        bytes.truncate(length);
        let mut answer = Answer { bytes, at: 4 };
        let answer_kind = answer.number(1)? as u8;
        answer.number(2)?;
        if answer_kind == kind::LERROR {
            return Err(Errno::from_number(answer.number(4)? as u32));
        }
        if answer_kind != kind + 1 { Err(Errno::EIO) } else { Ok(answer) }
    }

    fn small(&self, message: Message) -> Result<Answer> {
        self.call(message, 4096)
    }

    fn fid(&self) -> u32 {
        self.next_fid.fetch_add(1, Ordering::Relaxed)
    }
}

/// A node of the shared folder. Each has its own fid.
pub struct NinePNode {
    client: Arc<Client>,
    fid: u32,
}

/// Connects to the server of `device` and returns its root.
///
/// # Errors
/// EIO, or the error of the server.
pub fn attach(device: &'static Device) -> Result<Arc<dyn Node>> {
    let client = Client { device, next_fid: AtomicU32::new(1) };
    let mut version = Message::new(kind::VERSION).u32(MESSAGE_BYTES).text("9P2000.L");
    version.0[5..7].copy_from_slice(&u16::MAX.to_le_bytes());
    let mut answer = client.small(version)?;
    if answer.number(4)? < MESSAGE_BYTES as u64 || answer.text()? != "9P2000.L" {
        return Err(Errno::EPROTO);
    }
    let fid = client.fid();
    client.small(Message::new(kind::ATTACH).u32(fid).u32(NO_FID).text("").text("").u32(0))?;
    Ok(Arc::new(NinePNode { client: Arc::new(client), fid }))
}

impl Drop for NinePNode {
    fn drop(&mut self) {
        // The server frees the fid even if it answers with an error.
        let _ = self.client.small(Message::new(kind::CLUNK).u32(self.fid));
    }
}

impl NinePNode {
    /// A new fid for `name` below this node, or for this node itself.
    fn walk(&self, name: Option<&str>) -> Result<NinePNode> {
        let fid = self.client.fid();
        let mut message = Message::new(kind::WALK).u32(self.fid).u32(fid).u16(name.is_some() as u16);
        if let Some(name) = name {
            message = message.text(name);
        }
        self.client.small(message)?;
        Ok(NinePNode { client: self.client.clone(), fid })
    }

    fn opened(&self, flags: u32) -> Result<NinePNode> {
        let node = self.walk(None)?;
        self.client.small(Message::new(kind::LOPEN).u32(node.fid).u32(flags))?;
        Ok(node)
    }

    fn attributes(&self, valid: u32, mode: u32, bytes: u64) -> Result<()> {
        let message = Message::new(kind::SETATTR).u32(self.fid).u32(valid).u32(mode).u32(0).u32(0).u64(bytes);
        self.client.small(message.u64(0).u64(0).u64(0).u64(0)).map(drop)
    }

    fn read_bytes(&self, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let bytes = bytes.min(MESSAGE_BYTES - OVERHEAD);
        let message = Message::new(kind::READ).u32(self.fid).u64(offset).u32(bytes);
        let mut answer = self.client.call(message, bytes + OVERHEAD)?;
        let bytes = answer.number(4)? as usize;
        Ok(answer.take(bytes)?.to_vec())
    }
}

impl Node for NinePNode {
    fn stat(&self) -> Result<Stat> {
        let mut answer = self.client.small(Message::new(kind::GETATTR).u32(self.fid).u64(0x7ff))?;
        answer.take(8 + 5)?;
        let inode = answer.number(8)?;
        let mode = answer.number(4)? as u32;
        answer.take(8 + 8 + 8)?;
        let size = answer.number(8)?;
        answer.take(8 + 8 + 16)?;
        let changed_s = answer.number(8)?;
        let kind = match mode & 0o170_000 {
            0o040_000 => Kind::Folder,
            0o120_000 => Kind::Link,
            _ => Kind::File,
        };
        Ok(Stat { kind, mode: mode & 0o7777, size, inode, device: DEVICE, changed_s })
    }

    fn open(&self, write: bool) -> Result<Option<Arc<dyn Node>>> {
        let flags = if write { 2 } else { 0 };
        Ok(Some(Arc::new(self.opened(flags)?)))
    }

    fn read(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let bytes = self.read_bytes(offset, buffer.bytes.min(u32::MAX as usize) as u32)?;
        buffer.put(0, &bytes)?;
        Ok(bytes.len())
    }

    fn write(&self, offset: u64, buffer: UserBuffer) -> Result<usize> {
        let bytes = buffer.bytes.min((MESSAGE_BYTES - OVERHEAD) as usize);
        let mut message = Message::new(kind::WRITE).u32(self.fid).u64(offset).u32(bytes as u32);
        user::append_to(&mut message.0, buffer.address, bytes)?;
        Ok(self.client.small(message)?.number(4)? as usize)
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        self.attributes(8, 0, bytes)
    }

    fn set_mode(&self, mode: u32) -> Result<()> {
        self.attributes(1, mode, 0)
    }

    fn sync(&self) -> Result<()> {
        self.client.small(Message::new(kind::FSYNC).u32(self.fid).u32(0)).map(drop)
    }

    fn lookup(&self, name: &str) -> Result<Arc<dyn Node>> {
        Ok(Arc::new(self.walk(Some(name))?))
    }

    fn create(&self, name: &str, new: Kind, mode: u32) -> Result<Arc<dyn Node>> {
        if new == Kind::Folder {
            self.client.small(Message::new(kind::MKDIR).u32(self.fid).text(name).u32(mode).u32(0))?;
            return self.lookup(name);
        }
        // LCREATE turns its fid into the open file, so the node gets a second fid.
        let opened = self.walk(None)?;
        self.client.small(Message::new(kind::LCREATE).u32(opened.fid).text(name).u32(2).u32(mode).u32(0))?;
        self.lookup(name)
    }

    fn symlink(&self, name: &str, target: &str) -> Result<()> {
        self.client.small(Message::new(kind::SYMLINK).u32(self.fid).text(name).text(target).u32(0)).map(drop)
    }

    fn remove(&self, name: &str, folder: bool) -> Result<()> {
        let flags = if folder { 0x200 } else { 0 };
        self.client.small(Message::new(kind::UNLINKAT).u32(self.fid).text(name).u32(flags)).map(drop)
    }

    fn rename(&self, name: &str, to: &dyn Node, to_name: &str) -> Result<()> {
        let to = to.as_any().and_then(|to| to.downcast_ref::<NinePNode>()).ok_or(Errno::EXDEV)?;
        let message = Message::new(kind::RENAMEAT).u32(self.fid).text(name).u32(to.fid).text(to_name);
        self.client.small(message).map(drop)
    }

    fn entries(&self) -> Result<Vec<(String, Kind)>> {
        let folder = self.opened(0)?;
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let message = Message::new(kind::READDIR).u32(folder.fid).u64(offset).u32(4000);
            let mut answer = self.client.small(message)?;
            if answer.number(4)? == 0 {
                return Ok(names);
            }
            while answer.at < answer.bytes.len() {
                answer.take(13)?;
                offset = answer.number(8)?;
                let kind = match answer.number(1)? {
                    4 => Kind::Folder,
                    10 => Kind::Link,
                    _ => Kind::File,
                };
                let name = answer.text()?;
                if name != "." && name != ".." {
                    names.push((name.to_string(), kind));
                }
            }
        }
    }

    fn link_target(&self) -> Result<String> {
        self.client.small(Message::new(kind::READLINK).u32(self.fid))?.text()
    }

    fn read_whole(&self) -> Result<Bytes> {
        let file = self.opened(0)?;
        let mut whole = Vec::new();
        loop {
            let part = file.read_bytes(whole.len() as u64, MESSAGE_BYTES)?;
            if part.is_empty() {
                return Ok(Bytes::Shared(whole.into()));
            }
            whole.extend(part);
        }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
