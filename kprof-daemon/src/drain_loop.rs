//! The round over the CPUs: wait, read all streams, write, sync, acknowledge.
//!
//! ```text
//!  wait ─► read CPUs ─► read ctl ─► read meta ─► one write ─► fsync ─► one ack ─► (rotate) ─┐
//!   ▲                                                                                      │
//!   └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! In: a [`Source`]. Out: the sample file. Context: user process, one thread. Meta comes after the CPUs, so that every
//! context in a sample has its name by then, and before them in the file. Killed at any arrow: what was not
//! acknowledged is read again, what is on disk is known by its position, so every record ends up in the file once.

use crate::ctl::Ctl;
use crate::error::Error;
use crate::names::Names;
use crate::pace::Pace;
use crate::read::framed::Framed;
use crate::read::redox_raw::RawRecords;
use crate::read::{Item, Records, Why};
use crate::signals::Signals;
use crate::source::{Layout, Source, Stream, Waited};
use crate::system::System;
use crate::write::compose::{Composer, Form};
use crate::write::sample_file::{OnFull, SampleFile};
use kprof::format::record::{Kind, VERSION};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes read from one stream at once: the default size of a ring.
const READ_BYTES: usize = 256 * 1024;
/// Bytes read in one round, over all streams; what bounds the memory.
const ROUND_BYTES: usize = 1024 * 1024;
/// Rounds after the end was asked for, for sources that do not say how far they have got.
const LAST_ROUNDS: usize = 64;

/// What a session does with what it reads.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sample file; `-` for the standard output.
    pub output: PathBuf,
    /// Its form.
    pub form: Form,
    /// What to do on a full disk.
    pub on_full: OnFull,
    /// Ends the session after this time.
    pub duration: Option<Duration>,
    /// Commands for the kernel before the first round; `stop` is given at the end when `start` is among them.
    pub commands: Vec<String>,
}

/// What a session has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Samples written.
    pub samples: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Stretches of words that were no record.
    pub corrupt: u64,
    /// Records of a kind that this version does not know.
    pub unknown: u64,
    /// Records read again although they were on disk.
    pub again: u64,
    /// Rounds that brought something.
    pub rounds: u64,
}

/// A running session.
pub struct Session<'a, S: System, Src: Source<S>> {
    system: &'a mut S,
    source: Src,
    options: Options,
    signals: Signals,
    file: SampleFile<S>,
    composer: Composer,
    names: Names,
    streams: BTreeMap<Stream, Place>,
    ctl: Ctl,
    buffer: Vec<u8>,
    totals: Totals,
    pace: Pace,
    began: Duration,
}

/// What one stream gave in a round: a part of the round's buffer.
struct Piece {
    range: Range<usize>,
    /// Bytes at its beginning that an earlier read had left over.
    carried: usize,
}

/// How far one stream has been read.
#[derive(Debug, Default)]
struct Place {
    /// Position after the last record that was taken apart.
    position: Option<u64>,
    /// Everything below is on disk from an earlier session.
    on_disk: u64,
    /// The beginning of a record whose end has not been read yet.
    carry: Vec<u8>,
    /// Position up to which the kernel has been told.
    acknowledged: u64,
}

impl<'a, S: System, Src: Source<S>> Session<'a, S, Src> {
    /// Opens the file, continues it where it ends, and gives the commands.
    ///
    /// # Errors
    /// Whatever source or file refuse.
    pub fn open(system: &'a mut S, mut source: Src, options: Options, signals: Signals) -> Result<Self, Error> {
        let ctl = source.observe(system)?;
        let (file, resumed) = SampleFile::open(system, &options.output, options.form == Form::Binary)?;
        let began = system.now();
        let mut session = Self {
            composer: Composer::new(options.form),
            system,
            source,
            options,
            signals,
            file,
            names: Names::default(),
            streams: BTreeMap::new(),
            ctl,
            buffer: vec![0; ROUND_BYTES + 2 * READ_BYTES],
            totals: Totals::default(),
            pace: Pace::default(),
            began,
        };
        if !session.ctl.boot().is_empty() && resumed.boot.as_deref() == Some(session.ctl.boot()) {
            for (id, name) in resumed.names {
                session.names.set_escaped(id, 0, name);
            }
            for (stream, end) in resumed.ends {
                session.streams.entry(stream).or_default().on_disk = end;
            }
        } else {
            session.composer.header(&session.ctl);
            session.write()?;
        }
        for command in session.options.commands.clone() {
            session.source.command(session.system, &command)?;
        }
        Ok(session)
    }

