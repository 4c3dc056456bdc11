//! The round over the CPUs: wait, read all streams, write, sync, acknowledge.
//!
//! ```text
//!  wait ─► read CPUs ─► read ctl ─► read meta ─► (rotate) ─► one write ─► fsync ─► one ack ─┐
//!   ▲                                                                                       │
//!   └───────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! In: a [`Source`]. Out: the sample file. Runs in: user process, one thread. Meta is read after the CPUs, so that
//! every task in a sample has its name by then; in the file it is written before them. The process may be killed at any
//! arrow: records that were not acknowledged are read again, and records that are on disk are recognised by their
//! position. So every record is in the file exactly once.

mod digest;
mod end;
mod files;
mod intake;
mod pieces;
mod wait;

use crate::by_point::ByPoint;
use crate::by_task::ByTask;
use crate::ctl::Ctl;
use crate::error::Error;
use crate::names::Names;
use crate::signals::Signals;
use crate::source::{Access, Source, Stream};
use crate::system::System;
use crate::write::append::OnFull;
use crate::write::compose::{Composer, Form};
use crate::write::found::Maker;
use crate::write::sample_file::SampleFile;
use digest::Digest;
use files::open_file;
use intake::Intake;
use kprof_format::command::Command;
use std::path::PathBuf;
use std::time::Duration;
use wait::Times;

/// The most rounds after the stop request, for a source that does not report the position of its newest record; and the
/// most rounds in which nothing is read although the source has reported more.
const LAST_ROUNDS: usize = 64;
/// After this many commands at the beginning of a session there is a round. After one that is about points there is one
/// in any case: it may write a record for each point.
const COMMANDS_A_ROUND: usize = 32;
/// How often the kernel may fail to write any of the counts that it has kept, because somebody else must make room.
const KEPT_TRIES: usize = 64;
/// Rounds between two checks that the file still exists.
const LOOK_ROUNDS: u64 = 8;

/// What a session does with what it reads.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sample file; `-` for the standard output.
    pub output: PathBuf,
    /// The program that the file is of.
    pub maker: Maker,
    /// The form of the file.
    pub form: Form,
    /// What to do on a full disk.
    pub on_full: OnFull,
    /// Ends the session after this time.
    pub duration: Option<Duration>,
    /// The maximum length of the file in bytes.
    pub max_bytes: Option<u64>,
    /// How many old files are kept when `max_bytes` is reached; with 0 the session ends there.
    pub keep_files: u32,
    /// Commands for the kernel before the first round. `stop` is given at the end if `start` is among them and sampling
    /// did not run before.
    pub commands: Vec<String>,
    /// Commands for the kernel at the end of the session, before the rest is read; also if it ends by an error.
    pub last_commands: Vec<String>,
    /// Whether this is a session of `kprof-record`. The end of its command ends a wait. Samples that were recorded
    /// before the session are acknowledged, counted in [`Totals::older`] and not written.
    pub is_recording: bool,
}

impl Options {
    /// Options of a session that writes this file and does nothing else.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        Self {
            output: output.into(),
            maker: Maker::Profiled,
            form: Form::Text,
            on_full: OnFull::Wait,
            duration: None,
            max_bytes: None,
            keep_files: 0,
            commands: Vec::new(),
            last_commands: Vec::new(),
            is_recording: false,
        }
    }
}

/// What a session has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Samples written.
    pub samples: u64,
    /// Recorded hits of points written.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Ranges of words that were not a record.
    pub corrupt: u64,
    /// Records of a kind that this version does not know.
    pub unknown: u64,
    /// Records that were read again although they were already on disk.
    pub again: u64,
    /// Samples from before the session, which are not in its file.
    pub older: u64,
    /// Whether the session ended because the file had reached its maximum length.
    pub reached_max: bool,
}

/// A running session.
pub struct Session<'a, S: System, Src: Source<S>> {
    system: &'a mut S,
    source: Src,
    options: Options,
    signals: Signals,
    file: SampleFile<S>,
    digest: Digest,
    intake: Intake,
    ctl: Ctl,
    totals: Totals,
    times: Times,
    rounds: u64,
    ran_before: bool,
}

/// The result of a round.
struct Round {
    /// Number of bytes that were read.
    brought: usize,
    /// Whether more may be available immediately.
    is_more: bool,
}

