//! The simulated system: it implements the daemon's `System` trait with a simulated kernel and disk, and can stop at
//! any call.
//!
//! In: the daemon's calls. Out: results, and a log of the calls. From call number `stop_at` on, every call has no
//! effect and returns the error [`KILLED`], as if the process had been killed there.

use super::Random;
use super::disk::Disk;
use super::kernel::{Kernel, stream_of};
use kprof_daemon::source::Stream;
use kprof_daemon::system::{FileFacts, Open, System};
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The text of the error that every call returns after the simulated kill.
pub const KILLED: &str = "killed by the test";
/// The folder of the device files.
pub const SCHEME: &str = "/scheme/debug";

/// What happens to the call at which the system stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCall {
    /// The call has no effect.
    Nothing,
    /// If the call is a write to the disk, half of its bytes are written.
    HalfWrite,
}

/// A hook that is called when time passes, with the number of the pause.
pub type OnPause = Box<dyn FnMut(&mut Kernel, u64)>;
/// A hook that may change the bytes that a read of a stream gives.
pub type OnRead = Box<dyn FnMut(Stream, &mut [u8])>;

/// A hook that is called in each wait for a full disk or a stalled reader, in which other programs may change the disk.
pub type OnSleep = Box<dyn FnMut(&mut Disk)>;
/// A hook that is called in every call, with its number and the error that writes are to return.
pub type OnCall = Box<dyn FnMut(usize, &mut Option<io::ErrorKind>)>;

pub struct World {
    pub kernel: Kernel,
    pub disk: Disk,
    pub calls: Vec<&'static str>,
    pub stop_at: Option<usize>,
    pub last_call: LastCall,
    pub pauses: u64,
    /// The sleeps that the daemon asked for.
    pub sleeps: Vec<Duration>,
    pub on_pause: OnPause,
    pub on_read: OnRead,
    /// On average one in this many calls is interrupted; 0: none.
    pub interrupts: u64,
    pub random: Random,
    pub clock: Duration,
    /// Delays syncs until after the next acknowledgement, which makes the daemon deliberately wrong.
    pub acks_before_sync: bool,
    late_syncs: Vec<usize>,
    late_syncs_are_due: bool,
    handles: u64,
    /// Files whose mode was restricted.
    pub private: std::collections::BTreeSet<usize>,
    /// What the daemon has told the administrator.
    pub said: Vec<String>,
    /// The error that the next write to a file returns, if any.
    pub write_error: Option<io::ErrorKind>,
    /// The lock of each file. It is held as long as a clone of it exists elsewhere.
    locks: std::collections::BTreeMap<usize, Rc<()>>,
    pub receiver: Receiver,
    /// The error that opening this file returns, if any.
    pub open_error: Option<(PathBuf, io::ErrorKind)>,
    /// The error that the next write to the ctl file returns, if any.
    pub ctl_error: Option<io::ErrorKind>,
    /// Whether a read of the ctl file never comes to its end.
    pub endless_state: bool,
    /// Whether the reader of the standard output takes nothing.
    pub reader_stalls: Rc<std::cell::Cell<bool>>,
    /// The error that the next renaming returns, if any.
    pub rename_error: Option<io::ErrorKind>,
    /// Whether the standard output is a file.
    pub stdout_is_file: bool,
    /// Whether the disk says how many names a file has.
    pub counts_names: bool,
    /// If set, the kernel behaves as an unmodified Redox kernel, whose streams give these bytes.
    pub redox: Option<std::collections::BTreeMap<u32, Vec<u8>>>,
    /// The task names that this Redox kernel reports.
    pub redox_names: std::collections::BTreeMap<u64, Vec<u8>>,
    pub on_sleep: OnSleep,
    pub on_call: OnCall,
    /// When the flag is set, another program renames a file: from, to.
    pub rename_when: Option<(Rc<std::cell::Cell<bool>>, PathBuf, PathBuf)>,
    /// When the flag is set, another program copies a file and truncates it: from, to.
    pub copy_and_truncate_when: Option<(Rc<std::cell::Cell<bool>>, PathBuf, PathBuf)>,
    /// When the flag is set, all files are deleted from their folders.
    pub delete_when: Option<Rc<std::cell::Cell<bool>>>,
}

#[derive(Clone)]
pub struct Simulated(pub Rc<RefCell<World>>);

