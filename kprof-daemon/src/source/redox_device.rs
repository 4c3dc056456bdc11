//! The device files of an unmodified Redox kernel: raw words, consumed when read.
//!
//! In: the folder (`/scheme/debug`). Out: raw words of every CPU that has a stream. Runs in: user process, root. This
//! kernel's ctl file takes one byte, `1` or `0`, and cannot be read. There are no positions, no acknowledgements and no
//! counters, so data that a reader had read but not written when it was killed is lost. The name of each task is asked
//! for by a call on an open stream; a task without a name is `id<hex>`. (Redox kernel, `src/scheme/debug.rs` and
//! `src/profiling.rs`.)

use super::{Layout, Source, Stream, Waited};
use crate::ctl::Ctl;
use crate::error::Error;
use crate::system::{self, Open, System, again};
use kprof_format::command::Command;
use kprof_format::fact::Fact;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limit of the CPU numbers that are looked for.
const MAX_CPUS: u32 = 256;

/// The open device files of a Redox kernel.
pub struct RedoxDevice<S: System> {
    ctl_path: PathBuf,
    ctl: S::File,
    streams: BTreeMap<u32, S::File>,
    state: Ctl,
}

impl<S: System> RedoxDevice<S> {
    /// Opens the ctl file and the streams of all CPUs.
    ///
    /// # Errors
    /// [`Error::SourceMissing`] if there is no ctl file or no stream.
    pub fn open(system: &mut S, folder: &Path) -> Result<Self, Error> {
        let ctl_path = folder.join("ctl-profiling");
        let missing = |cause| Error::SourceMissing { path: ctl_path.clone(), cause };
        let ctl = again(|| system.open(&ctl_path, Open::ReadWrite)).map_err(missing)?;
        let mut streams = BTreeMap::new();
        for cpu in 0..MAX_CPUS {
            if let Ok(file) = again(|| system.open(&folder.join(format!("profiling-{cpu}")), Open::Read)) {
                streams.insert(cpu, file);
            }
        }
        if streams.is_empty() {
            return Err(missing(io::Error::new(io::ErrorKind::NotFound, "no profiling-N beside it")));
        }
        // Positions are counted from the start of this reader, so every session gets its own boot id.
        let boot = std::hash::RandomState::new().build_hasher().finish();
        let boot = format!("{boot:x}");
        let facts = [(Fact::Protocol, "0"), (Fact::State, "stopped"), (Fact::Boot, boot.as_str())];
        let state = Ctl::made_up(&facts, streams.keys().copied());
        Ok(Self { ctl_path, ctl, streams, state })
    }
}

impl<S: System> Source<S> for RedoxDevice<S> {
    fn path(&self) -> &Path {
        &self.ctl_path
    }

    fn layout(&self) -> Layout {
        Layout::RedoxRaw
    }

    fn observe(&mut self, _system: &mut S, ctl: &mut Ctl) -> Result<(), Error> {
        ctl.clone_from(&self.state);
        Ok(())
    }

    fn read(&mut self, system: &mut S, stream: Stream, buffer: &mut [u8]) -> Result<usize, Error> {
        let Stream::Cpu(cpu) = stream else { return Ok(0) };
        let Some(file) = self.streams.get_mut(&cpu) else { return Ok(0) };
        // Reads only whole words: after a read of another length, all later words of this kernel's stream are shifted.
        let whole = buffer.len() & !7;
        system::read(system, file, &mut buffer[..whole]).map_err(|cause| Error::SourceGone {
            path: self.ctl_path.with_file_name(format!("profiling-{cpu}")),
            during: "reading words",
            cause,
        })
    }

    fn acknowledge(&mut self, _system: &mut S, _ends: &[(Stream, u64)]) -> Result<(), Error> {
        Ok(())
    }

    fn command(&mut self, system: &mut S, command: &str) -> Result<(), Error> {
        let byte: &[u8] = match Command::parse(command.as_bytes()) {
            Ok(Command::Start) => b"1",
            Ok(Command::Stop) => b"0",
            _ => {
                let reason = "an unmodified Redox kernel knows `start` and `stop` only".into();
                return Err(Error::Refused { path: self.ctl_path.clone(), command: command.into(), reason });
            }
        };
        let written = again(|| system.write(&mut self.ctl, byte));
        let gone = |cause| Error::SourceGone { path: self.ctl_path.clone(), during: "giving a command", cause };
        written.map(drop).map_err(gone)
    }

    fn wait(&mut self, _system: &mut S, _limit: Duration) -> Result<Waited, Error> {
        Ok(Waited::CannotWait)
    }

    fn task_name(&mut self, system: &mut S, task: u64) -> Option<Vec<u8>> {
        let file = self.streams.values_mut().next()?;
        system.redox_task_name(file, task)
    }
}
