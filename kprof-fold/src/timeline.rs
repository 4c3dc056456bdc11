//! Timeline: keeps every single sample, for outputs that show time. Stage: fold; a consumer like the tally.
//!
//! In: samples, which are provisional until their batch ends. Out: all samples that count, in file order or by time.
//! Each sample takes 24 bytes of memory, so this is used only for outputs that need single samples.

use crate::profile::{Boot, Profile};
use crate::read::consumer::{Consumer, Sample};
use crate::read::escape::unescape;
use crate::select::Select;
use crate::stacks::StackId;
use crate::symbols::name::visible;
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
    /// Index into [`Timeline::tasks`].
    pub task: u32,
    /// The distinct stack.
    pub stack: StackId,
}

/// All samples.
#[derive(Debug, Default)]
pub struct Timeline {
    select: Select,
    /// The samples that count.
    pub events: Vec<Event>,
    /// The names of the tasks, unescaped.
    pub tasks: Vec<String>,
    numbers: HashMap<Vec<u8>, u32>,
    /// The number of events at the front of `events` that are no longer provisional.
    certain: usize,
}

impl Timeline {
    /// A timeline of the samples that `select` asks for. Its conditions on the names in a stack are left to the output.
    pub fn new(select: Select) -> Self {
        Self { select, ..Self::default() }
    }

    /// The conditions on its samples.
    pub fn select(&self) -> &Select {
        &self.select
    }

    /// The samples by boot and time.
    pub fn sort_by_time(&mut self) {
        self.events.sort_by_key(|event| (event.boot, event.tsc, event.cpu));
    }
}

/// Converts time stamps to the times that outputs show. Each boot has its own TSC; the time of a boot begins where the
/// time of the boot before it ends.
pub struct Clock {
    tsc_hz: f64,
    /// The first TSC of each boot, and the seconds that all boots before it took.
    zeros: Vec<(u64, f64)>,
}

impl Clock {
    /// The clock of a profile, for a TSC of this frequency.
    pub fn new(profile: &Profile, tsc_hz: f64) -> Self {
        let mut before = 0.0;
        let zero = |boot: &Boot| {
            let (first, last) = boot.span().unwrap_or_default();
            let zero = (first, before);
            before += (last - first) as f64 / tsc_hz;
            zero
        };
        Self { tsc_hz, zeros: profile.boots.iter().map(zero).collect() }
    }

    /// How many boots there are.
    pub fn boots(&self) -> usize {
        self.zeros.len()
    }

    /// The TSC at which the time of a boot begins.
    pub fn zero(&self, boot: u32) -> u64 {
        self.zeros.get(boot as usize).map_or(0, |zero| zero.0)
    }

    /// Nanoseconds since the first sample or hit of the first boot; 0 for what was earlier.
    pub fn nanos(&self, boot: u32, tsc: u64) -> u64 {
        let (first, before) = self.zeros.get(boot as usize).copied().unwrap_or_default();
        ((before + tsc.saturating_sub(first) as f64 / self.tsc_hz) * 1e9) as u64
    }

    /// What time 0 is, for people.
    pub fn words(&self) -> String {
        let zero = self.zero(0);
        let seconds = zero as f64 / self.tsc_hz;
        format!("time 0 is that of the first sample or hit of the file: TSC {zero:x}, {seconds:.6} s of its clock")
    }
}

impl Consumer for Timeline {
    fn sample(&mut self, sample: &Sample<'_>) {
        if !self.select.admits_sample(sample) || !self.select.admits_traits(sample.traits) {
            return;
        }
        let task = match self.numbers.get(sample.task) {
            Some(number) => *number,
            None => {
                let number = self.tasks.len() as u32;
                let name = unescape(sample.task);
                self.tasks.push(visible(&String::from_utf8_lossy(&name)).into_owned());
                self.numbers.insert(sample.task.to_vec(), number);
                number
            }
        };
        let Sample { boot, cpu, tsc, stack, .. } = *sample;
        self.events.push(Event { tsc, boot: boot as u32, cpu, task, stack });
    }

    fn commit(&mut self) {
        self.certain = self.events.len();
    }

    fn discard(&mut self) {
        self.events.truncate(self.certain);
    }
}