pub enum File {
    Ctl { handle: u64, offset: usize, world: Rc<RefCell<World>> },
    Stream(Stream),
    Disk { file: usize, offset: usize, lock: Option<Rc<()>> },
    Receiver,
}

/// The character device of the live stream.
#[derive(Default)]
pub struct Receiver {
    pub got: Vec<u8>,
    /// The number of bytes that it accepts in each call; 0: the call returns `WouldBlock`.
    pub takes: usize,
    /// The number of bytes that it accepts in all calls together, if there is such a limit.
    pub room: Option<usize>,
    /// How many of the next writes a signal interrupts.
    pub interrupts: u32,
    pub is_absent: bool,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Self::Ctl { handle, world, .. } = self {
            world.borrow_mut().kernel.close(*handle);
        }
    }
}

impl Simulated {
    pub fn new(kernel: Kernel, on_pause: OnPause) -> Self {
        Self(Rc::new(RefCell::new(World {
            kernel,
            disk: Disk::default(),
            calls: Vec::new(),
            stop_at: None,
            last_call: LastCall::Nothing,
            pauses: 0,
            sleeps: Vec::new(),
            on_pause,
            on_read: Box::new(|_, _| {}),
            interrupts: 0,
            random: Random(99),
            clock: Duration::ZERO,
            acks_before_sync: false,
            late_syncs: Vec::new(),
            late_syncs_are_due: false,
            handles: 0,
            private: std::collections::BTreeSet::new(),
            said: Vec::new(),
            write_error: None,
            locks: std::collections::BTreeMap::new(),
            receiver: Receiver::default(),
            open_error: None,
            ctl_error: None,
            endless_state: false,
            reader_stalls: Rc::default(),
            rename_error: None,
            stdout_is_file: false,
            counts_names: true,
            redox: None,
            redox_names: std::collections::BTreeMap::new(),
            on_sleep: Box::new(|_| {}),
            on_call: Box::new(|_, _| {}),
            rename_when: None,
            copy_and_truncate_when: None,
            delete_when: None,
        })))
    }

    /// Counts a call. Returns an error if the call must not take effect.
    fn call(&self, name: &'static str) -> io::Result<()> {
        let world = &mut *self.0.borrow_mut();
        let late = world.late_syncs_are_due.then_some("late sync");
        for name in late.into_iter().chain([name]) {
            if world.stop_at.is_some_and(|stop| world.calls.len() >= stop) {
                return Err(io::Error::other(KILLED));
            }
            world.calls.push(name);
            if std::mem::take(&mut world.late_syncs_are_due) {
                std::mem::take(&mut world.late_syncs).into_iter().for_each(|file| world.disk.sync(file));
            }
        }
        (world.on_call)(world.calls.len(), &mut world.write_error);
        if let Some((when, from, to)) = &world.rename_when
            && when.take()
        {
            let file = world.disk.names.remove(from).expect("the file is there");
            world.disk.names.insert(to.clone(), file);
        }
        if let Some((when, from, to)) = &world.copy_and_truncate_when
            && when.take()
        {
            let (file, copy) = (world.disk.open(from), world.disk.open(to));
            let bytes = world.disk.contents[file].now.clone();
            world.disk.write(copy, 0, &bytes);
            world.disk.truncate(file, 0);
        }
        if world.delete_when.as_ref().is_some_and(|when| when.get()) {
            world.disk.names.clear();
        }
        if world.random.once_in(world.interrupts) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    fn pause(&self, time: Duration) {
        let world = &mut *self.0.borrow_mut();
        world.clock += time;
        world.pauses += 1;
        (world.on_pause)(&mut world.kernel, world.pauses);
    }

    pub fn file(&self, path: &str) -> Vec<u8> {
        self.0.borrow().disk.bytes(Path::new(path)).to_vec()
    }
}

impl System for Simulated {
    type File = File;

