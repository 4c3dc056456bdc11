//! The state of the simulated system: kernel, disk, clock, and the conditions that a test sets.
//!
//! In: the number and name of each call; time that passes. Out: whether the call takes effect, and what other programs
//! do meanwhile. From call number `stop_at` on, no call takes effect. Must never do what a call of the daemon does:
//! that is in `file`, and in the `System` of [`Simulated`](super::Simulated).

use super::KILLED;
use crate::support::Random;
use crate::support::disk::Disk;
use crate::support::kernel::Kernel;
use kprof_daemon::source::Stream;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

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
    /// How many ticks pass while a file is synced, as on a busy machine.
    pub ticks_in_sync: u64,
    /// Delays syncs until after the next acknowledgement, which makes the daemon deliberately wrong.
    pub acks_before_sync: bool,
    late_syncs: Vec<usize>,
    late_syncs_are_due: bool,
    /// How many times ctl was opened.
    pub handles: u64,
    /// Files whose mode was restricted.
    pub private: BTreeSet<usize>,
    /// What the daemon has told the administrator.
    pub said: Vec<String>,
    /// The error that the next write to a file returns, if any.
    pub write_error: Option<io::ErrorKind>,
    /// The lock of each file. It is held as long as a clone of it exists elsewhere.
    pub locks: BTreeMap<usize, Rc<()>>,
    /// The error that opening this file returns, if any.
    pub open_error: Option<(PathBuf, io::ErrorKind)>,
    /// The error that the next write to the ctl file returns, if any.
    pub ctl_error: Option<io::ErrorKind>,
    /// Whether a read of the ctl file never comes to its end.
    pub endless_state: bool,
    /// Whether the reader of the standard output takes nothing.
    pub reader_stalls: Rc<Cell<bool>>,
    /// The error that the next renaming returns, if any.
    pub rename_error: Option<io::ErrorKind>,
    /// Whether the standard output is a file.
    pub stdout_is_file: bool,
    /// Whether the disk says how many names a file has.
    pub counts_names: bool,
    /// If set, the kernel behaves as an unmodified Redox kernel, whose streams give these bytes.
    pub redox: Option<BTreeMap<u32, Vec<u8>>>,
    /// The task names that this Redox kernel reports.
    pub redox_names: BTreeMap<u64, Vec<u8>>,
    pub on_sleep: OnSleep,
    pub on_call: OnCall,
    /// When the flag is set, another program renames a file: from, to.
    pub rename_when: Option<(Rc<Cell<bool>>, PathBuf, PathBuf)>,
    /// When the flag is set, another program copies a file and truncates it: from, to.
    pub copy_and_truncate_when: Option<(Rc<Cell<bool>>, PathBuf, PathBuf)>,
    /// When the flag is set, all files are deleted from their folders.
    pub delete_when: Option<Rc<Cell<bool>>>,
}

impl World {
    pub fn new(kernel: Kernel, on_pause: OnPause) -> Self {
        Self {
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
            ticks_in_sync: 0,
            acks_before_sync: false,
            late_syncs: Vec::new(),
            late_syncs_are_due: false,
            handles: 0,
            private: BTreeSet::new(),
            said: Vec::new(),
            write_error: None,
            locks: BTreeMap::new(),
            open_error: None,
            ctl_error: None,
            endless_state: false,
            reader_stalls: Rc::default(),
            rename_error: None,
            stdout_is_file: false,
            counts_names: true,
            redox: None,
            redox_names: BTreeMap::new(),
            on_sleep: Box::new(|_| {}),
            on_call: Box::new(|_, _| {}),
            rename_when: None,
            copy_and_truncate_when: None,
            delete_when: None,
        }
    }

    /// Counts a call. Returns an error if the call must not take effect.
    pub fn call(&mut self, name: &'static str) -> io::Result<()> {
        let late = self.late_syncs_are_due.then_some("late sync");
        for name in late.into_iter().chain([name]) {
            if self.stop_at.is_some_and(|stop| self.calls.len() >= stop) {
                return Err(io::Error::other(KILLED));
            }
            self.calls.push(name);
            if std::mem::take(&mut self.late_syncs_are_due) {
                std::mem::take(&mut self.late_syncs).into_iter().for_each(|file| self.disk.sync(file));
            }
        }
        (self.on_call)(self.calls.len(), &mut self.write_error);
        self.let_others_act();
        if self.random.once_in(self.interrupts) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    /// What other programs do to the disk while the daemon is in a call.
    fn let_others_act(&mut self) {
        if let Some((when, from, to)) = &self.rename_when
            && when.take()
        {
            let file = self.disk.names.remove(from).expect("the file is there");
            self.disk.names.insert(to.clone(), file);
        }
        if let Some((when, from, to)) = &self.copy_and_truncate_when
            && when.take()
        {
            let (file, copy) = (self.disk.open(from), self.disk.open(to));
            let bytes = self.disk.contents[file].now.clone();
            self.disk.write(copy, 0, &bytes);
            self.disk.truncate(file, 0);
        }
        if self.delete_when.as_ref().is_some_and(|when| when.get()) {
            self.disk.names.clear();
        }
    }

    /// Whether the kernel has this stream.
    pub fn has_stream(&self, stream: Stream) -> bool {
        match (stream, &self.redox) {
            (Stream::Cpu(cpu), Some(redox)) => redox.contains_key(&cpu),
            (Stream::Cpu(cpu), None) => self.kernel.rings.contains_key(&cpu),
            (Stream::Event(cpu), _) => self.kernel.events.contains_key(&cpu),
            (Stream::Meta, _) => true,
        }
    }

    /// Syncs a file, or remembers to do it after the next acknowledgement.
    pub fn sync(&mut self, file: usize) {
        if self.acks_before_sync {
            self.late_syncs.push(file);
        } else {
            self.disk.sync(file);
        }
        let ticks = if self.kernel.running { self.ticks_in_sync } else { 0 };
        (0..ticks).for_each(|_| self.kernel.tick_without_names());
    }

    /// A write to ctl of the simulated kernel. Its `wait` lets time pass.
    pub fn control(&mut self, handle: u64, bytes: &[u8]) -> io::Result<()> {
        self.late_syncs_are_due = bytes.starts_with(b"ack") && !self.late_syncs.is_empty();
        if let Some(ms) = self.kernel.control(handle, bytes)? {
            self.pause(Duration::from_millis(ms));
        }
        Ok(())
    }

    /// Lets time pass.
    pub fn pause(&mut self, time: Duration) {
        self.clock += time;
        self.pauses += 1;
        (self.on_pause)(&mut self.kernel, self.pauses);
    }
}
