//! `html --event NAME`: the page of the recorded hits of a point. Stage: command line.
//!
//! In: a profile with events, for a comparison an older one too. Out: one HTML file in which each hit counts with the
//! weight for which it stands, or with `--count` with the number of hits. What a heap has not freed is shown at the
//! times at which it was allocated. The differences of a comparison are those of `diff --event`.

use super::args::{Choice, Html, Input};
use super::compare::other_unit;
use super::compat::Output;
use super::event::{asked, point, refuse, refuse_cpus};
use super::heap::{account_of_live, frees, has_frees, is_doubtful, unit};
use super::html::old_input;
use super::load::{self, Opened};
use super::out::{put, write_failed};
use super::probe_names;
use super::single::clock;
use super::talk::Talk;
use crate::diff::weights::{self, Run};
use crate::diff::{Diff, Method};
use crate::error::Error;
use crate::events::parts::Part;
use crate::fold::Folder;
use crate::heap::HeapTally;
use crate::output::export::hits::{HitLog, Hits};
use crate::output::page::{self, event, facts::name_of, stacks::Source};
use crate::select::Select;
use crate::symbols::Inlines;
use crate::tally::{By, Count};
use crate::timeline::Timeline;
use kprof_format::memory::{ALLOC, LIVE};

/// What the page shows of a profile.
struct Side {
    hits: Hits,
    timeline: Timeline,
    unit: String,
    account: String,
    verdict: (&'static str, bool),
    /// How exact the weights are; empty if nothing is compared.
    run: Run,
}

/// Writes the page of the hits of the point `name`.
///
/// # Errors
/// If the input or the arguments are unusable, or the page cannot be written.
pub fn run(args: &Html, name: &str) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    refuse(choice)?;
    let mut new = open(input, args, name)?;
    let tsc_hz = clock(&new, input)?;
    if new.consumer.hits.hits.is_empty() {
        let what = if name == LIVE { "recorded allocation that was not freed" } else { "recorded hit" };
        return Err(Error::unusable(&input.file, format!("no {what} of {name} is left to show")));
    }
    let old_input = old_input(args);
    let mut old = old_input.as_ref().map(|input| open(input, args, name)).transpose()?;
    let diff = old.as_mut().map(|old| compared(args, &mut old.consumer, &mut new.consumer)).transpose()?;
    // The page has all frames; what it shows at first is chosen in it.
    new.symbols.inlines = Inlines::All;
    old.iter_mut().for_each(|old| old.symbols.inlines = Inlines::All);
    let side = &new.consumer;
    let name = &side.hits.name;
    let title = if args.title.is_empty() { format!("{}: {name}", name_of(&input.file)) } else { args.title.clone() };
    let source = |opened| -> Source<'_> {
        let Opened { stacks, symbols, .. }: &Opened<Side> = opened;
        Source { stacks, symbols, is_of_point: true }
    };
    let page = page::Input {
        title: &title,
        files: (&input.file, &input.syms),
        timeline: &side.timeline,
        source: source(&new),
        profile: &new.profile,
        account: &new.account,
        tsc_hz,
        user: choice.user,
        inlines: choice.for_table().inlines(),
        event: Some(event::OfPoint {
            hits: &side.hits,
            unit: &side.unit,
            account: &side.account,
            verdict: side.verdict,
            is_live: *name == LIVE,
        }),
        old: old.as_ref().zip(diff.as_ref()).zip(old_input.as_ref()).map(|((old, diff), input)| page::Old {
            file: &input.file,
            doubts: &old.profile.doubts,
            timeline: &old.consumer.timeline,
            hits: Some(&old.consumer.hits),
            source: source(old),
            diff,
        }),
    };
    let inputs: Vec<&str> = input.files().into_iter().chain(old_input.iter().flat_map(Input::files)).collect();
    put(input.output.as_deref(), input.quiet, &inputs, |out| {
        page::write(&page, out).map_err(|error| write_failed(input, error))
    })?;
    Ok(new.exit_code(input.limits(), side.hits.hits.len()))
}

