//! `--event NAME`: the recorded hits of a point instead of samples. Stage: command line.
//!
//! In: a profile with events, the name of a point. Out: its stacks by weight or by hits, scaled to the exact totals;
//! what was lost and what was only counted, as frames of their own. A choice that needs what events do not have is
//! refused.

use super::args::{Annotate, Choice, Input, Script};
use super::compat::{Output, Rest};
use super::heap;
use super::load::{self, Loaded, Opened};
use super::nearest::did_you_mean;
use super::out::{with_output, write_failed};
use super::probe_names;
use super::single;
use super::talk::Talk;
use super::users;
use crate::diff::weights::Run;
use crate::error::Error;
use crate::events::{EventFacts, EventTally};
use crate::fold::Folder;
use crate::output::folded::{LOST, LOST_ANYWHERE, NOT_RECORDED};
use crate::output::script::Style;
use crate::output::script_events::EventLog;
use crate::points::Point;
use crate::profile::Profile;
use crate::select::{Cpus, Select, admits_known, in_words};
use crate::symbols::name::visible;
use crate::tally::{By, Count};
use kprof_format::memory;
use kprof_format::point::PointCounter;
use kprof_format::probe::POINT_PREFIX;
use std::collections::BTreeMap;

/// Reads, selects, symbolizes and folds the events of the point `name`.
///
/// # Errors
/// If the input or the arguments are unusable, or the profile has no such events.
pub fn load(input: &Input, choice: &Choice, name: &str) -> Result<Loaded, Error> {
    load_for(input, choice, name, None).map(|(loaded, _)| loaded)
}

/// As `load`, with how exactly the weights are known. With `subtrees` also those of the paths from the root.
///
/// # Errors
/// As `load`.
pub fn load_run(input: &Input, choice: &Choice, name: &str, subtrees: bool) -> Result<(Loaded, Run), Error> {
    let (loaded, mut run) = load_for(input, choice, name, Some(subtrees))?;
    run.lost = loaded.lost;
    run.only_counted = loaded.event.as_ref().map_or(0, |event| event.only_counted);
    Ok((loaded, run))
}

fn load_for(input: &Input, choice: &Choice, name: &str, subtrees: Option<bool>) -> Result<(Loaded, Run), Error> {
    refuse(choice)?;
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    if name == memory::LIVE {
        return heap::load(input, choice, subtrees);
    }
    if choice.by == By::Age {
        return Err(Error::Usage("--by age works with --event heap.live".to_owned()));
    }
    if choice.by == By::Line {
        return Err(Error::Usage("--by line works with samples; --lines shows lines of events".to_owned()));
    }
    if users::are_given(input, &rest) {
        return Err(Error::Usage("user symbols by task do not work with --event yet".to_owned()));
    }
    let name = &probe_names::in_file(input, name)?;
    let opened =
        load::open_any(input, choice, Output::Other, |select| EventTally::new(select.clone(), name, choice.by))?;
    let Opened { consumer: tally, profile, stacks, symbols, names, select, account, problems, .. } = opened;
    let name = names.shown(name);
    let (point, account_in_words) = asked(&profile, &input.file, name, &select)?;
    let scaled = tally.scaled(&point, choice.count);
    let reasons: Vec<String> = tally.groups().iter().map(|number| reason(&point, number)).collect();
    let groups = if choice.by == By::Reason { &reasons } else { tally.groups() };
    let folder = Folder { symbols: &symbols, stacks: &stacks, select: &select, by: choice.by, groups };
    let folded = folder.fold(&scaled.counts);
    let parts = || tally.parts(&point, choice.count);
    let run = subtrees.map_or_else(Run::default, |subtrees| Run::of(&folded, &parts(), &folder, subtrees));
    let lost_is_attributable = select.tasks.is_empty();
    let event = EventFacts {
        unit: if choice.count { "hits".to_owned() } else { visible(&point.unit).into_owned() },
        name: visible(name).into_owned(),
        only_counted: if lost_is_attributable { scaled.only_counted } else { 0 },
        account: account_in_words,
        sums: Some(point),
    };
    if !input.shows_account {
        Talk { quiet: input.quiet }.say(&event.account);
    }
    let lost_name = if lost_is_attributable { LOST } else { LOST_ANYWHERE };
    let width = |width| if choice.shows_lost() { width } else { 0 };
    let beside = vec![(lost_name, width(scaled.lost)), (NOT_RECORDED, width(event.only_counted))];
    let loaded = Loaded {
        beside,
        folded,
        symbols,
        profile,
        account,
        problems,
        lost: scaled.lost,
        lost_is_attributable,
        event: Some(event),
    };
    Ok((loaded, run))
}

