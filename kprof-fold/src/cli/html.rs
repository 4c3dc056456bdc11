//! `html`: the interactive page. Stage: command line.
//!
//! In: a profile, for a comparison an older one too. Out: one HTML file with every sample, or with `--event NAME` with
//! every recorded hit, which counts with the weight for which it stands, or with `--count` with the number of hits.
//! What a heap has not freed is shown at the times at which it was allocated. It keeps every sample in memory (24 bytes
//! each). User code is read too, so that it can be switched on in the page. The differences of a comparison are those
//! of `diff`.

use super::args::{Choice, Html, Input};
use super::compare::other_unit;
use super::compat::Output;
use super::event::{asked, point, refuse, refuse_cpus};
use super::heap::{account_of_live, frees, has_frees, is_doubtful, unit};
use super::load::{self, Opened, Run};
use super::out::{put, write_failed};
use super::probe_names;
use super::single::{clock, refuse_folding, refuse_users};
use super::talk::Talk;
use super::values::form_of_file;
use crate::diff::blocks::Blocks;
use crate::diff::{self, Diff, Method, weights};
use crate::error::Error;
use crate::fold::{Folded, Folder};
use crate::heap::HeapTally;
use crate::output::export::hits::{HitLog, Hits};
use crate::output::page::{self, event, facts::name_of, stacks::Source};
use crate::select::Select;
use crate::symbols::Inlines;
use crate::tally::{By, Count};
use crate::timeline::Timeline;
use kprof_format::memory::{ALLOC, LIVE};
use std::slice::from_ref;

/// What the page shows of a profile.
struct Side {
    opened: Opened,
    timeline: Timeline,
    /// The hits, if it does not show samples.
    of_point: Option<OfPoint>,
    /// What is compared; `None` if nothing is.
    run: Option<Run>,
}

/// The hits of a point.
struct OfPoint {
    hits: Hits,
    unit: String,
    account: String,
    verdict: (&'static str, bool),
}

/// `html`.
///
/// # Errors
/// If the input or the arguments are unusable, or the page cannot be written.
pub fn run(args: &Html) -> Result<u8, Error> {
    form_of_file(args.input.output.as_deref(), &[("html", ()), ("htm", ())])?;
    refuse_folding(&args.choice)?;
    refuse_users(&args.input)?;
    if args.choice.lines {
        let todo = "the page shows the lines of a function in its details";
        return Err(Error::Usage(format!("--lines changes the names of frames, which are functions here; {todo}")));
    }
    let input = &args.input;
    let mut new = open(input, args)?;
    let tsc_hz = clock(&new.opened, input)?;
    if new.timeline.events.is_empty() {
        let what = match args.choice.event.as_deref() {
            None => "no sample is left to show; `report` shows where the time went".to_owned(),
            Some(LIVE) => format!("no recorded allocation that was not freed of {LIVE} is left to show"),
            Some(name) => format!("no recorded hit of {name} is left to show"),
        };
        return Err(Error::unusable(&input.file, what));
    }
    let old_input = old_input(args);
    let mut old = old_input.as_ref().map(|input| open(input, args)).transpose()?;
    let diff = old.as_ref().map(|old| compared(args, old, &new)).transpose()?;
    // The page has all frames; what it shows at first is chosen in it.
    for side in [Some(&mut new), old.as_mut()].into_iter().flatten() {
        side.opened.symbols.inlines = Inlines::All;
    }
    let point = new.of_point.as_ref().map_or_else(String::new, |of_point| format!(": {}", of_point.hits.name));
    let title = if args.title.is_empty() { name_of(&input.file) + &point } else { args.title.clone() };
    let page = page::Input {
        title: &title,
        files: (&input.file, &input.syms),
        timeline: &new.timeline,
        source: new.source(),
        profile: &new.opened.profile,
        account: &new.opened.account,
        tsc_hz,
        user: args.choice.user,
        inlines: args.choice.for_table().inlines(),
        event: new.of_point.as_ref().map(|of_point| event::OfPoint {
            hits: &of_point.hits,
            unit: &of_point.unit,
            account: &of_point.account,
            verdict: of_point.verdict,
            is_live: of_point.hits.name == LIVE,
        }),
        old: old.as_ref().zip(diff.as_ref()).zip(old_input.as_ref()).map(|((old, diff), input)| page::Old {
            file: &input.file,
            doubts: &old.opened.profile.doubts,
            timeline: &old.timeline,
            hits: old.of_point.as_ref().map(|of_point| &of_point.hits),
            source: old.source(),
            diff,
        }),
    };
    let inputs: Vec<&str> = input.files().into_iter().chain(old_input.iter().flat_map(Input::files)).collect();
    put(input.output.as_deref(), input.quiet, &inputs, |out| {
        page::write(&page, out).map_err(|error| write_failed(input, error))
    })?;
    Ok(new.opened.exit_code(input.limits(), new.timeline.events.len()))
}

impl Side {
    fn source(&self) -> Source<'_> {
        let Opened { stacks, symbols, .. } = &self.opened;
        Source { stacks, symbols, is_of_point: self.of_point.is_some() }
    }
}

/// What to read of the older profile.
fn old_input(args: &Html) -> Option<Input> {
    let file = args.compare.clone()?;
    let syms = args.compare_syms.clone().unwrap_or_else(|| args.input.syms.clone());
    Some(Input { file, syms, boot: None, ..args.input.clone() })
}

