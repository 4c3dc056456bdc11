//! `html --event NAME`: the page of the recorded hits of a point. Stage: command line.
//!
//! In: a profile with events. Out: one HTML file in which each hit counts with the weight for which it stands, or with
//! `--count` with the number of hits. What a heap has not freed is a sum at the end of a profile, so it has no page.

use super::args::{Choice, Html};
use super::compat::Output;
use super::event::{asked, refuse};
use super::load;
use super::out::{put, write_failed};
use super::single::clock;
use super::talk::Talk;
use crate::error::Error;
use crate::output::export::hits::HitLog;
use crate::output::page::{self, event, facts::name_of, stacks::Source};
use crate::symbols::Inlines;
use crate::symbols::name::visible;
use kprof_format::memory::LIVE;

/// Writes the page of the hits of the point `name`.
///
/// # Errors
/// If the input or the arguments are unusable, or the page cannot be written.
pub fn run(args: &Html, name: &str) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    refuse(choice)?;
    let refused = |why: &str| Err(Error::Usage(why.to_owned()));
    if name == LIVE {
        return refused(
            "html shows hits at their times, and heap.live is a sum at the end of the profile: flamegraph, report and \
             export show it, and html --event heap.alloc shows the allocations",
        );
    }
    if args.compare.is_some() {
        return refused("html --compare works with samples: diff --event compares the weights of two profiles");
    }
    let with_user = Choice { user: true, ..choice.for_table() };
    let mut opened = load::open_any(input, &with_user, Output::Other, |select| HitLog::new(select.clone(), name))?;
    let (point, account) = asked(&opened.profile, &input.file, name, &opened.select)?;
    Talk { quiet: input.quiet }.say(&account);
    let tsc_hz = clock(&opened, input)?;
    let hits = opened.consumer.hits(name, &point, &opened.select, choice.count);
    if hits.hits.is_empty() {
        return Err(Error::unusable(&input.file, format!("no recorded hit of {name} is left to show")));
    }
    let timeline = event::timeline(&hits, &opened.select);
    // The page has all frames; what it shows at first is chosen in it.
    opened.symbols.inlines = Inlines::All;
    let name = visible(name);
    let title = if args.title.is_empty() { format!("{}: {name}", name_of(&input.file)) } else { args.title.clone() };
    let page = page::Input {
        title: &title,
        files: (&input.file, &input.syms),
        timeline: &timeline,
        source: Source { stacks: &opened.stacks, symbols: &opened.symbols, is_of_point: true },
        profile: &opened.profile,
        account: &opened.account,
        tsc_hz,
        user: choice.user,
        inlines: choice.for_table().inlines(),
        event: Some(event::OfPoint {
            hits: &hits,
            unit: if choice.count { "hits" } else { &hits.unit },
            account: &account,
            is_balanced: point.is_balanced(),
        }),
        old: None,
    };
    put(input.output.as_deref(), input.quiet, &input.files(), |out| {
        page::write(&page, out).map_err(|error| write_failed(input, error))
    })?;
    Ok(opened.exit_code(input.limits(), hits.hits.len()))
}
