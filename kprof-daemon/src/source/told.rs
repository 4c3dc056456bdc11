//! A source that says on standard error what is done with it: `--verbose`.
//!
//! In: a source. Out: the same source, and a line for each command, with the earlier value, and for each stream that
//! begins to be read. Runs in: user process. It forwards every call; without `--verbose` it prints nothing. It also
//! shortens a wait that would last beyond `wake_at`.

use super::{Access, Layout, Source, Stream, Waited};
use crate::ctl::Ctl;
use crate::error::Error;
use crate::pace::Pace;
use crate::system::System;
use kprof_format::command::Verb;
use kprof_format::fact::Fact;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// When a wait must end at the latest; whoever runs the session sets it between two rounds.
pub type WakeAt = Rc<Cell<Option<Instant>>>;

/// A source and what has been said about it.
#[derive(Debug)]
pub struct Told<Src> {
    source: Src,
    program: &'static str,
    is_on: bool,
    wake_at: WakeAt,
    read: BTreeSet<Stream>,
}

impl<Src> Told<Src> {
    /// Wraps a source that is claimed already. If `is_on`, says so, and from then on what `program` does with it.
    pub fn new<S: System>(system: &mut S, source: Src, program: &'static str, is_on: bool, wake_at: WakeAt) -> Self
    where
        Src: Source<S>,
    {
        let told = Self { source, program, is_on, wake_at, read: BTreeSet::new() };
        told.say(system, format_args!("opened {}", told.source.path().display()));
        told
    }

    fn say(&self, system: &mut impl System, what: std::fmt::Arguments<'_>) {
        if self.is_on {
            system.say(format_args!("{}: {what}", self.program));
        }
    }
}

impl<S: System, Src: Source<S>> Source<S> for Told<Src> {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn layout(&self) -> Layout {
        self.source.layout()
    }

    fn observe(&mut self, system: &mut S, ctl: &mut Ctl) -> Result<(), Error> {
        self.source.observe(system, ctl)
    }

    fn read(&mut self, system: &mut S, stream: Stream, buffer: &mut [u8]) -> Result<usize, Error> {
        let bytes = self.source.read(system, stream, buffer)?;
        if self.is_on && bytes > 0 && self.read.insert(stream) {
            self.say(system, format_args!("reads the stream profiling-{stream}"));
        }
        Ok(bytes)
    }

    fn acknowledge(&mut self, system: &mut S, ends: &[(Stream, u64)]) -> Result<(), Error> {
        self.source.acknowledge(system, ends)
    }

    fn command(&mut self, system: &mut S, command: &str) -> Result<(), Error> {
        if !self.is_on {
            return self.source.command(system, command);
        }
        let mut before = Ctl::default();
        let setting = setting(command).filter(|_| self.source.observe(system, &mut before).is_ok());
        self.source.command(system, command)?;
        match setting.and_then(|fact| before.fact(fact)) {
            Some(value) => self.say(system, format_args!("command `{command}` (before: {value})")),
            None => self.say(system, format_args!("command `{command}`")),
        }
        Ok(())
    }

    fn wait(&mut self, system: &mut S, limit: Duration) -> Result<Waited, Error> {
        // The kernel takes whole milliseconds, and a wait of 0 would return at once.
        let left = |at: Instant| at.saturating_duration_since(Instant::now()).max(Pace::SHORTEST);
        self.source.wait(system, self.wake_at.get().map_or(limit, |at| limit.min(left(at))))
    }

    fn task_name(&mut self, system: &mut S, task: u64) -> Option<Vec<u8>> {
        self.source.task_name(system, task)
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn is_finite(&self) -> bool {
        self.source.is_finite()
    }
}

/// The fact of ctl that shows what a command sets.
pub fn setting(command: &str) -> Option<Fact> {
    let word = command.split(' ').next()?;
    match Verb::of(word)? {
        Verb::Start | Verb::Stop | Verb::Freeze | Verb::Thaw => Some(Fact::State),
        // The fact of this name is the number of CPUs.
        Verb::Cpus => None,
        _ => Fact::of(word),
    }
}
