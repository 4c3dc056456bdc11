//! `--event NAME`: the recorded hits of a point instead of samples. Stage: command line.
//!
//! In: a profile with events, the name of a point. Out: its sums and what they say in words; for `script` each hit. A
//! choice that needs what events do not have is refused.

use super::args::{Choice, Script};
use super::compat::Output;
use super::load::open;
use super::nearest::did_you_mean;
use super::out::{with_output, write_failed};
use super::probe_names;
use super::single;
use super::talk::Talk;
use crate::error::Error;
use crate::output::script_events::EventLog;
use crate::points::Point;
use crate::profile::Profile;
use crate::select::{Cpus, Select, admits_known, in_words};
use crate::symbols::name::visible;
use kprof_format::memory;
use kprof_format::point::PointCounter;
use kprof_format::probe::POINT_PREFIX;
use std::collections::BTreeMap;

/// `script --event NAME`. Each event by itself needs no account, so every choice of events is possible.
pub fn script(args: &Script, name: &str) -> Result<u8, Error> {
    refuse_single(&args.choice, name, "script prints")?;
    let input = &args.input;
    single::refuse_users(input)?;
    let name = &probe_names::in_file(input, name)?;
    let (opened, mut log) = open(input, &args.choice, Output::Script, |select| EventLog::new(select.clone(), name))?;
    let (point, account) = asked(&opened.profile, &input.file, opened.names.shown(name), &opened.select)?;
    log.show_as(opened.names.shown(name));
    let style = single::style(args, &opened)?;
    Talk { quiet: input.quiet }.say(account);
    with_output(input, |out| {
        let done = log.write(&point.unit, (&opened.stacks, &opened.symbols), style, out);
        done.map_err(|error| write_failed(input, error))
    })?;
    Ok(opened.exit_code(input.limits(), log.len()))
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
pub fn reason(point: &Point, number: &str) -> String {
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
