//! `html`: the interactive page. Stage: command line.
//!
//! In: a profile, for a comparison an older one too. Out: one HTML file. It keeps every sample in memory (24 bytes
//! each). User code is read too, so that it can be switched on in the page.

use super::args::{Html, Input};
use super::compat::Output;
use super::html_event;
use super::load::{self, Opened};
use super::out::{put, write_failed};
use super::single::{clock, refuse_folding, refuse_users};
use super::values::form_of_file;
use crate::diff::blocks::Blocks;
use crate::diff::{self, Method, Run};
use crate::error::Error;
use crate::fold::Folder;
use crate::output::page::{self, facts::name_of, stacks::Source};
use crate::symbols::Inlines;
use crate::tally::{By, Count};
use crate::timeline::Timeline;

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
    if let Some(name) = &args.choice.event {
        return html_event::run(args, name);
    }
    let mut new = open(&args.input, args)?;
    let tsc_hz = clock(&new, &args.input)?;
    if new.consumer.events.is_empty() {
        return Err(Error::unusable(&args.input.file, "no sample is left to show; `report` shows where the time went"));
    }
    let old_input = old_input(args);
    let mut old = old_input.as_ref().map(|input| open(input, args)).transpose()?;
    let run = |opened| run_of(opened, args);
    let method = Method { confidence: args.confidence, is_same_work: false };
    let diff = old.as_ref().map(|old| diff::compare(&[run(old)], &[run(&new)], method));
    // The page has all frames; what it shows at first is chosen in it.
    for opened in [Some(&mut new), old.as_mut()].into_iter().flatten() {
        opened.symbols.inlines = Inlines::All;
    }
    let title = if args.title.is_empty() { name_of(&args.input.file) } else { args.title.clone() };
    let source = |opened| -> Source<'_> {
        let Opened { stacks, symbols, .. }: &Opened<Timeline> = opened;
        Source { stacks, symbols, is_of_point: false }
    };
    let page = page::Input {
        title: &title,
        files: (&args.input.file, &args.input.syms),
        timeline: &new.consumer,
        source: source(&new),
        profile: &new.profile,
        account: &new.account,
        tsc_hz,
        user: args.choice.user,
        inlines: args.choice.for_table().inlines(),
        event: None,
        old: old.as_ref().zip(diff.as_ref()).zip(old_input.as_ref()).map(|((old, diff), input)| page::Old {
            file: &input.file,
            doubts: &old.profile.doubts,
            timeline: &old.consumer,
            hits: None,
            source: source(old),
            diff,
        }),
    };
    let inputs: Vec<&str> = args.input.files().into_iter().chain(old_input.iter().flat_map(Input::files)).collect();
    put(args.input.output.as_deref(), args.input.quiet, &inputs, |out| {
        page::write(&page, out).map_err(|error| write_failed(&args.input, error))
    })?;
    Ok(new.exit_code(args.input.limits(), new.consumer.events.len()))
}

/// What to read of the older profile.
pub(super) fn old_input(args: &Html) -> Option<Input> {
    let file = args.compare.clone()?;
    let syms = args.compare_syms.clone().unwrap_or_else(|| args.input.syms.clone());
    Some(Input { file, syms, boot: None, ..args.input.clone() })
}

fn open(input: &Input, args: &Html) -> Result<Opened<Timeline>, Error> {
    let with_user = crate::cli::args::Choice { user: true, ..args.choice.for_table() };
    let mut opened = load::open(input, &with_user, Output::Other, |select| Timeline::new(select.clone()))?;
    opened.consumer.sort_by_time();
    Ok(opened)
}

/// What is compared: the stacks that the page shows at first.
fn run_of(opened: &Opened<Timeline>, args: &Html) -> Run {
    let Opened { consumer, stacks, symbols, select, .. } = opened;
    let (mut samples, mut blocks) = (vec![0u64; stacks.len()], Blocks::default());
    for event in &consumer.events {
        samples[event.stack as usize] += 1;
        blocks.add(event.tsc, event.stack);
    }
    let counts: Vec<Count> = samples
        .into_iter()
        .zip(0..)
        .filter(|(samples, _)| *samples > 0)
        .map(|(samples, stack)| Count { group: 0, stack, samples })
        .collect();
    let select = crate::select::Select { user: args.choice.user, ..select.clone() };
    let folder = Folder { symbols, stacks, select: &select, by: By::None, groups: &[] };
    // Each boot has a time of its own.
    let blocks = if opened.profile.boots.len() > 1 { Vec::new() } else { blocks.counts(&folder, false) };
    Run { blocks, unequal: opened.profile.unequal, ..Run::of(&folder.fold(&counts), false) }
}
