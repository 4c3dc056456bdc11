//! Timeline: every sample by itself, for outputs that show time. Stage: fold, a consumer beside the tally.
//!
//! In: samples, provisional until their batch ends. Out: all that count, in file order or by time. Memory: 24 bytes a
//! sample, so this is only for outputs that need each one.

use crate::read::escape::unescape;
use crate::read::ingest::{Consumer, Sample};
use crate::select::Select;
use crate::stacks::StackId;
use std::collections::HashMap;

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time stamp counter.
    pub tsc: u64,
    /// Index of the boot.
    pub boot: u32,
    /// CPU.
    pub cpu: u32,
    /// Index into [`Timeline::contexts`].
    pub context: u32,
    /// The distinct stack.
    pub stack: StackId,
}

/// All samples.
#[derive(Debug, Default)]
pub struct Timeline {
    select: Select,
    /// The samples that count.
    pub events: Vec<Event>,
    /// Plain names of the contexts.
    pub contexts: Vec<String>,
    numbers: HashMap<Vec<u8>, u32>,
    /// How many events are no longer provisional.
    certain: usize,
}

impl Timeline {
    /// Keeps what `select` asks of samples; what it asks of stacks is left to the output.
    pub fn new(select: Select) -> Self {
        Self { select, ..Self::default() }
    }

    /// The samples by boot and time.
    pub fn sort_by_time(&mut self) {
        self.events.sort_by_key(|event| (event.boot, event.tsc, event.cpu));
    }
}

impl Consumer for Timeline {
    fn sample(&mut self, sample: &Sample<'_>) {
        if !self.select.admits_sample(sample) || !self.select.admits_traits(sample.traits) {
            return;
        }
        let context = match self.numbers.get(sample.context) {
            Some(number) => *number,
            None => {
                let number = self.contexts.len() as u32;
                self.contexts.push(String::from_utf8_lossy(&unescape(sample.context)).into_owned());
                self.numbers.insert(sample.context.to_vec(), number);
                number
            }
        };
        let Sample { boot, cpu, tsc, stack, .. } = *sample;
        self.events.push(Event { tsc, boot: boot as u32, cpu, context, stack });
    }

    fn commit(&mut self) {
        self.certain = self.events.len();
    }

    fn discard(&mut self) {
        self.events.truncate(self.certain);
    }
}
