//! `--event heap.live`: the kernel's heap. Stage: command line.
//!
//! In: a profile with recorded allocations and frees. Out: what was not freed, by stack or by line. Lost records are
//! said: an allocation whose free was lost counts as not freed.

use super::args::{Annotate, Choice, Input};
use super::compat::{Output, Rest};
use super::event::{annotated, point, refuse_cpus};
use super::load::{self, Loaded, Opened};
use super::talk::Talk;
use super::users;
use crate::diff::weights::Run;
use crate::error::Error;
use crate::events::EventFacts;
use crate::fold::Folder;
use crate::heap::HeapTally;
use crate::points::Point;
use crate::profile::Profile;
use crate::tally::By;
use kprof_format::memory::{ALLOC, FREE, LIVE};
use kprof_format::point::PointCounter;

/// Reads, selects, symbolizes and folds the allocations that were not freed. With `subtrees` it also says how exactly
/// their weights are known, as [`super::event::load_run`] does.
///
/// # Errors
/// If the input or the arguments are unusable, or the profile has no recorded allocation.
pub fn load(input: &Input, choice: &Choice, subtrees: Option<bool>) -> Result<(Loaded, Run), Error> {
    refuse_cpus(choice, "--event heap.live")?;
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    if matches!(choice.by, By::Line | By::Reason) {
        return Err(Error::Usage("heap.live can be grouped by age, task, cpu and entry".to_owned()));
    }
    if users::are_given(input, &rest) {
        return Err(Error::Usage("user symbols by task do not work with --event yet".to_owned()));
    }
    let opened = load::open_any(input, choice, Output::Other, |select| HeapTally::new(select.clone(), choice.by))?;
    let Opened { consumer: tally, profile, stacks, symbols, select, account, problems, tsc_hz, .. } = opened;
    let allocs = point(&profile, &input.file, ALLOC)?;
    let (counts, groups) = tally.counts(choice.count, tsc_hz);
    let folder = Folder { symbols: &symbols, stacks: &stacks, select: &select, by: choice.by, groups: &groups };
    let folded = folder.fold(&counts);
    let parts = || tally.parts(choice.count, tsc_hz, &groups);
    let mut run = subtrees.map_or_else(Run::default, |subtrees| Run::of(&folded, &parts(), &folder, subtrees));
    run.is_doubtful = is_doubtful(&allocs, &frees(&profile));
    let event = EventFacts {
        unit: unit(choice.count).to_owned(),
        name: LIVE.to_owned(),
        only_counted: 0,
        account: account_of_live(&tally, &allocs, &frees(&profile)),
        sums: None,
    };
    if !input.shows_account {
        Talk { quiet: input.quiet }.say(&event.account);
    }
    let loaded = Loaded {
        beside: Vec::new(),
        folded,
        symbols,
        profile,
        account,
        problems,
        lost: 0,
        lost_is_attributable: false,
        event: Some(event),
    };
    Ok((loaded, run))
}

/// `annotate --event heap.live`: the lines in which allocations were made that were not freed.
///
/// # Errors
/// As [`load()`], or if the function has none.
pub fn annotate(args: &Annotate) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    refuse_cpus(choice, "--event heap.live")?;
    let choice = choice.for_table();
    let opened = load::open_any(input, &choice, Output::Other, |select| HeapTally::new(select.clone(), By::None))?;
    let (allocs, frees) = (point(&opened.profile, &input.file, ALLOC)?, frees(&opened.profile));
    Talk { quiet: input.quiet }.say(account_of_live(&opened.consumer, &allocs, &frees));
    let note = if is_doubtful(&allocs, &frees) {
        "records of allocations or frees were lost: an allocation whose free was lost counts as not freed"
    } else {
        ""
    };
    let (counts, _) = opened.consumer.counts(choice.count, opened.tsc_hz);
    annotated(args, &opened, (&counts, 0), (unit(choice.count), note))
}

/// The unit of what was not freed.
pub(super) fn unit(of_allocations: bool) -> &'static str {
    if of_allocations { "allocations" } else { "bytes" }
}

/// Whether records were lost, so that it is not certain what was not freed.
pub(super) fn is_doubtful(allocs: &Point, frees: &Point) -> bool {
    [allocs, frees].iter().any(|point| point.count(PointCounter::Lost) > 0)
}

/// Whether there is a free in the file, or was one.
pub(super) fn has_frees(frees: &Point) -> bool {
    frees.count(PointCounter::Recorded) + frees.count(PointCounter::Lost) > 0
}

/// The sums of the frees over all boots.
pub(super) fn frees(profile: &Profile) -> Point {
    let mut frees = Point::default();
    profile.boots.iter().filter_map(|boot| boot.points.get(FREE)).for_each(|point| frees.add(point));
    frees
}

/// What is known of the allocations that were not freed, in one line.
pub(super) fn account_of_live(tally: &HeapTally, allocs: &Point, frees: &Point) -> String {
    let estimate = tally.live_estimate();
    let lost = |point: &Point| point.count(PointCounter::Lost);
    let mut text = format!(
        "{LIVE}: {} recorded allocations were not freed: {:.0} allocations, {:.0} bytes. Exact counts: {} bytes were \
         allocated, {} freed",
        tally.live(),
        estimate.allocations,
        estimate.bytes,
        allocs.weight(),
        frees.weight(),
    );
    if !has_frees(frees) {
        text += "; no free is recorded: either there was none, or heap.free was not recorded";
    }
    if tally.unknown() > 0 {
        text += &format!(
            "; {} recorded allocations are not known to be freed or not, and not shown: heap.free was off after them",
            tally.unknown()
        );
    }
    if is_doubtful(allocs, frees) {
        text += &format!(
            "; {} allocations and {} frees were lost (an allocation whose free was lost counts as not freed)",
            lost(allocs),
            lost(frees)
        );
    }
    text
}
