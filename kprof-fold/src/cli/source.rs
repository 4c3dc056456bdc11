//! Weighted stacks: samples, the hits of a point, or what a heap has not freed. Stage: command line, before fold.
//!
//! In: a profile, and with `--event` the name of what is counted instead of samples. Out: a number for each stack and
//! group, what is known only as a sum, and what the numbers are. Every verb that shows functions takes them from here,
//! so that an event is a choice and no road of its own. A choice that needs what events do not have is refused.

use super::args::{Beside, Choice, Input};
use super::compat::{Output, Rest};
use super::event::{asked, point, reason, refuse, refuse_cpus};
use super::heap::{account_of_live, frees, is_doubtful, unit};
use super::load::{Opened, open};
use super::probe_names;
use super::talk::Talk;
use super::users;
use crate::diff::blocks::{Blocks, InBlocks};
use crate::error::Error;
use crate::events::parts::Part;
use crate::events::{EventFacts, EventTally};
use crate::heap::HeapTally;
use crate::output::folded;
use crate::profile::Unsampled;
use crate::read::consumer::Consumer;
use crate::spent;
use crate::symbols::name::visible;
use crate::tally::{By, Count, Tally};
use kprof_format::memory::{ALLOC, LIVE};

/// What was counted.
pub struct Counted {
    /// A number for each stack and group.
    pub counts: Vec<Count>,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// What was lost within the choice.
    pub lost: u64,
    /// Whether it is known that what was lost would have been among the chosen. (It is not if tasks are chosen.)
    pub lost_is_attributable: bool,
    /// What is drawn besides the stacks: the name and width of each frame.
    pub beside: Vec<(&'static str, u64)>,
    /// What the numbers are, if they are not samples.
    pub event: Option<EventFacts>,
    /// Whether records were lost, so that it is not certain what was not freed.
    pub is_doubtful: bool,
    /// For a comparison of samples: the same in blocks of time.
    pub blocks: Blocks,
    /// For a comparison of events: how exactly the weights are known.
    pub parts: Vec<Part>,
}

/// Reads a profile and counts what the choice asks for; with `is_compared` also how exact the numbers are.
///
/// # Errors
/// If the input or the arguments are unusable, or the profile has no such events.
pub fn count(input: &Input, choice: &Choice, is_compared: bool) -> Result<(Opened, Counted), Error> {
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    let has_users = users::are_given(input, &rest);
    let usage = |text: &str| Err(Error::Usage(text.to_owned()));
    match (choice.event.as_deref(), choice.by) {
        (None, By::Line) => return usage("--by line works with report; --lines shows lines elsewhere"),
        (None, By::Reason) => return usage("--by reason works with --event: samples are not taken for a reason"),
        (None, By::Age) => return usage("--by age works with --event heap.live: samples have no age"),
        (None, By::Cpu) if has_users => return usage("--by cpu cannot be had with user symbols by task"),
        (Some(LIVE), By::Line | By::Reason) => return usage("heap.live can be grouped by age, task, cpu and entry"),
        (Some(LIVE), _) => {}
        (Some(_), By::Age) => return usage("--by age works with --event heap.live"),
        (Some(_), By::Line) => return usage("--by line works with samples; --lines shows lines of events"),
        _ => {}
    }
    if choice.event.is_some() {
        refuse(choice)?;
        if has_users {
            return usage("user symbols by task do not work with --event yet");
        }
    }
    // The meaning of a user address then depends on the task, so stacks are counted by task.
    let by = if has_users { By::Task } else { choice.by };
    let (opened, counted) = match choice.event.as_deref() {
        None if is_compared => samples(input, choice, InBlocks::new, by, |all| all.blocks)?,
        None => samples(input, choice, |tally| tally, by, |_| Blocks::default())?,
        Some(LIVE) => live(input, choice, is_compared)?,
        Some(name) => hits(input, choice, name, is_compared)?,
    };
    if let Some(event) = counted.event.as_ref().filter(|_| !input.shows_account) {
        Talk { quiet: input.quiet }.say(&event.account);
    }
    Ok((opened, counted))
}

fn samples<C: Consumer + AsRef<Tally>>(
    input: &Input,
    choice: &Choice,
    consumer: impl Fn(Tally) -> C,
    by: By,
    blocks: impl FnOnce(C) -> Blocks,
) -> Result<(Opened, Counted), Error> {
    let (opened, consumer) = open(input, choice, Output::Other, |select| consumer(Tally::new(select.clone(), by)))?;
    let unsampled = spent::unsampled(&opened.profile, &opened.select);
    let lost_is_attributable = opened.select.tasks.is_empty();
    let tally = consumer.as_ref();
    let counted = Counted {
        counts: tally.counts(),
        groups: tally.groups().to_vec(),
        lost: unsampled.lost,
        lost_is_attributable,
        beside: beside(choice, &unsampled, lost_is_attributable),
        event: None,
        is_doubtful: false,
        blocks: blocks(consumer),
        parts: Vec::new(),
    };
    Ok((opened, counted))
}

/// The frames for ticks without a sample. If only some tasks are shown, it is not known to which of them a tick
/// belongs.
fn beside(choice: &Choice, ticks: &Unsampled, is_attributable: bool) -> Vec<(&'static str, u64)> {
    let all = [
        (choice.shows_lost(), folded::LOST, folded::LOST_ANYWHERE, ticks.lost),
        (choice.show.contains(&Beside::Coalesced), folded::COALESCED, folded::COALESCED_ANYWHERE, ticks.coalesced),
        (choice.show.contains(&Beside::User), folded::USER, folded::USER_ANYWHERE, ticks.user),
        (choice.show.contains(&Beside::Idle), folded::IDLE, folded::IDLE_ANYWHERE, ticks.idle),
    ];
    let shown = all.into_iter().filter(|(is_shown, ..)| *is_shown);
    shown.map(|(_, name, anywhere, ticks)| (if is_attributable { name } else { anywhere }, ticks)).collect()
}

/// The hits of a point, scaled to its exact totals.
fn hits(input: &Input, choice: &Choice, name: &str, is_compared: bool) -> Result<(Opened, Counted), Error> {
    let name = &probe_names::in_file(input, name)?;
    let (opened, tally) =
        open(input, choice, Output::Other, |select| EventTally::new(select.clone(), name, choice.by))?;
    let name = opened.names.shown(name);
    let (point, account) = asked(&opened.profile, &input.file, name, &opened.select)?;
    let scaled = tally.scaled(&point, choice.count);
    let groups = match choice.by {
        By::Reason => tally.groups().iter().map(|number| reason(&point, number)).collect(),
        _ => tally.groups().to_vec(),
    };
    let lost_is_attributable = opened.select.tasks.is_empty();
    let only_counted = if lost_is_attributable { scaled.only_counted } else { 0 };
    let lost_name = if lost_is_attributable { folded::LOST } else { folded::LOST_ANYWHERE };
    let width = |width| if choice.shows_lost() { width } else { 0 };
    let counted = Counted {
        counts: scaled.counts,
        groups,
        lost: scaled.lost,
        lost_is_attributable,
        beside: vec![(lost_name, width(scaled.lost)), (folded::NOT_RECORDED, width(only_counted))],
        is_doubtful: false,
        blocks: Blocks::default(),
        parts: if is_compared { tally.parts(&point, choice.count) } else { Vec::new() },
        event: Some(EventFacts {
            unit: if choice.count { "hits".to_owned() } else { visible(&point.unit).into_owned() },
            name: visible(name).into_owned(),
            only_counted,
            account,
            sums: Some(point),
        }),
    };
    Ok((opened, counted))
}

/// What a heap has not freed.
fn live(input: &Input, choice: &Choice, is_compared: bool) -> Result<(Opened, Counted), Error> {
    refuse_cpus(choice, "--event heap.live")?;
    let (opened, tally) = open(input, choice, Output::Other, |select| HeapTally::new(select.clone(), choice.by))?;
    let (allocs, frees) = (point(&opened.profile, &input.file, ALLOC)?, frees(&opened.profile));
    let (counts, groups) = tally.counts(choice.count, opened.tsc_hz);
    let counted = Counted {
        parts: if is_compared { tally.parts(choice.count, opened.tsc_hz, &groups) } else { Vec::new() },
        counts,
        groups,
        lost: 0,
        lost_is_attributable: false,
        beside: Vec::new(),
        is_doubtful: is_doubtful(&allocs, &frees),
        blocks: Blocks::default(),
        event: Some(EventFacts {
            unit: unit(choice.count).to_owned(),
            name: LIVE.to_owned(),
            only_counted: 0,
            account: account_of_live(&tally, &allocs, &frees),
            sums: None,
        }),
    };
    Ok((opened, counted))
}
