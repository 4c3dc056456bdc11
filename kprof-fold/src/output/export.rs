//! Profiles for other viewers. Stage: output.
//!
//! In: a timeline and names. Out: the Firefox Profiler's processed form (through fxprof-processed-profile),
//! speedscope's sampled form, Chrome's JSON trace for Perfetto, or pprof's protocol buffer. Each sample weighs one.

pub mod firefox;
pub mod perfetto;
pub mod pprof;
pub mod speedscope;

use crate::fold::frames::{FrameId, Frames};
use crate::select::Select;
use crate::stacks::{StackId, Stacks};
use crate::symbols::Symbols;
use crate::timeline::{Clock, Timeline};
use std::collections::HashMap;

/// The input of all exporters.
pub struct Input<'a> {
    /// The samples, ordered by time.
    pub timeline: &'a Timeline,
    /// Frames of each distinct stack, outermost first.
    pub stacks: HashMap<StackId, Vec<FrameId>>,
    /// The names of the frames.
    pub frames: Frames,
    /// TSC ticks per second.
    pub tsc_hz: f64,
    /// The requested number of samples per second, if the header has it.
    pub rate_hz: Option<u64>,
    /// The name of the profile.
    pub name: String,
    /// The clock of the sample times.
    pub clock: Clock,
}

impl<'a> Input<'a> {
    /// Looks up the names of all stacks.
    pub fn new(
        timeline: &'a Timeline,
        stacks: &Stacks,
        symbols: &Symbols,
        select: &Select,
        (tsc_hz, rate_hz, name): (f64, Option<u64>, &str),
    ) -> Self {
        let (mut frames, mut words, mut named) = (Frames::default(), Vec::new(), HashMap::new());
        for event in &timeline.events {
            named.entry(event.stack).or_insert_with(|| {
                let mut ids = Vec::new();
                stacks.words(event.stack, &mut words);
                frames.resolve(&words, stacks.traits(event.stack), select.user, symbols, &mut ids);
                ids.reverse();
                ids
            });
        }
        let clock = timeline.clock(tsc_hz);
        Self { timeline, stacks: named, frames, tsc_hz, rate_hz, name: name.to_owned(), clock }
    }

    /// CPUs with samples, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.timeline.events.iter().map(|event| event.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }
}