/// The differences of two sides, which have the same unit.
fn compared(args: &Html, old: &Side, new: &Side) -> Result<Diff, Error> {
    let method = Method { confidence: args.confidence, is_same_work: false };
    match (&old.run, &new.run, &old.of_point, &new.of_point) {
        (Some(Run::Weights(old_run)), Some(Run::Weights(run)), Some(old), Some(new)) => {
            let (name, unit) = (&new.hits.name, &new.unit);
            if old.unit != *unit {
                return Err(other_unit(name, Some(&old.unit), Some(unit)));
            }
            Ok(weights::compare(from_ref(old_run), from_ref(run), (name, unit), method))
        }
        (Some(Run::Samples(old)), Some(Run::Samples(new)), ..) => {
            Ok(diff::compare(from_ref(old), from_ref(new), method))
        }
        _ => Err(Error::Usage("--compare needs the same kind of profile on both sides".to_owned())),
    }
}

/// Reads what the page shows of a profile.
fn open(input: &Input, args: &Html) -> Result<Side, Error> {
    let choice = Choice { user: true, ..args.choice.for_table() };
    match choice.event.as_deref() {
        None => samples(input, args, &choice),
        Some(LIVE) => live(input, args, &choice),
        Some(name) => hits(input, args, &choice, name),
    }
}

fn samples(input: &Input, args: &Html, choice: &Choice) -> Result<Side, Error> {
    let (opened, mut timeline) = load::open(input, choice, Output::Other, |select| Timeline::new(select.clone()))?;
    timeline.sort_by_time();
    let (mut samples, mut blocks) = (vec![0u64; opened.stacks.len()], Blocks::default());
    for event in timeline.events.iter().filter(|_| args.compare.is_some()) {
        samples[event.stack as usize] += 1;
        blocks.add(event.tsc, event.stack);
    }
    let counts = samples.into_iter().zip(0..).filter(|(samples, _)| *samples > 0);
    let counts: Vec<Count> = counts.map(|(samples, stack)| Count { group: 0, stack, samples }).collect();
    let run = run_of(args, &opened, &counts, |folded, folder| {
        // Each boot has a time of its own.
        let blocks = if opened.profile.boots.len() > 1 { Vec::new() } else { blocks.counts(folder, false) };
        Run::Samples(diff::Run { blocks, unequal: opened.profile.unequal, ..diff::Run::of(folded, false) })
    });
    Ok(Side { opened, timeline, of_point: None, run })
}

fn hits(input: &Input, args: &Html, choice: &Choice, name: &str) -> Result<Side, Error> {
    refuse(choice)?;
    let name = &probe_names::in_file(input, name)?;
    let (opened, log) = load::open(input, choice, Output::Other, |select| HitLog::new(select.clone(), name))?;
    let (point, account) = asked(&opened.profile, &input.file, opened.names.shown(name), &opened.select)?;
    Talk { quiet: input.quiet }.say(&account);
    let hits = log.hits(opened.names.shown(name), &point, &opened.select, choice.count);
    let (tally, of_hits) = (log.tally(), choice.count);
    let run = run_of(args, &opened, &tally.scaled(&point, of_hits).counts, |folded, folder| {
        let mut run = weights::Run::of(folded, &tally.parts(&point, of_hits), folder, false);
        [run.lost, run.only_counted] = event::sums_beside(&hits);
        Run::Weights(run)
    });
    let unit = if of_hits { "hits".to_owned() } else { hits.unit.clone() };
    let verdict = event::verdict(point.is_balanced());
    let timeline = event::timeline(&hits, &opened.select);
    Ok(Side { opened, timeline, of_point: Some(OfPoint { hits, unit, account, verdict }), run })
}

/// What a heap has not freed.
fn live(input: &Input, args: &Html, choice: &Choice) -> Result<Side, Error> {
    refuse(choice)?;
    refuse_cpus(choice, "--event heap.live")?;
    let (opened, tally) = load::open(input, choice, Output::Other, |select| HeapTally::new(select.clone(), By::None))?;
    let of_allocations = choice.count;
    let (allocs, frees) = (point(&opened.profile, &input.file, ALLOC)?, frees(&opened.profile));
    let (account, is_doubtful) = (account_of_live(&tally, &allocs, &frees), is_doubtful(&allocs, &frees));
    Talk { quiet: input.quiet }.say(&account);
    let hits = Hits::of_heap(&tally, of_allocations);
    let (counts, groups) = tally.counts(of_allocations, opened.tsc_hz);
    let run = run_of(args, &opened, &counts, |folded, folder| {
        let parts = tally.parts(of_allocations, opened.tsc_hz, &groups);
        let mut run = weights::Run::of(folded, &parts, folder, false);
        run.is_doubtful = is_doubtful;
        Run::Weights(run)
    });
    let verdict = event::verdict_of_live(is_doubtful, has_frees(&frees));
    let (timeline, unit) = (event::timeline(&hits, &opened.select), unit(of_allocations).to_owned());
    Ok(Side { opened, timeline, of_point: Some(OfPoint { hits, unit, account, verdict }), run })
}

/// What is compared, if anything is: the stacks that the page shows at first.
fn run_of(
    args: &Html,
    opened: &Opened,
    counts: &[Count],
    run: impl FnOnce(&Folded, &Folder<'_>) -> Run,
) -> Option<Run> {
    args.compare.as_ref()?;
    let Opened { stacks, symbols, select, .. } = opened;
    let select = Select { user: args.choice.user, ..select.clone() };
    let folder = Folder { symbols, stacks, select: &select, by: By::None, groups: &[] };
    Some(run(&folder.fold(counts), &folder))
}
