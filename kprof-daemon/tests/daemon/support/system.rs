//! The simulated system: it implements the daemon's `System` trait with a simulated kernel and disk, and can stop at
//! any call.
//!
//! In: the daemon's calls. Out: results, and a log of the calls. From call number `stop_at` on, every call has no
//! effect and returns the error [`KILLED`], as if the process had been killed there. What a test can set is in `world`,
//! what opens, reads and writes do is in `file`.

mod file;
pub mod world;

use super::kernel::Kernel;
use file::File;
use kprof_daemon::system::{FileFacts, Open, System};
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use world::{OnPause, World};

/// The text of the error that every call returns after the simulated kill.
pub const KILLED: &str = "killed by the test";
/// The folder of the device files.
pub const SCHEME: &str = "/scheme/debug";

#[derive(Clone)]
pub struct Simulated(pub Rc<RefCell<World>>);

impl Simulated {
    pub fn new(kernel: Kernel, on_pause: OnPause) -> Self {
        Self(Rc::new(RefCell::new(World::new(kernel, on_pause))))
    }

    /// Counts a call. Returns an error if the call must not take effect.
    fn call(&self, name: &'static str) -> io::Result<()> {
        self.0.borrow_mut().call(name)
    }

    pub fn file(&self, path: &str) -> Vec<u8> {
        self.0.borrow().disk.bytes(Path::new(path)).to_vec()
    }
}

impl System for Simulated {
    type File = File;

    fn open(&mut self, path: &Path, how: Open) -> io::Result<File> {
        self.call("open")?;
        File::open(&self.0, path, how)
    }

    fn stdout(&mut self) -> io::Result<File> {
        self.open(&PathBuf::from("/stdout"), Open::SampleFile)
    }

    fn read(&mut self, file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        self.call("read")?;
        file.read(&mut self.0.borrow_mut(), buffer)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        let world = &mut *self.0.borrow_mut();
        world
            .call(if matches!(file, File::Disk { .. }) { "write" } else { "ctl" })
            .inspect_err(|error| file.write_killed(world, bytes, error))?;
        file.write(world, bytes)
    }

    fn seek(&mut self, file: &mut File, to: u64) -> io::Result<()> {
        self.call("seek")?;
        match file {
            File::Ctl { offset, .. } | File::Disk { offset, .. } => *offset = to as usize,
            File::Stream(_) => return Err(io::ErrorKind::NotSeekable.into()),
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
        self.0.borrow_mut().sync(*file);
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
        let world = &mut *self.0.borrow_mut();
        world.sleeps.push(time);
        if time >= Duration::from_millis(100) {
            (world.on_sleep)(&mut world.disk);
        }
        // A sleep before a `wait` command is part of the same pause, so it does not bring ticks of its own.
        if world.kernel.running && !world.kernel.nasty.cannot_wait && world.redox.is_none() {
            world.clock += time;
        } else {
            world.pause(time);
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
