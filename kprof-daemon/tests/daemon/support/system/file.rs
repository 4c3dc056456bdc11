//! The files that the daemon can open on the simulated system: ctl, streams, files of the disk.
//!
//! In: opens, reads and writes whose call has taken effect. Out: bytes and errors, as those of a real kernel and disk.
//! Must never count a call: that is in `world`.

use super::world::{LastCall, World};
use super::{KILLED, SCHEME};
use crate::support::kernel::stream_of;
use kprof_daemon::source::Stream;
use kprof_daemon::system::Open;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

pub enum File {
    Ctl { handle: u64, offset: usize, world: Rc<RefCell<World>> },
    Stream(Stream),
    Disk { file: usize, offset: usize, lock: Option<Rc<()>> },
}

impl Drop for File {
    fn drop(&mut self) {
        if let Self::Ctl { handle, world, .. } = self {
            world.borrow_mut().kernel.close(*handle);
        }
    }
}

impl File {
    pub fn open(shared: &Rc<RefCell<World>>, path: &Path, how: Open) -> io::Result<Self> {
        let mut world = shared.borrow_mut();
        if let Some((_, kind)) = world.open_error.as_ref().filter(|(fails, _)| fails == path) {
            return Err((*kind).into());
        }
        if let Ok(device) = path.strip_prefix(SCHEME) {
            if world.kernel.is_gone {
                return Err(io::ErrorKind::NotFound.into());
            }
            let device = device.to_str().expect("a device name");
            if device == "ctl-profiling" {
                world.handles += 1;
                return Ok(Self::Ctl { handle: world.handles, offset: 0, world: Rc::clone(shared) });
            }
            let stream = stream_of(device.strip_prefix("profiling-").expect("a stream's name"));
            return if world.has_stream(stream) {
                Ok(Self::Stream(stream))
            } else {
                Err(io::ErrorKind::NotFound.into())
            };
        }
        if !matches!(how, Open::SampleFile | Open::NextFile) && !world.disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self::Disk { file: world.disk.open(path), offset: 0, lock: None })
    }

    pub fn read(&mut self, world: &mut World, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            // Redox returns EBADF here.
            Self::Ctl { .. } if world.redox.is_some() => Err(io::Error::from_raw_os_error(9)),
            Self::Stream(Stream::Cpu(cpu)) if world.redox.is_some() => {
                let bytes = world.redox.as_mut().and_then(|streams| streams.get_mut(cpu)).expect("an open stream");
                assert!(buffer.len().is_multiple_of(8), "a read of {} bytes shifts the stream", buffer.len());
                let limit = world.random.below(4000) as usize * 8;
                let count = copied(&bytes[..limit.min(bytes.len())], buffer);
                bytes.drain(..count);
                Ok(count)
            }
            Self::Ctl { .. } if world.endless_state => {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
            Self::Ctl { offset, handle, .. } => {
                let text = world.kernel.text(*handle);
                let count = copied(&text.as_bytes()[*offset..], buffer);
                *offset += count;
                Ok(count)
            }
            Self::Stream(stream) => {
                let count = world.kernel.read(*stream, buffer)?;
                (world.on_read)(*stream, &mut buffer[..count]);
                Ok(count)
            }
            Self::Disk { file, offset, .. } => {
                let count = copied(&world.disk.contents[*file].now[*offset..], buffer);
                *offset += count;
                Ok(count)
            }
        }
    }

    pub fn write(&mut self, world: &mut World, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Ctl { handle, .. } => {
                if let Some(kind) = world.ctl_error.take() {
                    return Err(kind.into());
                }
                if world.redox.is_some() {
                    world.kernel.commands.push(String::from_utf8_lossy(bytes).into_owned());
                    let is_known = matches!(bytes[0], b'0' | b'1');
                    return if is_known { Ok(1) } else { Err(io::ErrorKind::InvalidInput.into()) };
                }
                world.control(*handle, bytes).map(|()| bytes.len())
            }
            Self::Stream(_) => Err(io::ErrorKind::PermissionDenied.into()),
            Self::Disk { file, offset, .. } => {
                if let Some(kind) = world.write_error {
                    return Err(kind.into());
                }
                let count = world.disk.write(*file, *offset, bytes);
                *offset += count;
                if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
            }
        }
    }

    /// What a write leaves that the simulated kill has stopped: nothing, or half of its bytes.
    pub fn write_killed(&self, world: &mut World, bytes: &[u8], error: &io::Error) {
        let Self::Disk { file, offset, .. } = self else { return };
        let is_the_last = world.stop_at == Some(world.calls.len()) && world.last_call == LastCall::HalfWrite;
        if is_the_last && error.to_string() == KILLED {
            world.last_call = LastCall::Nothing;
            world.disk.write(*file, *offset, &bytes[..bytes.len() / 2]);
        }
    }
}

/// Copies as much as fits, and returns how much that is.
fn copied(from: &[u8], buffer: &mut [u8]) -> usize {
    let count = from.len().min(buffer.len());
    buffer[..count].copy_from_slice(&from[..count]);
    count
}