/// `script --event NAME`. Each event by itself needs no account, so every choice of events is possible.
pub fn script(args: &Script, name: &str) -> Result<u8, Error> {
    refuse_single(&args.choice, name, "script prints")?;
    let input = &args.input;
    single::refuse_users(input)?;
    let name = &probe_names::in_file(input, name)?;
    let mut opened = load::open_any(input, &args.choice, Output::Script, |select| EventLog::new(select.clone(), name))?;
    let (point, account) = asked(&opened.profile, &input.file, opened.names.shown(name), &opened.select)?;
    opened.consumer.show_as(opened.names.shown(name));
    let asked = opened.style;
    let style = Style {
        tsc_hz: single::clock(&opened, input)?,
        user: opened.select.user,
        offsets: args.offsets || asked.offsets,
        expand_offsets: args.expand_offsets || asked.expand_offsets,
        stop_at_unknown: args.stop_at_unknown || asked.stop_at_unknown,
    };
    Talk { quiet: input.quiet }.say(account);
    with_output(input, |out| {
        let done = opened.consumer.write(&point.unit, (&opened.stacks, &opened.symbols), style, out);
        done.map_err(|error| write_failed(input, error))
    })?;
    Ok(opened.exit_code(input.limits(), opened.consumer.len()))
}

/// `annotate --event NAME`: where a function calls the point, or calls what leads to it.
pub fn annotate(args: &Annotate, name: &str) -> Result<u8, Error> {
    let (input, choice) = (&args.input, &args.choice);
    refuse(choice)?;
    if name == memory::LIVE {
        return heap::annotate(args);
    }
    let name = &probe_names::in_file(input, name)?;
    let opened = load::open_any(input, &choice.for_table(), Output::Other, |select| {
        EventTally::new(select.clone(), name, By::None)
    })?;
    let (point, account) = asked(&opened.profile, &input.file, opened.names.shown(name), &opened.select)?;
    Talk { quiet: input.quiet }.say(account);
    let scaled = opened.consumer.scaled(&point, choice.count);
    let unit = if choice.count { "hits".to_owned() } else { visible(&point.unit).into_owned() };
    let (lost, only_counted) = (scaled.lost, scaled.only_counted);
    let note = match (lost, only_counted) {
        (0, 0) => String::new(),
        _ => format!("{lost} {unit} lost and {only_counted} {unit} not recorded may be in any function"),
    };
    annotated(args, &opened, (&scaled.counts, lost), (&unit, &note))
}

/// Writes the lines of the function that was asked for, from these counts.
pub(super) fn annotated<C>(
    args: &Annotate,
    opened: &Opened<C>,
    (counted, lost): (&[Count], u64),
    (unit, note): (&str, &str),
) -> Result<u8, Error> {
    let mut counts = BTreeMap::new();
    let admitted = counted.iter().filter(|one| opened.select.admits_traits(opened.stacks.traits(one.stack)));
    admitted.for_each(|one| *counts.entry(one.stack).or_default() += one.samples);
    let hits = counts.values().fold(0, |sum: u64, one| sum.saturating_add(*one));
    single::annotated(args, opened, counts, Some((unit, note)))?;
    Ok(load::exit_code(args.input.limits(), &opened.problems, &opened.account, (hits, lost)))
}

/// Refuses what single events do not have. `does` is what is done with them.
fn refuse_single(choice: &Choice, name: &str, does: &str) -> Result<(), Error> {
    if name == memory::LIVE {
        return Err(Error::Usage(format!("{does} events: --event heap.alloc, --event heap.free")));
    }
    if choice.count {
        return Err(Error::Usage(format!("--count is for folded events; {does} each of them")));
    }
    if choice.irq_off || choice.irq_on {
        return Err(Error::Usage("an event does not say whether interrupts were on".to_owned()));
    }
    Ok(())
}

/// Refuses `--event`, with the reason why it has no meaning for this verb.
pub fn refuse_verb(choice: &Choice, verb: &str, why: &str) -> Result<(), Error> {
    match choice.event {
        Some(_) => Err(Error::Usage(format!("--event does not work with {verb}: {why}"))),
        None => Ok(()),
    }
}

