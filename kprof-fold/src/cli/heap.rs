//! `--event heap.live`, and `export --to pprof --event`: the kernel's heap. Stage: command line.
//!
//! In: a profile with recorded allocations and frees. Out: what was not freed, by stack; for pprof, what was allocated
//! besides. Lost records are said: an allocation whose free was lost counts as not freed.

use super::args::{Choice, Export, Input};
use super::compat::{Output, Rest};
use super::event::{self, EventFacts, account_of, point, refuse};
use super::load::{self, Loaded, Opened, Shows};
use super::out::{with_output, write_failed};
use super::single::about_pprof;
use super::talk::Talk;
use super::users;
use crate::error::Error;
use crate::events::EventTally;
use crate::fold::Folder;
use crate::heap::HeapTally;
use crate::output::export;
use crate::output::export::pprof::values::{HEAP, Values};
use crate::output::folded::{LOST, NOT_RECORDED};
use crate::points::Point;
use crate::profile::Profile;
use crate::symbols::name::visible;
use crate::tally::By;
use kprof_format::memory::{ALLOC, FREE, LIVE};
use kprof_format::point::PointCounter;
use std::collections::BTreeMap;

/// Reads, selects, symbolizes and folds the allocations that were not freed.
///
/// # Errors
/// If the input or the arguments are unusable, or the profile has no recorded allocation.
pub fn load(input: &Input, choice: &Choice) -> Result<Loaded, Error> {
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    if matches!(choice.by, By::Line | By::Reason) {
        return Err(Error::Usage("heap.live can be grouped by age, task, cpu and entry".to_owned()));
    }
    if users::are_given(input, &rest) {
        return Err(Error::Usage("user symbols by task do not work with --event yet".to_owned()));
    }
    let opened = load::open_any(input, choice, Output::Other, |select| HeapTally::new(select.clone(), choice.by))?;
    let Opened { consumer: tally, profile, stacks, symbols, select, account, problems, doubt, tsc_hz, .. } = opened;
    let allocs = point(&profile, &input.file, ALLOC)?;
    let (counts, groups) = tally.counts(choice.count, tsc_hz);
    let folder = Folder { symbols: &symbols, stacks: &stacks, select: &select, by: choice.by, groups: &groups };
    let folded = folder.fold(&counts);
    let event = EventFacts {
        unit: if choice.count { "allocations" } else { "bytes" }.to_owned(),
        name: LIVE.to_owned(),
        only_counted: 0,
        account: account_of_live(&tally, &allocs, &frees(&profile)),
    };
    if !input.shows_account {
        Talk { quiet: input.quiet }.say(&event.account);
    }
    Ok(Loaded {
        coalesced: 0,
        shown: Shows { lost: false, coalesced: false },
        doubt,
        folded,
        symbols,
        profile,
        account,
        problems,
        lost: 0,
        lost_is_attributable: false,
        event: Some(event),
    })
}

/// The sums of the frees over all boots.
fn frees(profile: &Profile) -> Point {
    let mut frees = Point::default();
    profile.boots.iter().filter_map(|boot| boot.points.get(FREE)).for_each(|point| frees.add(point));
    frees
}

/// What is known of the allocations that were not freed, in one line.
fn account_of_live(tally: &HeapTally, allocs: &Point, frees: &Point) -> String {
    let estimate = tally.live_estimate();
    let lost = |point: &Point| point.count(PointCounter::Lost);
    let mut text = format!(
        "{LIVE}: {} recorded allocations were not freed: {:.0} allocations, {:.0} bytes. Exact counts: {} bytes were \
         allocated, {} freed",
        tally.live(),
        estimate.allocations,
        estimate.bytes,
        allocs.weight,
        frees.weight,
    );
    if frees.count(PointCounter::Recorded) + lost(frees) == 0 {
        text += "; no free is recorded: either there was none, or heap.free was not recorded";
    }
    if lost(allocs) + lost(frees) > 0 {
        text += &format!(
            "; {} allocations and {} frees were lost (an allocation whose free was lost counts as not freed)",
            lost(allocs),
            lost(frees)
        );
    }
    text
}

/// `export --to pprof --event NAME`: the four sample types of a heap, or hits and weight of any other point.
pub fn pprof(args: &Export, name: &str) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    refuse(choice)?;
    if [ALLOC, LIVE].contains(&name) {
        let opened = load::open_any(input, choice, Output::Other, |select| HeapTally::new(select.clone(), By::None))?;
        let allocs = point(&opened.profile, &input.file, ALLOC)?;
        let tally = &opened.consumer;
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
        return written(args, &opened, &values);
    }
    let opened =
        load::open_any(input, choice, Output::Other, |select| EventTally::new(select.clone(), name, By::None))?;
    let point = event::point(&opened.profile, &input.file, name)?;
    Talk { quiet: input.quiet }.say(account_of(name, &point));
    let [hits, weights] = [true, false].map(|of_hits| opened.consumer.scaled(&point, of_hits));
    let mut rows = BTreeMap::<_, [u64; 2]>::new();
    for (index, counts) in [&hits.counts, &weights.counts].into_iter().enumerate() {
        counts.iter().for_each(|count| rows.entry(count.stack).or_default()[index] += count.samples);
    }
    let signed = |values: [u64; 2]| values.map(|value| i64::try_from(value).unwrap_or(i64::MAX)).to_vec();
    let beside = [(LOST, [hits.lost, weights.lost]), (NOT_RECORDED, [hits.only_counted, weights.only_counted])];
    let (kind, unit) = (visible(name), pprof_unit(&point.unit));
    let values = Values {
        types: &[("hits", "count"), (&kind, unit)],
        default: 1,
        rows: rows.into_iter().map(|(stack, values)| (stack, signed(values))).collect(),
        beside: beside.into_iter().filter(|(_, all)| *all != [0, 0]).map(|(name, all)| (name, signed(all))).collect(),
        period: None,
    };
    written(args, &opened, &values)
}

/// The name of a unit that pprof's readers know.
fn pprof_unit(unit: &str) -> &'static str {
    match unit {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "count",
    }
}

fn written<C>(args: &Export, opened: &Opened<C>, values: &Values<'_>) -> Result<u8, Error> {
    let about = export::pprof::About { lost: BTreeMap::new(), ..about_pprof(args, opened, None, 0.0) };
    let names = (&opened.stacks, &opened.symbols, &opened.select);
    with_output(&args.input, |out| {
        let done = export::pprof::values::write(values, names, &about, out);
        done.map_err(|error| write_failed(&args.input, error))
    })?;
    Ok(opened.exit_code(args.input.limits(), values.rows.len()))
}
