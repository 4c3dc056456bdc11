//! Recorded streams: files named `profiling-N.bin` as they were drained from a kernel, with `tasks.txt` in the same
//! folder.
//!
//! In: one such file or the folder of them. Out: their bytes; the first word tells which layout they have. Runs in:
//! user process, on any machine. A recording frees nothing, so acknowledging does nothing. The source ends where the
//! files end.

use super::{Layout, Source, Stream, Waited};
use crate::ctl::Ctl;
use crate::error::Error;
use crate::system::{self, Open, System, again};
use kprof_format::checksum::Crc32;
use kprof_format::fact::Fact;
use kprof_format::record::{MAGIC, REDOX_MAGIC, RawHeader, SampleHeader};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limit of the CPU numbers that are looked for in a folder.
const MAX_CPUS: u32 = 1024;
/// Bytes read at once from the file of names.
const READ_BYTES: usize = 64 * 1024;
/// Words at the beginning of a record that contain its TSC, in either layout.
const FIRST_WORDS: usize = SampleHeader::AT.tsc + 1;
const _: () = assert!(RawHeader::AT.tsc < FIRST_WORDS);

/// Recorded streams.
pub struct Recorded<S: System> {
    path: PathBuf,
    files: BTreeMap<u32, S::File>,
    names: HashMap<u64, Vec<u8>>,
    layout: Layout,
    ctl: Ctl,
}

impl<S: System> Recorded<S> {
    /// Opens a file `profiling-N.bin`, or all of them in a folder.
    ///
    /// # Errors
    /// [`Error::SourceMissing`] if there is none, [`Error::Malformed`] if a file's name has no CPU number or the files
    /// do not contain records.
    pub fn open(system: &mut S, path: &Path) -> Result<Self, Error> {
        let malformed = |what: &str| Error::Malformed { path: path.into(), what: what.into() };
        let is_folder = path.is_dir();
        let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new(".")) };
        let mut files = BTreeMap::new();
        if is_folder {
            for cpu in 0..MAX_CPUS {
                if let Ok(file) = again(|| system.open(&folder.join(format!("profiling-{cpu}.bin")), Open::Read)) {
                    files.insert(cpu, file);
                }
            }
        } else {
            let cpu = cpu_of(path).ok_or_else(|| malformed("the name does not say which CPU: profiling-N.bin"))?;
            let missing = |cause| Error::SourceMissing { path: path.into(), cause };
            files.insert(cpu, again(|| system.open(path, Open::Read)).map_err(missing)?);
        }
        if files.is_empty() {
            let cause = io::Error::new(io::ErrorKind::NotFound, "no file profiling-N.bin in it");
            return Err(Error::SourceMissing { path: path.into(), cause });
        }
        let mut this =
            Self { path: path.into(), files, names: HashMap::new(), layout: Layout::RedoxRaw, ctl: Ctl::default() };
        let first_word = this.identify(system)?;
        this.layout = match first_word {
            Some(word) if (word >> 32) as u32 == MAGIC => Layout::Framed,
            Some(word) if word & !0xff == REDOX_MAGIC => Layout::RedoxRaw,
            Some(_) => return Err(malformed("it begins with neither a framed record nor one of Redox's raw records")),
            None => return Err(malformed("it is empty")),
        };
        this.read_names(system, &folder.join("tasks.txt"))?;
        Ok(this)
    }

    /// Computes a boot id for the recording from its oldest record. So the same recording gets the same id, also after
    /// it has grown or the file of another CPU was added. Returns the first word of the first file that has one.
    fn identify(&mut self, system: &mut S) -> Result<Option<u64>, Error> {
        let (mut first_word, mut oldest) = (None, None);
        for file in self.files.values_mut() {
            let gone = |cause| Error::SourceGone { path: self.path.clone(), during: "reading it", cause };
            let mut buffer = [0; FIRST_WORDS * 8];
            let got = system::read(system, file, &mut buffer).map_err(gone)?;
            again(|| system.seek(file, 0)).map_err(gone)?;
            let word = |at: usize| buffer[..got].as_chunks().0.get(at).map(|bytes| u64::from_le_bytes(*bytes));
            first_word = first_word.or(word(0));
            let is_framed = word(0).is_some_and(|word| (word >> 32) as u32 == MAGIC);
            if let Some(tsc) = word(if is_framed { SampleHeader::AT.tsc } else { RawHeader::AT.tsc }) {
                oldest = oldest.into_iter().chain([(tsc, buffer)]).min();
            }
        }
        let record = oldest.map_or([0; FIRST_WORDS * 8], |(_, record)| record);
        let boot = format!("{:x}", Crc32::default().with(&record).end());
        let facts = [(Fact::Protocol, "1"), (Fact::State, "stopped"), (Fact::Boot, boot.as_str())];
        self.ctl = Ctl::made_up(&facts, self.files.keys().copied());
        Ok(first_word)
    }

    /// Reads task names from lines `ID NAME`, with the id in decimal. If there is no such file, tasks are called
    /// `id<hex>`.
    fn read_names(&mut self, system: &mut S, path: &Path) -> Result<(), Error> {
        let Ok(mut file) = again(|| system.open(path, Open::Read)) else { return Ok(()) };
        let mut bytes = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let gone = |cause| Error::SourceGone { path: path.into(), during: "reading it", cause };
            let got = system::read(system, &mut file, &mut buffer).map_err(gone)?;
            if got == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..got]);
        }
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.is_empty()) {
            let mut parts = line.splitn(2, |byte| *byte == b' ');
            let id = parts.next().and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
            let (Some(id), Some(name)) = (id, parts.next()) else {
                let what = format!("line {number} is not `ID NAME`");
                return Err(Error::Malformed { path: path.into(), what });
            };
            self.names.insert(id, name.into());
        }
        Ok(())
    }
}

impl<S: System> Source<S> for Recorded<S> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn observe(&mut self, _system: &mut S, ctl: &mut Ctl) -> Result<(), Error> {
        ctl.clone_from(&self.ctl);
        Ok(())
    }

    fn read(&mut self, system: &mut S, stream: Stream, buffer: &mut [u8]) -> Result<usize, Error> {
        let Stream::Cpu(cpu) = stream else { return Ok(0) };
        let Some(file) = self.files.get_mut(&cpu) else { return Ok(0) };
        let gone = |cause| Error::SourceGone { path: self.path.clone(), during: "reading it", cause };
        system::read(system, file, buffer).map_err(gone)
    }

    fn acknowledge(&mut self, _system: &mut S, _ends: &[(Stream, u64)]) -> Result<(), Error> {
        Ok(())
    }

    fn command(&mut self, _system: &mut S, command: &str) -> Result<(), Error> {
        let reason = "a recording takes no commands".into();
        Err(Error::Refused { path: self.path.clone(), command: command.into(), reason })
    }

    fn wait(&mut self, _system: &mut S, _limit: Duration) -> Result<Waited, Error> {
        Ok(Waited::Waited)
    }

    fn task_name(&mut self, _system: &mut S, task: u64) -> Option<Vec<u8>> {
        self.names.get(&task).cloned()
    }

    fn is_finite(&self) -> bool {
        true
    }
}

fn cpu_of(path: &Path) -> Option<u32> {
    path.file_stem()?.to_str()?.strip_prefix("profiling-")?.parse().ok()
}
