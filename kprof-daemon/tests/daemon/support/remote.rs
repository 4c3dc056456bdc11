//! The simulated kernel, served through a socket, so that the daemon can be a real process that is killed.
//!
//! ```text
//! test process: Kernel ◄─ server ─ socket ─ Remote ─► daemon process ─► real files
//! ```
//!
//! In: requests `op, handle, number, length, bytes`. Out: `status, length, bytes`. Only the device files go through the
//! socket; everything else is the real system. If the daemon process ends, also by SIGKILL, its socket closes. Then the
//! simulated kernel closes all handles that were opened through it, as a real kernel would.

use super::kernel::{Kernel, stream_of};
use kprof_daemon::system::host::Host;
use kprof_daemon::system::{FileFacts, Open, System};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of requests that were answered, for all daemons together.
pub static SERVED: AtomicU64 = AtomicU64::new(0);

const OPEN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 3;
const KINDS: [io::ErrorKind; 4] =
    [io::ErrorKind::Other, io::ErrorKind::NotFound, io::ErrorKind::ResourceBusy, io::ErrorKind::InvalidInput];

/// The system of the daemon process: device files through the socket, everything else real.
pub struct Remote {
    host: Host,
    socket: UnixStream,
}

pub enum File {
    Device { handle: u32, offset: u64 },
    Real(std::fs::File),
}

impl Remote {
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self { host: Host::default(), socket: UnixStream::connect(socket)? })
    }

    fn ask(&mut self, op: u32, handle: u32, number: u64, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        request.extend_from_slice(&op.to_le_bytes());
        request.extend_from_slice(&handle.to_le_bytes());
        request.extend_from_slice(&number.to_le_bytes());
        request.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        request.extend_from_slice(bytes);
        self.socket.write_all(&request)?;
        let mut head = [0; 16];
        self.socket.read_exact(&mut head)?;
        let [status, length] = [0, 8].map(|at| u64::from_le_bytes(*head[at..].first_chunk().expect("8 bytes")));
        let mut answer = vec![0; length as usize];
        self.socket.read_exact(&mut answer)?;
        match status {
            0 => Ok(answer),
            error => Err(KINDS[error as usize - 1].into()),
        }
    }
}

impl System for Remote {
    type File = File;

    fn open(&mut self, path: &Path, how: Open) -> io::Result<File> {
        let Ok(device) = path.strip_prefix(super::system::SCHEME) else {
            return self.host.open(path, how).map(File::Real);
        };
        let handle = self.ask(OPEN, 0, 0, device.to_str().expect("a device name").as_bytes())?;
        Ok(File::Device { handle: u32::from_le_bytes(*handle.first_chunk().expect("a handle")), offset: 0 })
    }

    fn stdout(&mut self) -> io::Result<File> {
        self.host.stdout().map(File::Real)
    }

    fn read(&mut self, file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        match file {
            File::Real(file) => self.host.read(file, buffer),
            File::Device { handle, offset } => {
                let most = (*offset << 32) | buffer.len() as u64;
                let bytes = self.ask(READ, *handle, most, &[])?;
                buffer[..bytes.len()].copy_from_slice(&bytes);
                *offset += bytes.len() as u64;
                Ok(bytes.len())
            }
        }
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        match file {
            File::Real(file) => self.host.write(file, bytes),
            File::Device { handle, .. } => self.ask(WRITE, *handle, 0, bytes).map(|_| bytes.len()),
        }
    }

    fn seek(&mut self, file: &mut File, to: u64) -> io::Result<()> {
        match file {
            File::Real(file) => self.host.seek(file, to),
            File::Device { offset, .. } => {
                *offset = to;
                Ok(())
            }
        }
    }

    fn truncate(&mut self, file: &mut File, bytes: u64) -> io::Result<()> {
        self.host.truncate(real(file)?, bytes)
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        self.host.sync(real(file)?)
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        self.host.sync_folder(path)
    }

    fn facts_of(&mut self, file: &mut File) -> io::Result<Option<FileFacts>> {
        self.host.facts_of(real(file)?)
    }

    fn wait_writable(&mut self, file: &mut File, limit: Duration) -> io::Result<bool> {
        self.host.wait_writable(real(file)?, limit)
    }

    fn lock(&mut self, file: &mut File) -> io::Result<()> {
        self.host.lock(real(file)?)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.host.rename(from, to)
    }

    fn sleep(&mut self, time: Duration) -> io::Result<()> {
        self.host.sleep(time)
    }

    fn make_private(&mut self, file: &mut File) -> io::Result<()> {
        self.host.make_private(real(file)?)
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        self.host.say(line);
    }

    fn now(&mut self) -> Duration {
        self.host.now()
    }
}

fn real(file: &mut File) -> io::Result<&mut std::fs::File> {
    match file {
        File::Real(file) => Ok(file),
        File::Device { .. } => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Serves one connection after the other. Ticks come in each `wait`.
pub fn serve(listener: &UnixListener, kernel: &Arc<Mutex<Kernel>>) {
    let mut handles = 0;
    for socket in listener.incoming() {
        let mut socket = socket.expect("a connection");
        let mut open = BTreeMap::new();
        // The connection ends when the daemon is killed, possibly in the middle of a request.
        while answer(&mut socket, kernel, &mut open, &mut handles).is_ok() {
            SERVED.fetch_add(1, Ordering::Relaxed);
        }
        let mut kernel = kernel.lock().expect("not poisoned");
        open.keys().for_each(|handle| kernel.close(u64::from(*handle)));
    }
}

fn answer(
    socket: &mut UnixStream,
    kernel: &Arc<Mutex<Kernel>>,
    open: &mut BTreeMap<u32, String>,
    handles: &mut u32,
) -> io::Result<()> {
    let mut head = [0; 24];
    socket.read_exact(&mut head)?;
    let short = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("4 bytes"));
    let long = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("8 bytes"));
    let (op, handle, number) = (short(0), short(4), long(8));
    let mut bytes = vec![0; long(16) as usize];
    socket.read_exact(&mut bytes)?;
    let result = {
        let mut kernel = kernel.lock().expect("not poisoned");
        match op {
            OPEN => {
                *handles += 1;
                open.insert(*handles, String::from_utf8(bytes).expect("a name"));
                Ok(handles.to_le_bytes().to_vec())
            }
            READ => read(&mut kernel, &open[&handle], number),
            _ => kernel.control(u64::from(handle), &bytes).map(|waited| {
                for _ in 0..waited.map_or(0, |_| kernel.random.below(24)) {
                    kernel.tick();
                }
                Vec::new()
            }),
        }
    };
    let (status, bytes) = match result {
        Ok(bytes) => (0, bytes),
        Err(error) => (KINDS.iter().position(|kind| *kind == error.kind()).unwrap_or(0) as u64 + 1, Vec::new()),
    };
    let head = [status.to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat();
    socket.write_all(&[head, bytes].concat())
}

fn read(kernel: &mut Kernel, name: &str, number: u64) -> io::Result<Vec<u8>> {
    let (offset, most) = ((number >> 32) as usize, number as u32 as usize);
    if name == "ctl-profiling" {
        let text = kernel.text(0);
        let rest = text.as_bytes().get(offset..).unwrap_or(&[]);
        return Ok(rest[..rest.len().min(most)].to_vec());
    }
    let stream = stream_of(name.strip_prefix("profiling-").expect("a stream"));
    let mut buffer = vec![0; most];
    let count = kernel.read(stream, &mut buffer)?;
    buffer.truncate(count);
    Ok(buffer)
}
