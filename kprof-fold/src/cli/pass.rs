//! Passes: reads the file of a profile, a second time if its samples have weights. Stage: command line.
//!
//! In: [`Input`], the choice of samples, and a consumer. Out: the file's contents, with the samples in the consumer.
//! Samples at different rates weigh differently, but the settings that say so may be later in the file than the
//! samples. So the rates are known after a first pass.

use super::args::Input;
use super::boots;
use super::progress::Progress;
use crate::error::Error;
use crate::profile::rates::{self, Weights};
use crate::read::consumer::Consumer;
use crate::read::{self, Reading, Source};
use crate::select::Select;
use crate::spent::Counter;
use crate::watch::{Watch, Watched};
use crate::weighed::Weighed;
use std::collections::BTreeSet;

/// What was read.
pub struct Read<C> {
    /// The contents of the file.
    pub reading: Reading<C>,
    /// The stacks of the watched tasks.
    pub watched: Watch,
    /// What samples at different rates mean for the counts.
    pub doubt: Option<String>,
}

/// Reads the file. The samples of some tasks are watched, if any are; `has_rates` is false if each sample counts once,
/// at whatever rate it was taken.
///
/// # Errors
/// If the file cannot be read.
pub fn read<C: Consumer>(
    input: &Input,
    select: &Select,
    consumer: impl Fn(&Select) -> C,
    watch: Watch,
    has_rates: bool,
) -> Result<Read<C>, Error> {
    let (mut bar, boot) = (Progress::new(&input.file, input.quiet), boots::index(input)?);
    let watched = || Watched { inner: consumer(select), watch: watch.clone(), states: Counter::new(select) };
    let is_part = select.between.is_some() || !select.cpus.is_empty();
    let mut seen = watch.clone();
    let mut states = None;
    let mut take = |watched: Watched<C>| {
        (seen, states) = (watched.watch, Some(watched.states));
        watched.inner
    };
    let mut reading = match is_part || !watch.is_empty() {
        true => once(input, boot, &mut bar, watched())?.map(&mut take),
        false => once(input, boot, &mut bar, consumer(select))?,
    };
    let rates = if has_rates { reading.profile.rates(select.between) } else { BTreeSet::new() };
    reading.profile.rate = rates.first().copied().filter(|_| rates.len() == 1);
    let is_mixed = rates.len() > 1;
    let weights = Weights::of(&reading.profile, select.between).filter(|_| is_mixed && can_be_read_again(&input.file));
    let is_weighed = weights.is_some();
    let taken = format!("samples were taken at {} per second and CPU", rates::in_words(&rates));
    let doubt = match weights {
        Some(weights) => {
            let highest = weights.highest;
            let again = once(input, boot, &mut bar, Weighed::new(watched(), weights.clone()))?;
            let mut unequal = None;
            reading = again.map(|weighed| {
                unequal = Some(weighed.unequal);
                take(weighed.inner)
            });
            reading.profile.unequal = unequal;
            weights.weigh(&mut reading.profile.gaps);
            reading.profile.rate = Some(highest);
            format!(
                "{taken}: each one counts as many times as there would have been samples at {highest}, so shares are \
                 of time and there are more counts than samples"
            )
        }
        None => format!(
            "{taken}, and each counts the same, so shares are of samples and not of time: give a file, which can be \
             read twice, or choose the time of one rate with --between"
        ),
    };
    bar.end();
    let states = states.filter(|_| is_part || is_weighed);
    reading.profile.spent = states.map(|states| states.spent(&reading.profile));
    Ok(Read { reading, watched: seen, doubt: is_mixed.then_some(doubt) })
}

/// One pass over the file.
fn once<C: Consumer>(input: &Input, boot: Option<usize>, bar: &mut Progress, consumer: C) -> Result<Reading<C>, Error> {
    let source = Source { file: &input.file, form: input.form, boot, progress: &mut |bytes| bar.at(bytes) };
    read::read(source, consumer)
}

/// Whether a second pass over a file finds it again: a pipe has it only once.
fn can_be_read_again(file: &str) -> bool {
    file != "-" && std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
}