impl<'a, S: System, Src: Source<S>> Session<'a, S, Src> {
    /// Opens the file, continues it where it ends, and gives the commands.
    ///
    /// # Errors
    /// The error of the source or of the file.
    pub fn open(system: &'a mut S, mut source: Src, options: Options, signals: Signals) -> Result<Self, Error> {
        let mut ctl = Ctl::default();
        source.observe(system, &mut ctl)?;
        let (file, resumed) = open_file(system, &options)?;
        let began = system.now();
        let ran_before = ctl.is_running();
        let mut session = Self {
            digest: Digest::new(Composer::new(options.form, options.maker)),
            intake: Intake::new(options.max_bytes),
            system,
            source,
            options,
            signals,
            file,
            ctl,
            totals: Totals::default(),
            times: Times::new(began),
            rounds: 0,
            ran_before,
        };
        session.go_on_from(resumed)?;
        if session.options.is_recording {
            if session.ran_before || session.counts_points() {
                // What was counted before is written now, so that it can be told apart from what this session counts.
                session.flush()?;
                session.source.observe(session.system, &mut session.ctl)?;
            }
            session.intake.place(Stream::Meta).older = session.ctl.position_in(Stream::Meta).unwrap_or(0);
            for stream in session.intake.streams(&session.ctl) {
                session.intake.place(stream).older = session.ctl.position_in(stream).unwrap_or(0);
            }
            session.ctl.count_from_now();
            if session.counts_points() {
                session.read_what_was_before()?;
            }
        }
        for (number, command) in (1..).zip(session.options.commands.clone()) {
            session.source.command(session.system, &command)?;
            // The kernel notes settings in the meta stream. So many could overwrite each other there.
            let is_of_points = matches!(Command::parse(command.as_bytes()), Ok(Command::Event(..)));
            if number % COMMANDS_A_ROUND == 0 || is_of_points {
                session.round()?;
            }
        }
        Ok(session)
    }

    /// Runs rounds until a signal or the end of the duration; then reads the rest and writes the account. `each_round`
    /// is given the totals. It returns the longest wait before the next round, or `None` to end the session.
    ///
    /// # Errors
    /// The error that ended the session early. All acknowledged records are on disk. If this session had started the
    /// sampler, it is stopped; the last commands are given.
    pub fn run(&mut self, each_round: impl FnMut(&Totals, &Ctl) -> Option<Duration>) -> Result<Totals, Error> {
        let ended = self.run_to_the_end(each_round);
        if ended.is_err() {
            // The first error is reported, so errors of these commands are ignored.
            let _ = self.give_last_commands();
            if self.has_started() {
                let _ = self.source.command(self.system, &Command::Stop.to_string());
            }
        }
        ended.map(|()| self.totals)
    }

    /// The events of this session, counted by task.
    pub fn by_task(&self) -> &ByTask {
        &self.digest.by_task
    }

    /// Hits of points since the session began. `None` if this session has not read all that the kernel says of them,
    /// because other programs read it.
    pub fn by_point(&self) -> Option<&ByPoint> {
        let is_whole = self.source.access() != Access::Counters && !self.digest.has_missed_meta;
        is_whole.then_some(&self.digest.by_point)
    }

    /// The system on which the session runs, for messages about it.
    pub fn system(&mut self) -> &mut S {
        self.system
    }

    /// The kernel's state when it was last read.
    pub fn ctl(&self) -> &Ctl {
        &self.ctl
    }

    fn run_to_the_end(&mut self, mut each_round: impl FnMut(&Totals, &Ctl) -> Option<Duration>) -> Result<(), Error> {
        let mut was_running = self.ctl.is_running();
        loop {
            let Round { brought, is_more } = self.round()?;
            let longest = each_round(&self.totals, &self.ctl);
            let Some(longest) = longest.filter(|_| !self.is_over()) else { break };
            if was_running && !self.ctl.is_running() && brought == 0 {
                self.account()?;
            }
            was_running = self.ctl.is_running() || (was_running && brought > 0);
            if !is_more {
                self.wait(longest, brought == 0)?;
            }
        }
        self.finish()
    }

    /// Whether its commands choose what points count. They count while the sampler is stopped, too.
    fn counts_points(&self) -> bool {
        self.commands().any(|command| matches!(command, Command::Event(..) | Command::Probe(_)))
    }

    fn has_started(&self) -> bool {
        !self.ran_before && self.commands().any(|command| command == Command::Start)
    }

    /// The commands that this session gives at its beginning.
    fn commands(&self) -> impl Iterator<Item = Command<'_>> {
        self.options.commands.iter().filter_map(|command| Command::parse(command.as_bytes()).ok())
    }

    fn round(&mut self) -> Result<Round, Error> {
        if self.signals.reopen_wanted() {
            self.reopen()?;
        }
        let taken = self.intake.take(self.system, &mut self.source, &mut self.ctl);
        self.times.fill = taken.fill;
        let had_all_names = self.digest.names.forgotten() == 0;
        for piece in &taken.pieces {
            self.take(piece)?;
        }
        self.digest.names.end_round();
        if had_all_names && self.digest.names.forgotten() > 0 {
            self.system.say(format_args!(
                "{}: there were more than {} tasks; the names of those that had no sample for the longest time are \
                 forgotten, and a sample of such a task has the name id<hex>",
                self.options.output.display(),
                Names::LIMIT
            ));
        }
        self.write()?;
        if self.totals.reached_max {
            return Ok(Round { brought: 0, is_more: false });
        }
        if let Some(error) = taken.failed {
            return Err(error);
        }
        self.acknowledge()?;
        self.rounds += 1;
        if self.rounds.is_multiple_of(LOOK_ROUNDS) {
            self.file.check_it_is_there(self.system)?;
        }
        Ok(Round { brought: taken.brought, is_more: taken.is_more })
    }
}
