//! kprof's device files: `ctl-profiling`, `profiling-N`, `profiling-meta` in one folder.
//!
//! In: the folder (`/scheme/debug`). Out: framed records. Until they are acknowledged, the next reader gets them again.
//! Runs in: user process. Opening claims the streams, and a second claim is refused; closing releases the claim. A
//! second process can read copies beside the claim. While sampling is stopped the streams are empty.

use super::{Access, Layout, Source, Stream, Waited};
use crate::ctl::Ctl;
use crate::error::Error;
use crate::system::{self, Open, System, again};
use kprof_format::command::Command;
use kprof_format::fact::Fact;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest state that is read: 1024 CPUs need about a tenth of it.
const MAX_STATE_BYTES: usize = 16 * 1024 * 1024;

/// An open and claimed set of device files.
pub struct KprofDevice<S: System> {
    folder: PathBuf,
    ctl_path: PathBuf,
    ctl: S::File,
    streams: BTreeMap<Stream, S::File>,
    access: Access,
    can_wait: bool,
    text: Vec<u8>,
}

impl<S: System> KprofDevice<S> {
    /// Opens `ctl-profiling` in `folder` and claims the streams.
    ///
    /// # Errors
    /// [`Error::SourceMissing`] if there is no such file, [`Error::Busy`] if another reader has the claim,
    /// [`Error::NotKprof`] if the kernel's profiler is Redox's own.
    pub fn open(system: &mut S, folder: &Path) -> Result<Self, Error> {
        let mut device = Self::open_ctl(system, folder)?;
        let claimed = device.command(system, &Command::Protocol(true).to_string());
        let mut state = Ctl::default();
        let readable = device.observe(system, &mut state);
        let is_framed = state.fact(Fact::Protocol) == Some("1");
        match (claimed, readable) {
            (Ok(()), Ok(())) if is_framed => Ok(device),
            // The claim was refused although the ctl file works, so another reader has it.
            (Err(Error::Refused { .. }), Ok(())) if is_framed => Err(Error::Busy { path: device.ctl_path }),
            (Ok(()), Ok(())) => {
                let what = "its state does not say `protocol 1`; it is no ctl file of kprof".into();
                Err(Error::Malformed { path: device.ctl_path, what })
            }
            // Redox's own ctl file behaves like this: it knows no such command and cannot be read.
            (Err(Error::Refused { path, .. }), Err(_)) => Err(Error::NotKprof { path }),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Opens only `ctl-profiling` in `folder`, for the counters. Reads of the streams then return nothing, because
    /// another process may have claimed them.
    ///
    /// # Errors
    /// As [`KprofDevice::open`].
    pub fn open_counters(system: &mut S, folder: &Path) -> Result<Self, Error> {
        let mut device = Self::open_ctl(system, folder)?;
        device.access = Access::Counters;
        Ok(device)
    }

    /// Opens `ctl-profiling` in `folder` to read copies of the streams, beside the process that has claimed them.
    ///
    /// # Errors
    /// As [`KprofDevice::open`]; [`Error::Busy`] also if the kernel gives no copies, or another process reads them.
    pub fn open_copies(system: &mut S, folder: &Path) -> Result<Self, Error> {
        let mut device = Self::open_ctl(system, folder)?;
        device.access = Access::Copies;
        match device.command(system, &Command::Copy(true).to_string()) {
            Err(Error::Refused { path, .. }) => Err(Error::Busy { path }),
            other => other.map(|()| device),
        }
    }

    fn open_ctl(system: &mut S, folder: &Path) -> Result<Self, Error> {
        let ctl_path = folder.join("ctl-profiling");
        let ctl = again(|| system.open(&ctl_path, Open::ReadWrite)).map_err(|cause| {
            if cause.kind() == io::ErrorKind::ResourceBusy {
                Error::Busy { path: ctl_path.clone() }
            } else {
                Error::SourceMissing { path: ctl_path.clone(), cause }
            }
        })?;
        let (folder, streams) = (folder.into(), BTreeMap::new());
        Ok(Self { folder, ctl_path, ctl, streams, access: Access::Reader, can_wait: true, text: Vec::new() })
    }

    fn gone(&self, during: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = self.ctl_path.clone();
        move |cause| Error::SourceGone { path, during, cause }
    }

    fn write_ctl(&mut self, system: &mut S, text: &[u8]) -> io::Result<()> {
        let written = again(|| system.write(&mut self.ctl, text))?;
        if written != text.len() {
            let what = format!("the kernel took {written} of {} bytes of a command", text.len());
            return Err(io::Error::new(io::ErrorKind::WriteZero, what));
        }
        Ok(())
    }

    /// The kernel's reason for the last refusal, or the system's error text.
    fn reason(&mut self, system: &mut S, cause: &io::Error) -> String {
        let mut ctl = Ctl::default();
        let said = self.observe(system, &mut ctl).ok().and_then(|()| ctl.facts(Fact::Error).last().map(str::to_owned));
        said.filter(|reason| !reason.is_empty()).unwrap_or_else(|| cause.to_string())
    }
}

impl<S: System> Source<S> for KprofDevice<S> {
    fn path(&self) -> &Path {
        &self.ctl_path
    }

    fn layout(&self) -> Layout {
        Layout::Framed
    }

    fn access(&self) -> Access {
        self.access
    }

    fn observe(&mut self, system: &mut S, ctl: &mut Ctl) -> Result<(), Error> {
        again(|| system.seek(&mut self.ctl, 0)).map_err(self.gone("going to the start of the state"))?;
        let mut length = 0;
        loop {
            self.text.resize(self.text.len().max(length + 16 * 1024), 0);
            let got = system::read(system, &mut self.ctl, &mut self.text[length..])
                .map_err(self.gone("reading the state"))?;
            length += got;
            if got == 0 {
                break;
            }
            if length > MAX_STATE_BYTES {
                let what = format!("its state is longer than {MAX_STATE_BYTES} bytes; it is no ctl file of kprof");
                return Err(Error::Malformed { path: self.ctl_path.clone(), what });
            }
        }
        let malformed = |what| Error::Malformed { path: self.ctl_path.clone(), what };
        let text = std::str::from_utf8(&self.text[..length])
            .map_err(|error| malformed(format!("byte {} is not UTF-8", error.valid_up_to())))?;
        ctl.update(text);
        Ok(())
    }

    fn read(&mut self, system: &mut S, stream: Stream, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.access == Access::Counters {
            return Ok(0);
        }
        let path = || self.folder.join(format!("profiling-{stream}"));
        let file = match self.streams.entry(stream) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(slot) => match again(|| system.open(&path(), Open::Read)) {
                Ok(file) => slot.insert(file),
                // The CPU has no ring yet, or the kernel has no meta stream.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(Error::Busy { path: path() }),
                Err(cause) => return Err(Error::SourceGone { path: path(), during: "opening it", cause }),
            },
        };
        match system::read(system, file, buffer) {
            // Another process is reading at this moment; the next round tries again soon.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy) => Ok(0),
            other => other.map_err(|cause| Error::SourceGone { path: path(), during: "reading records", cause }),
        }
    }

    fn acknowledge(&mut self, system: &mut S, ends: &[(Stream, u64)]) -> Result<(), Error> {
        if self.access != Access::Reader {
            return Ok(());
        }
        let mut command = String::new();
        for (stream, position) in ends {
            let _ = writeln!(command, "{}", Command::Ack((*stream).into(), *position));
        }
        if command.is_empty() { Ok(()) } else { self.command(system, command.trim_end()) }
    }

    fn command(&mut self, system: &mut S, command: &str) -> Result<(), Error> {
        match self.write_ctl(system, format!("{command}\n").as_bytes()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Err(Error::Busy { path: self.ctl_path.clone() })
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                let reason = self.reason(system, &error);
                Err(Error::Refused { path: self.ctl_path.clone(), command: command.into(), reason })
            }
            Err(cause) => Err(self.gone("giving a command")(cause)),
        }
    }

    fn wait(&mut self, system: &mut S, limit: Duration) -> Result<Waited, Error> {
        if !self.can_wait {
            return Ok(Waited::CannotWait);
        }
        let command = format!("{}\n", Command::WaitMs(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        match system.write(&mut self.ctl, command.as_bytes()) {
            Ok(_) => Ok(Waited::Waited),
            // A signal came: return, so that the flags are checked now.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Waited::Waited),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                self.can_wait = false;
                Ok(Waited::CannotWait)
            }
            Err(cause) => Err(self.gone("waiting for records")(cause)),
        }
    }
}
