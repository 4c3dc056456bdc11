//! Refuses names that match nothing: functions, tasks, CPUs. Stage: command line, after reading.
//!
//! In: the choice, and what the profile and the symbols have. Out: an error with the nearest names, or nothing. An
//! empty picture for a misspelt name would look like an answer. In a comparison a function may be gone from one side,
//! so there only a message says it.

use super::args::Input;
use super::nearest;
use super::talk::Talk;
use crate::error::Error;
use crate::fold::Folded;
use crate::profile::{Boot, Profile};
use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::read::escape::unescape;
use crate::read::{self, Source};
use crate::select::{Select, in_words};
use crate::symbols::Symbols;
use std::collections::BTreeSet;

/// Refuses a CPU, or a range of CPUs, of which the profile has none.
///
/// # Errors
/// [`Error::Usage`], with the CPUs that there are.
pub fn cpus(profile: &Profile, select: &Select) -> Result<(), Error> {
    let of_boot = |boot: &Boot| -> Vec<u32> { boot.cpus.keys().chain(boot.event_streams.keys()).copied().collect() };
    let has: BTreeSet<u32> = profile.boots.iter().flat_map(of_boot).collect();
    // Without samples nobody knows which CPUs there were: one may have had no hit.
    let is_known = profile.boots.iter().any(|boot| !boot.cpus.is_empty());
    let missing = select.cpus.iter().find(|range| !has.iter().any(|cpu| range.contains(cpu)));
    match missing {
        Some(range) if is_known => {
            let has: Vec<_> = has.into_iter().map(|cpu| cpu..=cpu).collect();
            let range = in_words(std::slice::from_ref(range));
            Err(Error::Usage(format!("--cpu {range}: the profile has the CPUs {}", in_words(&has))))
        }
        _ => Ok(()),
    }
}

/// Refuses functions of `--under` and `--not` that do not exist; with `is_side` only a message names them.
///
/// # Errors
/// [`Error::Usage`], with the nearest names.
pub fn functions(folded: &Folded, symbols: &Symbols, select: &Select, is_side: bool, talk: Talk) -> Result<(), Error> {
    let frames = || (0..folded.frames.len()).map(|id| folded.frames.function(id as u32));
    for (option, patterns) in [("--under", &select.under), ("--not", &select.not), ("--callers", &select.callers)] {
        for pattern in patterns {
            let has_symbol = || (0..symbols.len()).any(|number| pattern.fit(&symbols.function(number)).is_some());
            if frames().any(|name| pattern.fit(name).is_some()) || has_symbol() {
                continue;
            }
            let meant = nearest::did_you_mean(pattern.as_str(), frames());
            let why = format!("{option} {}: there is no such function{meant}", pattern.as_str());
            if !is_side {
                return Err(Error::Usage(why));
            }
            talk.say(why);
        }
    }
    Ok(())
}

/// The names of all tasks with samples or hits.
#[derive(Default)]
struct Tasks(BTreeSet<String>);

impl Tasks {
    fn add(&mut self, task: &[u8]) {
        let name = unescape(task);
        let name = String::from_utf8_lossy(&name);
        if !self.0.contains(&*name) {
            self.0.insert(name.into_owned());
        }
    }
}

impl Consumer for Tasks {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, event: &Recorded<'_>) {
        self.add(event.task);
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        self.add(sample.task);
    }

    fn commit(&mut self) {}

    fn discard(&mut self) {}
}

/// Refuses tasks that no sample and no hit has. Only called if nothing is left by the choice, because it reads the file
/// again.
///
/// # Errors
/// [`Error::Usage`], with the nearest names, or an error of reading.
pub fn tasks(input: &Input, select: &Select) -> Result<(), Error> {
    if select.tasks.is_empty() || input.file == "-" {
        return Ok(());
    }
    let source = Source { file: &input.file, form: input.form, boot: None, progress: &mut |_| {} };
    let Tasks(names) = read::read(source, Tasks::default())?.consumer;
    let is_there = names.iter().any(|name| select.tasks.iter().any(|pattern| pattern.fits(name)));
    let Some(pattern) = select.tasks.first().filter(|_| !is_there) else { return Ok(()) };
    let meant = nearest::did_you_mean(pattern.as_str(), names.iter().map(String::as_str));
    Err(Error::Usage(format!("--task {}: no sample or hit is of such a task{meant}", pattern.as_str())))
}
