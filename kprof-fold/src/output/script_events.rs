//! Every recorded hit of a point with its stack, in the form of `perf script`. Stage: output.
//!
//! In: events and names. Out: for each event its task, CPU, time, weight, point and arguments, then its frames. The
//! arguments of a disk's requests have names.

use super::script::{Style, frames, time};
use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::read::escape::unescape;
use crate::resolve::Resolver;
use crate::select::Select;
use crate::stacks::{StackId, Stacks};
use crate::symbols::Symbols;
use crate::symbols::name::visible;
use kprof_format::block::Request;
use kprof_format::event::Arguments;
use kprof_format::point::PointState;
use std::io::{self, Write};

/// One event.
#[derive(Clone, Debug)]
pub struct One {
    /// Index of the boot.
    pub boot: usize,
    /// When.
    pub tsc: u64,
    /// Where.
    pub cpu: u32,
    /// The name of the task.
    pub task: String,
    /// Its own weight.
    pub weight: u64,
    /// How it was chosen.
    pub state: PointState,
    /// Its arguments.
    pub arguments: Arguments,
    /// The distinct stack.
    pub stack: StackId,
}

/// The consumer that keeps the events of one point.
#[derive(Debug)]
pub struct EventLog {
    select: Select,
    point: String,
    events: Vec<One>,
}

impl EventLog {
    /// A log of the events of the point with this name that `select` asks for.
    pub fn new(select: Select, point: &str) -> Self {
        Self { select, point: point.to_owned(), events: Vec::new() }
    }

    /// Writes the events under this name of their point.
    pub fn show_as(&mut self, point: &str) {
        point.clone_into(&mut self.point);
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// The events, in file order.
    pub fn events(&self) -> &[One] {
        &self.events
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Writes all events by boot and time. `unit` is that of the weights.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(
        &mut self,
        unit: &str,
        (stacks, symbols): (&Stacks, &Symbols),
        style: Style,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.events.sort_by_key(|event| (event.boot, event.tsc, event.cpu));
        let (mut resolver, mut words, mut text) = (Resolver::new(symbols), Vec::new(), String::new());
        let point = visible(&self.point);
        for event in &self.events {
            let (task, at) = (event.task.replace(' ', "_"), time(event.tsc, style.tsc_hz));
            write!(out, "{task} {} {at}: {} {}: {point}:", event.cpu, event.weight, visible(unit))?;
            match event.state {
                PointState::Every(hits) => write!(out, " one of {hits}")?,
                PointState::ByWeight(weight) => write!(out, " one in {weight}")?,
                PointState::Off | PointState::Count | PointState::Record => {}
            }
            match Request::of(&self.point, event.arguments.as_slice()) {
                Some(Request { device, sector, bytes }) => {
                    write!(out, " device={device} sector={sector} bytes={bytes}")?;
                }
                None => event.arguments.as_slice().iter().try_for_each(|argument| write!(out, " {argument:#x}"))?,
            }
            writeln!(out)?;
            text.clear();
            stacks.words(event.stack, &mut words);
            frames(&words, &mut resolver, style, &mut text);
            out.write_all(text.as_bytes())?;
        }
        out.flush()
    }
}

impl Consumer for EventLog {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, recorded: &Recorded<'_>) {
        let event = &recorded.event;
        let is_meant = event.point.to_string() == self.point && self.select.admits_event(recorded);
        if !is_meant || !self.select.admits_traits(recorded.traits) {
            return;
        }
        self.events.push(One {
            boot: recorded.boot,
            tsc: event.tsc,
            cpu: event.cpu,
            task: visible(&String::from_utf8_lossy(&unescape(recorded.task))).into_owned(),
            weight: event.weight,
            state: event.state,
            arguments: event.arguments,
            stack: recorded.stack,
        });
    }

    fn sample(&mut self, _: &Sample<'_>) {}
    fn commit(&mut self) {}
    fn discard(&mut self) {}
}