    /// Rounds until a signal, the end of the source, or the end of the duration; then the rest and the account.
    ///
    /// # Errors
    /// What ended the session early. All that was acknowledged is on disk.
    pub fn run(&mut self, mut each_round: impl FnMut(&Totals, &Ctl)) -> Result<Totals, Error> {
        let mut was_running = self.ctl.is_running();
        loop {
            let brought = self.round()?;
            each_round(&self.totals, &self.ctl);
            if self.is_over() || (brought == 0 && self.source.is_finite()) {
                break;
            }
            if was_running && !self.ctl.is_running() && brought == 0 {
                self.account()?;
            }
            was_running = self.ctl.is_running() || (was_running && brought > 0);
            if brought < READ_BYTES {
                self.wait(brought == 0)?;
            }
        }
        self.finish()?;
        each_round(&self.totals, &self.ctl);
        Ok(self.totals)
    }

    /// The totals so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    fn is_over(&mut self) -> bool {
        let elapsed = self.system.now().saturating_sub(self.began);
        self.signals.stop_wanted() || self.options.duration.is_some_and(|limit| elapsed >= limit)
    }

    fn wait(&mut self, found_nothing: bool) -> Result<(), Error> {
        if self.source.is_finite() {
            return Ok(());
        }
        let before = self.system.now();
        let waited = self.source.wait(self.system, Pace::LONGEST)?;
        // A kernel that returns at once and has nothing must not make a busy loop of this one.
        let in_vain = found_nothing && self.system.now().saturating_sub(before) < Pace::SHORTEST;
        if waited == Waited::CannotWait || in_vain {
            let pause = self.pace.next(self.ctl.fill());
            // A signal that cuts the sleep short is as good as the end of it.
            let _ = self.system.sleep(pause);
        }
        Ok(())
    }

    /// One round. Returns the number of bytes that were read.
    fn round(&mut self) -> Result<usize, Error> {
        let mut pieces: Vec<(Stream, Piece)> = Vec::new();
        let mut failed = None;
        let mut used = 0;
        let mut cpus: Vec<Stream> = self.ctl.cpus().map(|(cpu, _)| Stream::Cpu(cpu)).collect();
        // Not always the same one first: under a flood the round may end before the last one's turn.
        let shift = self.totals.rounds as usize % cpus.len().max(1);
        cpus.rotate_left(shift);
        for stream in cpus {
            if used > ROUND_BYTES || self.is_recorder() {
                break;
            }
            match self.read(stream, used) {
                Ok(piece) => {
                    used = piece.range.end;
                    pieces.push((stream, piece));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match self.source.observe(self.system) {
            Ok(ctl) => self.ctl = ctl,
            Err(error) => failed = failed.or(Some(error)),
        }
        match self.read_meta(used) {
            Ok(piece) => pieces.push((Stream::Meta, piece)),
            Err(error) => failed = failed.or(Some(error)),
        }
        let brought = pieces.iter().map(|(_, piece)| piece.range.len() - piece.carried).sum();
        // Names first, in memory as in the file.
        pieces.sort_by_key(|(stream, _)| *stream);
        let buffer = std::mem::take(&mut self.buffer);
        for (stream, piece) in pieces {
            let is_the_end = self.source.is_finite() && piece.range.len() == piece.carried;
            self.compose(stream, &buffer[piece.range], piece.carried > 0, is_the_end)?;
        }
        self.buffer = buffer;
        self.names.end_round();
        self.write()?;
        if let Some(error) = failed {
            return Err(error);
        }
        self.acknowledge()?;
        self.file.check_it_is_there(self.system)?;
        Ok(brought)
    }

    /// Whether the rings are those of a running flight recorder: they are read once it is frozen or stopped.
    fn is_recorder(&self) -> bool {
        self.ctl.overwrites() && self.ctl.is_running()
    }

    /// Reads what the stream has to the round's buffer, from `start` on, behind what an earlier read had left over.
    fn read(&mut self, stream: Stream, start: usize) -> Result<Piece, Error> {
        let carried = self.streams.entry(stream).or_default().carry.len();
        let held = start + carried;
        let got = self.read_behind(stream, held)?;
        let place = self.streams.entry(stream).or_default();
        self.buffer[start..held].copy_from_slice(&place.carry);
        place.carry.clear();
        Ok(Piece { range: start..held + got, carried })
    }

    /// One read to the round's buffer, from `start` on.
    fn read_behind(&mut self, stream: Stream, start: usize) -> Result<usize, Error> {
        let end = start + READ_BYTES;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.source.read(self.system, stream, &mut self.buffer[start..end])
    }

    /// Reads the meta stream as far as it went when the state was read: the names of all contexts in this round's samples.
    fn read_meta(&mut self, start: usize) -> Result<Piece, Error> {
        let place = self.streams.entry(Stream::Meta).or_default();
        let begins = place.position.or(self.ctl.meta().find("position-out")).unwrap_or(0);
        let goes_to = self.ctl.meta().find("position-in");
        let is_whole = |held: usize| goes_to.is_some_and(|goes_to| begins + (held / 8) as u64 >= goes_to);
        if is_whole(place.carry.len()) {
            return Ok(Piece { range: start..start, carried: 0 });
        }
        let mut piece = self.read(Stream::Meta, start)?;
        while !is_whole(piece.range.len()) && piece.range.len() < ROUND_BYTES {
            let more = self.read_behind(Stream::Meta, piece.range.end)?;
            if more == 0 {
                break;
            }
            piece.range.end += more;
        }
        Ok(piece)
    }

    /// Takes the bytes of one stream apart and adds its batch to the output.
    fn compose(&mut self, stream: Stream, bytes: &[u8], has_carry: bool, is_the_end: bool) -> Result<(), Error> {
        let counters = match stream {
            Stream::Meta => Some(self.ctl.meta()),
            Stream::Cpu(cpu) => self.ctl.cpu(cpu),
        };
        let place = self.streams.entry(stream).or_default();
        let mut position = place.position.or_else(|| counters?.find("position-out"));
        if self.ctl.overwrites() && stream != Stream::Meta && !has_carry {
            // What was there may have been overwritten: the first record says where it lies.
            position = None;
        }
        let mut records = match self.source.layout() {
            Layout::Framed => Records::Framed(Framed::new(bytes, position)),
            Layout::RedoxRaw => Records::Raw(RawRecords::new(bytes, position.unwrap_or(0))),
        };
        let (mut is_first, mut newer) = (true, None);
        while let Some(item) = records.next().or_else(|| give_up_rest(&mut records, is_the_end)) {
            let here = records.item_from();
            if here < place.on_disk {
                self.totals.again += 1;
                continue;
            }
            if is_first {
                self.composer.begin(here);
                is_first = false;
            }
            match (item, stream) {
                (Item::Sample(sample), Stream::Cpu(cpu)) => {
                    if self.names.get(sample.context, sample.tsc).is_none()
                        && let Some(name) = self.source.context_name(self.system, sample.context)
                    {
                        self.names.set(sample.context, 0, &name);
                    }
                    self.composer.sample(&mut self.names, cpu, &sample);
                    self.totals.samples += 1;
                }
                (Item::Meta(meta), Stream::Meta) => {
                    if meta.kind == Kind::ContextName {
                        self.names.set(meta.values[0], meta.tsc, meta.text);
                    }
                    self.composer.meta(&meta);
                }
                (Item::Skipped(skipped), _) => {
                    match skipped.why {
                        Why::UnknownKind(_) => self.totals.unknown += 1,
                        Why::Version(version) if version > VERSION => {
                            newer = newer.or(Some((skipped.from, version)));
                            self.totals.corrupt += 1;
                        }
                        _ => self.totals.corrupt += 1,
                    }
                    self.composer.corrupt(stream, &skipped);
                }
                // A record that has strayed into the wrong stream says nothing.
                (Item::Sample(_) | Item::Meta(_), _) => self.totals.unknown += 1,
            }
        }
        // A flipped bit now and then, or a kernel that is newer than this program?
        if let Some((position, version)) = newer
            && self.totals.samples == 0
        {
            return Err(Error::Newer { stream: stream.to_string(), position, version });
        }
        let used = records.used_bytes();
        let end = records.position();
        place.carry.extend_from_slice(&bytes[used..]);
        place.position = end.or(place.position);
        if !is_first && let Some(end) = end {
            self.composer.end(stream, end, counters);
        }
        Ok(())
    }

    /// Writes what has been composed; returns when it is on the disk.
    fn write(&mut self) -> Result<(), Error> {
        if self.composer.bytes().is_empty() {
            return Ok(());
        }
        self.file.append(self.system, self.composer.bytes(), self.options.on_full, &self.signals)?;
        self.totals.bytes += self.composer.bytes().len() as u64;
        self.totals.rounds += 1;
        self.composer.clear();
        Ok(())
    }

    /// Tells the kernel what is on disk. Only ever called after [`write`](Self::write).
    fn acknowledge(&mut self) -> Result<(), Error> {
        if self.source.layout() == Layout::RedoxRaw {
            return Ok(());
        }
        let is_new = |place: &Place| place.position.filter(|position| *position > place.acknowledged);
        let ends: Vec<(Stream, u64)> = self
            .streams
            .iter()
            // A flight recorder frees its own space.
            .filter(|(stream, _)| **stream == Stream::Meta || !self.ctl.overwrites())
            .filter_map(|(stream, place)| Some((*stream, is_new(place)?)))
            .collect();
        self.source.acknowledge(self.system, &ends)?;
        for (stream, end) in ends {
            self.streams.entry(stream).or_default().acknowledged = end;
        }
        Ok(())
    }

    /// The rest up to where the kernel is now, and the account.
    fn finish(&mut self) -> Result<(), Error> {
        if self.options.commands.iter().any(|command| command == "start") {
            self.source.command(self.system, "stop")?;
        }
        self.ctl = self.source.observe(self.system)?;
        let target: BTreeMap<Stream, u64> = self
            .ctl
            .cpus()
            .filter_map(|(cpu, counters)| Some((Stream::Cpu(cpu), counters.find("position-in")?)))
            .chain(self.ctl.meta().find("position-in").map(|position| (Stream::Meta, position)))
            .collect();
        let mut rounds = 0;
        loop {
            let is_there = |(stream, target): (&Stream, &u64)| {
                self.streams.get(stream).and_then(|place| place.position).unwrap_or(0) >= *target
            };
            let all_there = !target.is_empty() && target.iter().all(is_there);
            if all_there || self.round()? == 0 {
                break;
            }
            rounds += 1;
            if target.is_empty() && rounds == LAST_ROUNDS {
                break;
            }
        }
        self.account()
    }

    fn account(&mut self) -> Result<(), Error> {
        self.ctl = self.source.observe(self.system)?;
        self.composer.accounts(&self.ctl);
        self.write()
    }
}

/// The beginning of a record whose end will never come.
fn give_up_rest<'a>(records: &mut Records<'_>, is_the_end: bool) -> Option<Item<'a>> {
    is_the_end.then(|| records.give_up_rest()).flatten().map(Item::Skipped)
}