/// Refuses conditions that folded events cannot fulfil.
pub fn refuse(choice: &Choice) -> Result<(), Error> {
    let refused = |option: &str, why: &str| Err(Error::Usage(format!("{option} does not work with --event: {why}")));
    if !choice.between.is_empty() {
        let why = "the account of a point, to which its weights are scaled, is that of the whole file and not of a \
                   part of its time. script --event and the page of html --event show a part";
        return refused("--between", why);
    }
    let option = if choice.irq_off { "--irq-off" } else { "--irq-on" };
    if choice.irq_off || choice.irq_on {
        return refused(option, "an event does not say whether interrupts were on");
    }
    Ok(())
}

/// Refuses to choose CPUs of what is computed from allocations and frees.
pub fn refuse_cpus(choice: &Choice, what: &str) -> Result<(), Error> {
    if choice.cpu.is_empty() {
        return Ok(());
    }
    let why = "a block may be freed on another CPU than the one that allocated it";
    Err(Error::Usage(format!(
        "--cpu does not work with {what}: {why}. --by cpu, and the CPUs of the page, show where it was allocated"
    )))
}

/// The sums of a point over all boots and the CPUs asked for, and what they say in words.
///
/// # Errors
/// As [`point`].
pub fn asked(profile: &Profile, file: &str, name: &str, select: &Select) -> Result<(Point, String), Error> {
    let whole = point(profile, file, name)?;
    if select.cpus.is_empty() {
        let account = account_of(name, &whole);
        return Ok((whole, account));
    }
    let (point, elsewhere) = (whole.of_cpus(|cpu| admits_known(&select.cpus, cpu)), whole.of_cpus(|cpu| cpu.is_none()));
    let mut account = account_of(&on_cpus(name, &select.cpus), &point);
    if elsewhere.hits() > 0 {
        let (hits, weight, unit) = (elsewhere.hits(), elsewhere.weight(), visible(&whole.unit));
        account +=
            &format!("; in the numbers of no CPU are lost hits whose CPU is not known: {hits} ({weight} {unit})");
    }
    Ok((point, account))
}

/// The sums of a point over all boots.
///
/// # Errors
/// If the profile has no event of it, with the reason.
pub fn point(profile: &Profile, file: &str, name: &str) -> Result<Point, Error> {
    let mut all = BTreeMap::<&str, Point>::new();
    for (name, point) in profile.boots.iter().flat_map(|boot| &boot.points) {
        all.entry(name).or_default().add(point);
    }
    let hint = did_you_mean(name, all.keys().copied());
    let Some(point) = all.remove(name) else {
        return Err(Error::unusable(file, format!("has no point {name}{hint}")));
    };
    let (recorded, lost) = (point.count(PointCounter::Recorded), point.count(PointCounter::Lost));
    if point.in_file() + recorded + lost == 0 {
        let counted = if point.hits() > 0 { "only counted (kprof-fold latency shows them)" } else { "not counted" };
        // The kernel knows a probe by its address.
        let in_kernel = if name.starts_with(POINT_PREFIX) { "probe.*" } else { name };
        let todo = format!("record them, with the ctl command `event {in_kernel} record`");
        let why = format!("the hits of {name} were {counted}: {todo}");
        return Err(Error::unusable(file, why));
    }
    Ok(point)
}

/// The name of a point, with the CPUs if they were chosen.
pub fn on_cpus(name: &str, cpus: &[Cpus]) -> String {
    if cpus.is_empty() { name.to_owned() } else { format!("{name} on CPU {}", in_words(cpus)) }
}

/// What the first argument of an event means, as the name of a frame.
fn reason(point: &Point, number: &str) -> String {
    let word = number.parse().ok().and_then(|number: usize| point.values.get(number));
    match (word, number) {
        (Some(word), _) => format!("[{}]", visible(word)),
        (None, "") => "[no reason]".to_owned(),
        (None, number) => format!("[reason {number}]"),
    }
}

/// What became of the hits of a point.
pub fn account_of(name: &str, point: &Point) -> String {
    let [recorded, filtered, lost] =
        [PointCounter::Recorded, PointCounter::Filtered, PointCounter::Lost].map(|counter| point.count(counter));
    let (hits, weight, unit) = (point.hits(), point.weight(), visible(&point.unit));
    let balance = if point.is_balanced() { "" } else { " (not balanced)" };
    format!(
        "{}: {hits} hits = {recorded} recorded + {filtered} filtered + {lost} lost{balance}, {weight} {unit} in all; \
         {} events in the file{}",
        visible(name),
        point.in_file(),
        point.doubt()
    )
}
