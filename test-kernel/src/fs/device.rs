//! Devices: console, zero, null, full, random; and the folders that contain them.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::{Kind, Node, Stat, UserBuffer, serial};
use crate::errno::{Errno, Result};
use crate::memory::user;
use crate::{log, profiling, random};

/// The metadata of a character device.
pub fn device_stat(inode: u64) -> Stat {
    Stat { kind: Kind::Device, mode: 0o666, size: 0, inode, device: 3, changed_s: 0 }
}

/// The serial console: writes go to the log, and reads return nothing.
struct Console;

impl Node for Console {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(1))
    }

    fn read(&self, _offset: u64, _buffer: UserBuffer) -> Result<usize> {
        Ok(0)
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let bytes = buffer.bytes.min(4096);
        log::bytes(&user::read_vec(buffer.address, bytes)?);
        Ok(bytes)
    }
}

/// The console node.
pub fn console() -> Arc<dyn Node> {
    Arc::new(Console)
}

/// A device that reads as zeros and accepts every write.
struct Zero;

impl Node for Zero {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(2))
    }

    #[inline(never)]
    fn read(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        user::zero(buffer.address, buffer.bytes as u64)?;
        Ok(buffer.bytes)
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        Ok(buffer.bytes)
    }
}

/// A device that reads as empty and accepts every write.
struct Null;

impl Node for Null {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(3))
    }

    fn read(&self, _offset: u64, _buffer: UserBuffer) -> Result<usize> {
        Ok(0)
    }

    #[inline(never)]
    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        profiling::null_written(buffer.bytes);
        Ok(buffer.bytes)
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// A device on which every write fails, as on a full disk.
struct Full;

impl Node for Full {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(4))
    }

    fn read(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        Zero.read(0, buffer)
    }

    fn write(&self, _offset: u64, _buffer: UserBuffer) -> Result<usize> {
        Err(Errno::ENOSPC)
    }
}

/// Random bytes.
struct Random;

impl Node for Random {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(5))
    }

    fn read(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let mut done = 0;
        while done < buffer.bytes {
            let bytes = random::bytes16();
            let chunk = bytes.len().min(buffer.bytes - done);
            buffer.put(done, &bytes[..chunk])?;
            done += chunk;
        }
        Ok(done)
    }
}

/// A folder whose names never change.
pub struct FixedFolder {
    names: BTreeMap<String, Arc<dyn Node>>,
}

impl FixedFolder {
    /// A folder with these names.
    pub fn new(names: Vec<(String, Arc<dyn Node>)>) -> Arc<Self> {
        Arc::new(Self { names: names.into_iter().collect() })
    }
}

impl Node for FixedFolder {
    fn stat(&self) -> Result<Stat> {
        let inode = core::ptr::from_ref(self) as u64;
        Ok(Stat { kind: Kind::Folder, mode: 0o555, size: 0, inode, device: 3, changed_s: 0 })
    }

    fn lookup(&self, name: &str) -> Result<Arc<dyn Node>> {
        self.names.get(name).cloned().ok_or(Errno::ENOENT)
    }

    fn entries(&self) -> Result<Vec<(String, Kind)>> {
        self.names.iter().map(|(name, node)| Ok((name.clone(), node.stat()?.kind))).collect()
    }
}

/// The contents of `/dev`.
pub fn dev_folder() -> Arc<dyn Node> {
    let mut nodes: Vec<(&str, Arc<dyn Node>)> = vec![
        ("console", console()),
        ("tty", console()),
        ("zero", Arc::new(Zero)),
        ("null", Arc::new(Null)),
        ("full", Arc::new(Full)),
        ("random", Arc::new(Random)),
        ("urandom", Arc::new(Random)),
    ];
    if let Some(port) = serial::second() {
        nodes.push(("ttyS1", Arc::new(port)));
    }
    folder(&nodes)
}

/// The contents of `/scheme`, under Redox's names; `debug` holds the profiler's devices.
pub fn scheme_folder(debug: Arc<dyn Node>) -> Arc<dyn Node> {
    folder(&[
        ("zero", Arc::new(Zero)),
        ("null", Arc::new(Null)),
        ("full", Arc::new(Full)),
        ("rand", Arc::new(Random)),
        ("debug", debug),
    ])
}

fn folder(names: &[(&str, Arc<dyn Node>)]) -> Arc<dyn Node> {
    FixedFolder::new(names.iter().map(|(name, node)| (name.to_string(), node.clone())).collect())
}
