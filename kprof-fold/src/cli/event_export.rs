//! `export --event NAME`: the recorded hits of a point, or the heap, for other viewers. Stage: command line.
//!
//! In: a profile with events. Out: a profile with several values for each stack: hits and weight, or what was allocated
//! and what of it was not freed; for viewers that show time, and for engines, each hit at its time. The values of a
//! point are scaled to its exact totals; those of a heap are estimates.

use super::args::{Export, Viewer};
use super::compat::Output;
use super::event::{self, asked, point, refuse_cpus};
use super::heap::{account_of_live, frees};
use super::load::{Opened, open};
use super::out::{with_output, write_failed};
use super::probe_names;
use super::single::{self, about_pprof};
use super::talk::Talk;
use crate::error::Error;
use crate::events::EventTally;
use crate::heap::HeapTally;
use crate::output::export;
use crate::output::export::hits::{HitLog, Hits};
use crate::output::export::values::{HEAP, Values};
use crate::output::folded::{LOST, NOT_RECORDED};
use crate::stacks::StackId;
use crate::symbols::name::visible;
use crate::tally::By;
use crate::tracks::Tracks;
use kprof_format::memory::{ALLOC, LIVE};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the four sample types of a heap, or hits and weight of any other point; or each hit at its time.
///
/// # Errors
/// If the input or the arguments are unusable, or the viewer shows samples only.
pub fn run(args: &Export, name: &str) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    event::refuse(choice)?;
    let is_heap = [ALLOC, LIVE].contains(&name);
    match args.to {
        Viewer::Pprof | Viewer::Speedscope => {}
        Viewer::Firefox | Viewer::Perfetto => return over_time(args, name),
        Viewer::PerfData => {
            let why = "--to perf.data has samples only: for --event give --to pprof, firefox, perfetto or speedscope";
            return Err(Error::Usage(why.to_owned()));
        }
        #[cfg(feature = "otlp")]
        Viewer::Otlp if is_heap => {}
        #[cfg(any(feature = "parquet", feature = "otlp"))]
        _ => return over_time(args, name),
    }
    if is_heap {
        refuse_cpus(choice, "the export of a heap, which has what was not freed")?;
        let (opened, tally) = open(input, choice, Output::Other, |select| HeapTally::new(select.clone(), By::None))?;
        let tally = &tally;
        let allocs = point(&opened.profile, &input.file, ALLOC)?;
        Talk { quiet: input.quiet }.say(account_of_live(tally, &allocs, &frees(&opened.profile)));
        let row = |(stack, (all, live)): (_, (crate::heap::Estimate, crate::heap::Estimate))| {
            let values = [all.allocations, all.bytes, live.allocations, live.bytes];
            (stack, values.map(|value| value.round() as i64).to_vec())
        };
        let values = Values {
            types: &HEAP,
            default: if name == LIVE { 3 } else { 1 },
            rows: tally.by_stack().into_iter().map(row).collect(),
            beside: Vec::new(),
            period: tally.mean_bytes.map(|mean| ("space", "bytes", mean)),
        };
        #[cfg(feature = "otlp")]
        if args.to == Viewer::Otlp {
            let stacks: Vec<StackId> = values.rows.iter().map(|(stack, _)| *stack).collect();
            let live = Hits::of_heap(tally, false);
            return drawn(args, &opened, (&live, &stacks), |shown, out| {
                export::otlp::events::heap(shown, &values, out)
            });
        }
        return written(args, &opened, &values);
    }
    let name = &probe_names::in_file(input, name)?;
    let (opened, tally) = open(input, choice, Output::Other, |select| EventTally::new(select.clone(), name, By::None))?;
    let name = opened.names.shown(name);
    let (point, account) = asked(&opened.profile, &input.file, name, &opened.select)?;
    Talk { quiet: input.quiet }.say(account);
    let [hits, weights] = [true, false].map(|of_hits| tally.scaled(&point, of_hits));
    let mut rows = BTreeMap::<_, [u64; 2]>::new();
    for (index, counts) in [&hits.counts, &weights.counts].into_iter().enumerate() {
        counts.iter().for_each(|count| rows.entry(count.stack).or_default()[index] += count.samples);
    }
    let signed = |values: [u64; 2]| values.map(|value| i64::try_from(value).unwrap_or(i64::MAX)).to_vec();
    let beside = [(LOST, [hits.lost, weights.lost]), (NOT_RECORDED, [hits.only_counted, weights.only_counted])];
    let (kind, unit) = (visible(name), unit_of(&point.unit));
    let values = Values {
        types: &[("hits", "count"), (&kind, unit)],
        default: 1,
        rows: rows.into_iter().map(|(stack, values)| (stack, signed(values))).collect(),
        beside: beside.into_iter().filter(|(_, all)| *all != [0, 0]).map(|(name, all)| (name, signed(all))).collect(),
        period: None,
    };
    written(args, &opened, &values)
}