/// The differences of two sides, which have the same unit.
fn compared(args: &Html, old: &mut Side, new: &mut Side) -> Result<Diff, Error> {
    if old.unit != new.unit {
        return Err(other_unit(&new.hits.name, Some(&old.unit), Some(&new.unit)));
    }
    let method = Method { confidence: args.confidence, is_same_work: false };
    let [old, run] = [&mut *old, &mut *new].map(|side| std::mem::take(&mut side.run));
    Ok(weights::compare(&[old], &[run], (&new.hits.name, &new.unit), method))
}

/// Reads what the page shows of a profile.
fn open(input: &Input, args: &Html, name: &str) -> Result<Opened<Side>, Error> {
    let choice = Choice { user: true, ..args.choice.for_table() };
    let of_hits = choice.count;
    if name == LIVE {
        refuse_cpus(&choice, "--event heap.live")?;
        let opened = load::open_any(input, &choice, Output::Other, |select| HeapTally::new(select.clone(), By::None))?;
        return opened.with(|opened| live(input, args, opened));
    }
    let name = &probe_names::in_file(input, name)?;
    let opened = load::open_any(input, &choice, Output::Other, |select| HitLog::new(select.clone(), name))?;
    opened.with(|opened| {
        let name = opened.names.shown(name);
        let (point, account) = asked(&opened.profile, &input.file, name, &opened.select)?;
        Talk { quiet: input.quiet }.say(&account);
        let hits = opened.consumer.hits(name, &point, &opened.select, of_hits);
        let tally = opened.consumer.tally();
        let (counts, parts) = (tally.scaled(&point, of_hits).counts, || tally.parts(&point, of_hits));
        let mut run = run_of(args, opened, &counts, parts);
        [run.lost, run.only_counted] = event::sums_beside(&hits);
        let unit = if of_hits { "hits".to_owned() } else { hits.unit.clone() };
        let (timeline, verdict) = (event::timeline(&hits, &opened.select), event::verdict(point.is_balanced()));
        Ok(Side { hits, timeline, unit, account, verdict, run })
    })
}

impl<C> Opened<C> {
    /// The same with what `make` makes of it in the place of the consumer.
    fn with<D>(self, make: impl FnOnce(&Self) -> Result<D, Error>) -> Result<Opened<D>, Error> {
        let consumer = make(&self)?;
        let Self { profile, stacks, symbols, names, select, account, problems, tsc_hz, doubt, style, .. } = self;
        Ok(Opened { consumer, profile, stacks, symbols, names, select, account, problems, tsc_hz, doubt, style })
    }
}

/// What a heap has not freed.
fn live(input: &Input, args: &Html, opened: &Opened<HeapTally>) -> Result<Side, Error> {
    let (tally, of_allocations) = (&opened.consumer, args.choice.count);
    let (allocs, frees) = (point(&opened.profile, &input.file, ALLOC)?, frees(&opened.profile));
    let account = account_of_live(tally, &allocs, &frees);
    Talk { quiet: input.quiet }.say(&account);
    let hits = Hits::of_heap(tally, of_allocations);
    let (counts, groups) = tally.counts(of_allocations, opened.tsc_hz);
    let mut run = run_of(args, opened, &counts, || tally.parts(of_allocations, opened.tsc_hz, &groups));
    run.is_doubtful = is_doubtful(&allocs, &frees);
    let verdict = event::verdict_of_live(run.is_doubtful, has_frees(&frees));
    let timeline = event::timeline(&hits, &opened.select);
    Ok(Side { hits, timeline, unit: unit(of_allocations).to_owned(), account, verdict, run })
}

/// How exactly the weights of the stacks are known that the page shows at first.
fn run_of<C>(args: &Html, opened: &Opened<C>, counts: &[Count], parts: impl FnOnce() -> Vec<Part>) -> Run {
    if args.compare.is_none() {
        return Run::default();
    }
    let Opened { stacks, symbols, select, .. } = opened;
    let select = Select { user: args.choice.user, ..select.clone() };
    let folder = Folder { symbols, stacks, select: &select, by: By::None, groups: &[] };
    Run::of(&folder.fold(counts), &parts(), &folder, false)
}
