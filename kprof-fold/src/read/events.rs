//! Event streams: recorded hits of points, each with its stack. Stage: read.
//!
//! In: the lines of a batch of an event stream, which is complete. Out: an event per well-formed line to the
//! [`Consumer`], and for each point how many events of it are in the file. Of a malformed line only that line is lost.

use super::batch::{self, Open};
use super::consumer::{Consumer, Recorded};
use super::ingest::Ingest;
use crate::problems::{Kind, shown};
use kprof_format::event::{EventLine, addresses};
use kprof_format::line::Name;
use kprof_format::marker::MARKER_PAGE;

impl<C: Consumer> Ingest<C> {
    /// Adds a complete batch of the event stream of a CPU. `events` is the number of events that its end says.
    pub(super) fn close_events(&mut self, cpu: u32, open: &Open, events: Option<u64>) {
        let end = self.line;
        let stream = self.present_boot().event_streams.entry(cpu).or_default();
        batch::remember(&mut stream.positions, open.positions);
        let mut read = 0;
        for (number, line) in &open.event_lines {
            self.line = *number;
            match self.event(cpu, line) {
                Some(()) => read += 1,
                None => {
                    let file = &self.file;
                    self.problems.add(Kind::Sample, || {
                        format!("{file}:{number}: not an event in {}; line skipped", shown(line))
                    });
                }
            }
        }
        self.line = end;
        if let Some(events) = events.filter(|events| *events != read) {
            let file = &self.file;
            self.problems.add(Kind::BatchCount, || {
                format!("{file}:{end}: the batch says {events} events and {read} can be read")
            });
        }
        self.consumer.commit();
    }

    /// Reads one line of the stream of a CPU. `None` if it is not a line of an event.
    fn event(&mut self, cpu: u32, line: &[u8]) -> Option<()> {
        let (event, stack) = EventLine::parse(std::str::from_utf8(line).ok()?)?;
        let Name::Escaped(task) = event.task else { return None };
        let mut words = addresses(stack).collect::<Option<Vec<u64>>>()?;
        let name = event.point.to_string();
        let boot = self.present_boot();
        boot.points.entry(name).or_default().add_event(event.cpu);
        let (first, last) = boot.event_streams.entry(cpu).or_default().tsc.get_or_insert((event.tsc, event.tsc));
        (*first, *last) = ((*first).min(event.tsc), (*last).max(event.tsc));
        if !self.consumer.takes_events() {
            return Some(());
        }
        // The first address of a sample is an instruction, and is looked up as it is. Here it is a return address. One
        // byte before it is the call that led to the point.
        if let Some(first) = words.first_mut().filter(|first| **first < MARKER_PAGE) {
            *first = first.wrapping_sub(1);
        }
        self.check_era();
        let (stack, traits) = self.stacks.of_words(&words);
        self.consumer.event(&Recorded { boot: self.shown_boot(), event, task, stack, traits });
        Some(())
    }
}