/// For viewers that show time: each hit at its time.
fn over_time(args: &Export, name: &str) -> Result<u8, Error> {
    let input = &args.input;
    if name == LIVE {
        return live_over_time(args);
    }
    let name = &probe_names::in_file(input, name)?;
    let (opened, log) = open(input, &args.choice, Output::Other, |select| HitLog::new(select.clone(), name))?;
    let name = opened.names.shown(name);
    let (point, account) = asked(&opened.profile, &input.file, name, &opened.select)?;
    Talk { quiet: input.quiet }.say(account);
    let of = |of_hits| log.hits(name, &point, &opened.select, of_hits);
    let hits = of(false);
    #[cfg(feature = "parquet")]
    if args.to == Viewer::Parquet {
        return tables(args, &opened, (&hits, &of(true)));
    }
    drawn(args, &opened, (&hits, &[]), |shown, out| match args.to {
        Viewer::Firefox => export::firefox::hits::write(shown, &hits, out),
        #[cfg(feature = "otlp")]
        Viewer::Otlp => export::otlp::events::point(shown, (&hits, &of(true)), unit_of(&point.unit), out),
        _ => export::perfetto::hits::write(shown, &hits, out),
    })
}

/// For engines: each hit by its weight and by number.
#[cfg(feature = "parquet")]
fn tables(args: &Export, opened: &Opened, (weights, counts): (&Hits, &Hits)) -> Result<u8, Error> {
    with_input(args, opened, (weights, &[]), |shown| {
        let event = Some(export::parquet::hits::OfPoint { weights, counts });
        single::tables(args, (shown, &opened.profile), event)
    })
}

/// What was not freed; for Perfetto also what was.
fn live_over_time(args: &Export) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    refuse_cpus(choice, "--event heap.live")?;
    let (opened, tally) = open(input, choice, Output::Other, |select| HeapTally::new(select.clone(), By::None))?;
    let (allocs, tally) = (point(&opened.profile, &input.file, ALLOC)?, &tally);
    Talk { quiet: input.quiet }.say(account_of_live(tally, &allocs, &frees(&opened.profile)));
    #[cfg(feature = "parquet")]
    if args.to == Viewer::Parquet {
        return tables(args, &opened, (&Hits::of_heap(tally, false), &Hits::of_heap(tally, true)));
    }
    let (hits, rows) = (Hits::of_heap(tally, false).in_one_task(), tally.by_stack());
    let stacks: Vec<StackId> = rows.keys().copied().collect();
    drawn(args, &opened, (&hits, &stacks), |shown, out| match args.to {
        Viewer::Firefox => export::firefox::hits::write(shown, &hits, out),
        _ => export::perfetto::heap::write(shown, &hits, (&rows, tally.mean_bytes), out),
    })
}

fn drawn(
    args: &Export,
    opened: &Opened,
    hits: (&Hits, &[StackId]),
    write: impl FnOnce(&export::Input<'_>, &mut dyn Write) -> io::Result<()>,
) -> Result<u8, Error> {
    with_input(args, opened, hits, |shown| {
        with_output(&args.input, |out| write(shown, out).map_err(|error| write_failed(&args.input, error)))
    })
}

/// Calls `write` with what the exporters need of these hits, and of other stacks.
fn with_input(
    args: &Export,
    opened: &Opened,
    hits: (&Hits, &[StackId]),
    write: impl FnOnce(&export::Input<'_>) -> Result<(), Error>,
) -> Result<u8, Error> {
    let input = &args.input;
    let mut tracks = Tracks::new(opened.select.clone());
    tracks.tasks.clone_from(&hits.0.tasks);
    let about = (single::clock(opened, input)?, &input.file[..], &input.syms[..]);
    let names = (&opened.stacks, &opened.symbols, &opened.select);
    let shown = export::Input::of_hits(&tracks, hits, names, &opened.profile, about);
    write(&shown)?;
    Ok(opened.exit_code(input.limits(), hits.0.hits.len()))
}

/// The name of a unit that viewers know.
fn unit_of(unit: &str) -> &'static str {
    match unit {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "count",
    }
}

fn written(args: &Export, opened: &Opened, values: &Values<'_>) -> Result<u8, Error> {
    let names = (&opened.stacks, &opened.symbols, &opened.select);
    with_output(&args.input, |out| {
        let done = match args.to {
            Viewer::Speedscope => export::speedscope::values::write(values, names, &visible(&args.input.file), out),
            _ => {
                let about = export::pprof::About { lost: BTreeMap::new(), ..about_pprof(args, opened, None, 0.0) };
                export::pprof::values::write(values, names, &about, out)
            }
        };
        done.map_err(|error| write_failed(&args.input, error))
    })?;
    Ok(opened.exit_code(args.input.limits(), values.rows.len()))
}