    fn open(&mut self, path: &Path, how: Open) -> io::Result<File> {
        self.call("open")?;
        let mut world = self.0.borrow_mut();
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
                let handle = world.handles;
                return Ok(File::Ctl { handle, offset: 0, world: Rc::clone(&self.0) });
            }
            let stream = device.strip_prefix("profiling-").expect("a stream's name");
            let stream = stream_of(stream);
            let exists = match stream {
                Stream::Cpu(cpu) if world.redox.is_some() => {
                    world.redox.as_ref().is_some_and(|it| it.contains_key(&cpu))
                }
                Stream::Cpu(cpu) => world.kernel.rings.contains_key(&cpu),
                Stream::Event(cpu) => world.kernel.events.contains_key(&cpu),
                Stream::Meta => true,
            };
            return if exists { Ok(File::Stream(stream)) } else { Err(io::ErrorKind::NotFound.into()) };
        }
        if how == Open::StreamDevice {
            return if world.receiver.is_absent { Err(io::ErrorKind::NotFound.into()) } else { Ok(File::Receiver) };
        }
        if !matches!(how, Open::SampleFile | Open::NextFile) && !world.disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(File::Disk { file: world.disk.open(path), offset: 0, lock: None })
    }

    fn stdout(&mut self) -> io::Result<File> {
        self.open(&PathBuf::from("/stdout"), Open::SampleFile)
    }

    fn read(&mut self, file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        self.call("read")?;
        let world = &mut *self.0.borrow_mut();
        match file {
            // Redox returns EBADF here.
            File::Ctl { .. } if world.redox.is_some() => Err(io::Error::from_raw_os_error(9)),
            File::Stream(Stream::Cpu(cpu)) if world.redox.is_some() => {
                let bytes = world.redox.as_mut().and_then(|streams| streams.get_mut(cpu)).expect("an open stream");
                assert!(buffer.len().is_multiple_of(8), "a read of {} bytes shifts the stream", buffer.len());
                let count = (world.random.below(4000) as usize * 8).min(buffer.len()).min(bytes.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                bytes.drain(..count);
                Ok(count)
            }
            File::Ctl { .. } if world.endless_state => {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
            File::Ctl { offset, handle, .. } => {
                let text = world.kernel.text(*handle);
                let rest = &text.as_bytes()[*offset..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                *offset += count;
                Ok(count)
            }
            File::Stream(stream) => {
                let count = world.kernel.read(*stream, buffer)?;
                (world.on_read)(*stream, &mut buffer[..count]);
                Ok(count)
            }
            File::Receiver => Err(io::ErrorKind::PermissionDenied.into()),
            File::Disk { file, offset, .. } => {
                let rest = &world.disk.contents[*file].now[*offset..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                *offset += count;
                Ok(count)
            }
        }
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        let killed = self.call(if matches!(file, File::Disk { .. }) { "write" } else { "ctl" });
        if let (Err(error), File::Disk { file, offset, .. }) = (&killed, &mut *file) {
            let mut world = self.0.borrow_mut();
            let is_the_last = world.stop_at == Some(world.calls.len()) && world.last_call == LastCall::HalfWrite;
            if is_the_last && error.to_string() == KILLED {
                world.last_call = LastCall::Nothing;
                world.disk.write(*file, *offset, &bytes[..bytes.len() / 2]);
            }
        }
        killed?;
        match file {
            File::Ctl { handle, .. } => {
                let handle = *handle;
                if let Some(kind) = self.0.borrow_mut().ctl_error.take() {
                    return Err(kind.into());
                }
                if self.0.borrow().redox.is_some() {
                    self.0.borrow_mut().kernel.commands.push(String::from_utf8_lossy(bytes).into_owned());
                    let is_known = matches!(bytes[0], b'0' | b'1');
                    return if is_known { Ok(1) } else { Err(io::ErrorKind::InvalidInput.into()) };
                }
                let waited = {
                    let world = &mut *self.0.borrow_mut();
                    world.late_syncs_are_due = bytes.starts_with(b"ack") && !world.late_syncs.is_empty();
                    world.kernel.control(handle, bytes)?
                };
                if let Some(ms) = waited {
                    self.pause(Duration::from_millis(ms));
                }
                Ok(bytes.len())
            }
            File::Stream(_) => Err(io::ErrorKind::PermissionDenied.into()),
            File::Receiver => {
                let receiver = &mut self.0.borrow_mut().receiver;
                if receiver.is_absent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                if receiver.interrupts > 0 {
                    receiver.interrupts -= 1;
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let count = receiver.takes.min(bytes.len()).min(receiver.room.unwrap_or(usize::MAX));
                receiver.room = receiver.room.map(|room| room - count);
                receiver.got.extend_from_slice(&bytes[..count]);
                if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
            }
            File::Disk { file, offset, .. } => {
                let world = &mut *self.0.borrow_mut();
                if let Some(kind) = world.write_error {
                    return Err(kind.into());
                }
                let count = world.disk.write(*file, *offset, bytes);
                *offset += count;
                if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
            }
        }
    }

    fn seek(&mut self, file: &mut File, to: u64) -> io::Result<()> {
        self.call("seek")?;
        match file {
            File::Ctl { offset, .. } | File::Disk { offset, .. } => *offset = to as usize,
            File::Stream(_) | File::Receiver => return Err(io::ErrorKind::NotSeekable.into()),
        }
        Ok(())
    }

    fn truncate(&mut self, file: &mut File, bytes: u64) -> io::Result<()> {
        self.call("truncate")?;
        let File::Disk { file, .. } = file else { return Err(io::ErrorKind::InvalidInput.into()) };
        self.0.borrow_mut().disk.truncate(*file, bytes as usize);
        Ok(())
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        self.call("sync")?;
        let File::Disk { file, .. } = file else { return Err(io::ErrorKind::InvalidInput.into()) };
        let world = &mut *self.0.borrow_mut();
        if world.acks_before_sync {
            world.late_syncs.push(*file);
        } else {
            world.disk.sync(*file);
        }
        Ok(())
    }

    fn sync_folder(&mut self, _path: &Path) -> io::Result<()> {
        self.call("sync folder")?;
        self.0.borrow_mut().disk.sync_names();
        Ok(())
    }

    fn facts_of(&mut self, file: &mut File) -> io::Result<Option<FileFacts>> {
        self.call("facts")?;
        let file = match file {
            File::Disk { file, .. } => file,
            File::Receiver => return Ok(Some(FileFacts { is_regular: false, names: 1, bytes: 0 })),
            File::Ctl { .. } | File::Stream(_) => return Ok(None),
        };
        let world = self.0.borrow();
        let names = world.disk.names.values().filter(|named| *named == file).count() as u64;
        let names = if world.counts_names { names } else { 0 };
        let is_stdout = world.disk.names.get(Path::new("/stdout")) == Some(file);
        let bytes = world.disk.contents[*file].now.len() as u64;
        Ok(Some(FileFacts { is_regular: !is_stdout || world.stdout_is_file, names, bytes }))
    }

    fn wait_writable(&mut self, file: &mut File, limit: Duration) -> io::Result<bool> {
        self.call("poll")?;
        let File::Disk { .. } = file else { return Err(io::ErrorKind::InvalidInput.into()) };
        let world = &mut *self.0.borrow_mut();
        if !world.reader_stalls.get() {
            return Ok(true);
        }
        world.clock += limit;
        (world.on_sleep)(&mut world.disk);
        Ok(false)
    }

    fn lock(&mut self, file: &mut File) -> io::Result<()> {
        self.call("lock")?;
        let File::Disk { file, lock, .. } = file else { return Ok(()) };
        let locks = &mut self.0.borrow_mut().locks;
        let holder = locks.entry(*file).or_default();
        if Rc::strong_count(holder) > 1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        *lock = Some(Rc::clone(holder));
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename")?;
        if let Some(kind) = self.0.borrow_mut().rename_error.take() {
            return Err(kind.into());
        }
        let names = &mut self.0.borrow_mut().disk.names;
        let file = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.insert(to.into(), file);
        Ok(())
    }

    fn sleep(&mut self, time: Duration) -> io::Result<()> {
        self.call("sleep")?;
        self.0.borrow_mut().sleeps.push(time);
        if time >= Duration::from_millis(100) {
            let world = &mut *self.0.borrow_mut();
            (world.on_sleep)(&mut world.disk);
        }
        // A sleep before a `wait` command is part of the same pause, so it does not bring ticks of its own.
        let is_rest = {
            let world = self.0.borrow();
            world.kernel.running && !world.kernel.nasty.cannot_wait && world.redox.is_none()
        };
        if is_rest {
            self.0.borrow_mut().clock += time;
        } else {
            self.pause(time);
        }
        Ok(())
    }

    fn make_private(&mut self, file: &mut File) -> io::Result<()> {
        self.call("chmod")?;
        let File::Disk { file, .. } = file else { return Err(io::ErrorKind::InvalidInput.into()) };
        self.0.borrow_mut().private.insert(*file);
        Ok(())
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.borrow_mut().said.push(line.to_string());
    }

    fn now(&mut self) -> Duration {
        self.0.borrow().clock
    }

    fn redox_task_name(&mut self, _stream: &mut Self::File, task: u64) -> Option<Vec<u8>> {
        self.0.borrow().redox_names.get(&task).cloned()
    }
}
