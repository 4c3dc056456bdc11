//! Load: from arguments to folded stacks, for every subcommand that shows stacks. Stage: command line.
//!
//! In: [`Input`]. Out: [`Loaded`]. What was skipped, whether the account balances, and what was lost are printed on
//! standard error before the result is returned.

use super::args::{Beside, Choice, Input, Limits, Shown};
use super::between;
use super::boots;
use super::clocks;
use super::compat::{Output, Rest, ScriptStyle};
use super::event;
use super::images;
use super::matched;
use super::mistakes;
use super::pass::{self, Read};
use super::places;
use super::placing;
use super::probe_names::Names;
use super::talk::Talk;
use super::users;
use super::values;
use crate::account::Account;
use crate::diff::Run;
use crate::diff::blocks::InBlocks;
use crate::error::Error;
use crate::events::EventFacts;
use crate::fold::{Folded, Folder};
use crate::output::folded;
use crate::output::page::facts::name_of;
use crate::problems::Problems;
use crate::profile::{Profile, Unsampled};
use crate::read::consumer::Consumer;
use crate::select::Select;
use crate::spent;
use crate::stacks::Stacks;
use crate::symbols::{Symbols, callers, stub};
use crate::tally::{By, Tally};

/// Exit code: something in the input was skipped.
pub const SKIPPED: u8 = 1;
/// Exit code: a larger part of the samples was lost than the limit allows.
pub const TOO_MUCH_LOST: u8 = 3;
/// Exit code: the account does not balance.
pub const UNBALANCED: u8 = 5;

/// The data that the outputs need.
pub struct Loaded {
    /// The folded stacks.
    pub folded: Folded,
    /// Names.
    pub symbols: Symbols,
    /// Header and counters.
    pub profile: Profile,
    /// The account.
    pub account: Account,
    /// What was skipped.
    pub problems: Problems,
    /// Samples lost within the selected CPUs and times.
    pub lost: u64,
    /// Whether it is known that the lost samples would have been among the selected ones. (It is not if tasks are
    /// selected.)
    pub lost_is_attributable: bool,
    /// What is drawn besides the samples: the name and width of each frame.
    pub beside: Vec<(&'static str, u64)>,
    /// What the counts are, if they are not samples.
    pub event: Option<EventFacts>,
}

/// A profile that was read, with its symbols, before folding.
pub struct Opened<C> {
    /// The consumer that has received the samples.
    pub consumer: C,
    /// Header and counters.
    pub profile: Profile,
    /// The distinct stacks.
    pub stacks: Stacks,
    /// Names.
    pub symbols: Symbols,
    /// The names of the points of probes.
    pub names: Names,
    /// The selection of samples.
    pub select: Select,
    /// The account.
    pub account: Account,
    /// What was skipped.
    pub problems: Problems,
    /// TSC ticks per second: from the header, otherwise from the arguments.
    pub tsc_hz: Option<f64>,
    /// The reasons against the symbols, if the profile does not identify them.
    pub doubt: Option<String>,
    /// The settings for `script` from the arguments of redox-kprofiling.
    pub style: ScriptStyle,
}

/// Reads a profile and its symbols, and prints the messages about them on standard error.
///
/// # Errors
/// If the input or the arguments are unusable.
pub fn open<C: Consumer>(
    input: &Input,
    choice: &Choice,
    output: Output,
    consumer: impl Fn(&Select) -> C,
) -> Result<Opened<C>, Error> {
    refuse_event(choice)?;
    open_any(input, choice, output, consumer)
}

/// As [`open`], for an output that can show events too.
///
/// # Errors
/// As [`open`].
pub fn open_any<C: Consumer>(
    input: &Input,
    choice: &Choice,
    output: Output,
    consumer: impl Fn(&Select) -> C,
) -> Result<Opened<C>, Error> {
    let talk = Talk { quiet: input.quiet };
    let rest = Rest::for_output(input, output)?;
    if input.file == "-" && input.syms == "-" {
        return Err(Error::Usage(
            "FILE and SYMS cannot both be standard input; give a file for one of them".to_owned(),
        ));
    }
    mistakes::swapped(input)?;
    let mut select = select(choice, &rest);
    if let [from, to] = &choice.between[..] {
        select.between = Some(between::resolve(input, from, to, rest.tsc_hz)?);
    }
    let mut problems = Problems::default();
    let mut symbols = Symbols::open_with(&input.syms, input.debug_file.as_deref(), &mut problems)?;
    symbols.inlines = choice.inlines();
    symbols.with_lines = choice.lines;
    symbols.merge_generics = choice.merge_generics;
    users::open(input, &rest, &mut symbols, &mut problems)?;
    // `script` prints each sample once, and events are not taken at a rate.
    let has_rates = output != Output::Script && choice.event.is_none();
    let Read { mut reading, watched, doubt: of_rates } =
        pass::read(input, &select, consumer, users::watch(input, &rest)?, has_rates)?;
    matched::cpus(&reading.profile, &select)?;
    problems.append(reading.problems);
    places::settle(&reading.profile, &mut reading.stacks);
    placing::place_symbols((&input.file, &input.syms, input.force), &reading.profile, &mut symbols, talk)?;
    let names = Names::of(&reading.profile, &symbols);
    names.rename(&mut reading.profile);
    images::open(input, (&reading.profile, select.between), &mut symbols, &mut problems, talk)?;
    let mut doubt = placing::doubt(&reading.profile, &reading.stacks, &symbols);
    let mut doubts = Vec::new();
    let mut say = |file: &str, what: &str, why: &str| {
        let text = format!("does not look like the symbols of {what}: {why}");
        if input.strict && !input.force {
            return Err(Error::unusable(file, format!("{text}. Give the symbols of that build, or --force")));
        }
        let text = format!("{text}; every name may be wrong. Give the symbols of that build");
        talk.say(format_args!("{file}: {text}"));
        // What is shared has no folders of this machine.
        doubts.push(format!("{} {}", name_of(file), text.replace(&input.file, &name_of(&input.file))));
        Ok(())
    };
    let mut missing = None;
    match &doubt {
        Some(why) => say(&input.syms, &input.file, why)?,
        None => missing = stub::missing_function(&reading.stacks, &symbols),
    }
    users::settle((input, &rest), &mut symbols, (&reading.stacks, &watched), talk, |file, task, why| {
        say(file, &format!("{task} in {}", input.file), &why)?;
        doubt.get_or_insert(format!("{file}: {why}"));
        Ok(())
    })?;
    if let (Some(why), true) = (&missing, input.strict && !input.force) {
        return Err(Error::unusable(&input.file, format!("{why}. Record it again, or give --force")));
    }
    let absent = clocks::without_samples(&reading.profile, select.between, |cpu| select.admits_cpu(cpu));
    let undecided = callers::undecided(&reading.stacks, &symbols);
    for why in missing.into_iter().chain(undecided).chain(boots::doubt(&reading.profile)).chain(absent).chain(of_rates)
    {
        talk.say(format_args!("{}: {why}", input.file));
        doubts.push(why);
    }
    reading.profile.doubts = doubts;
    let account = Account::of(&reading.profile);
    talk.say(&problems);
    if !input.shows_account {
        talk.say(&account);
    }
    let tsc_hz = values::clock(rest.tsc_hz, &reading.profile, talk);
    Ok(Opened {
        consumer: reading.consumer,
        doubt,
        profile: reading.profile,
        stacks: reading.stacks,
        symbols,
        names,
        select,
        account,
        problems,
        tsc_hz,
        style: rest.style,
    })
}

/// Refuses events, for an output that only has a meaning for samples.
fn refuse_event(choice: &Choice) -> Result<(), Error> {
    let todo = "--event does not work here: this output shows samples, and not the hits of a point";
    if choice.event.is_some() { Err(Error::Usage(todo.to_owned())) } else { Ok(()) }
}

/// As [`load`], for an output that can show events too.
///
/// # Errors
/// As [`load`].
pub fn load_any(input: &Input, choice: &Choice) -> Result<Loaded, Error> {
    choice.event.as_ref().map_or_else(|| load(input, choice), |name| event::load(input, choice, name))
}

/// Reads, selects, symbolizes and folds.
///
/// # Errors
/// If the input or the arguments are unusable.
pub fn load(input: &Input, choice: &Choice) -> Result<Loaded, Error> {
    load_as(input, choice, |tally| tally, |_: &Tally, _| (), false).map(|(loaded, ())| loaded)
}

/// As [`load`], with the run for a comparison.
///
/// # Errors
/// As [`load`].
pub fn load_run(input: &Input, choice: &Choice, subtrees: bool) -> Result<(Loaded, Run), Error> {
    let blocks = |all: &InBlocks, folder: &Folder<'_>| match (folder.by, folder.symbols.users.is_empty()) {
        (By::None | By::Entry, true) => all.blocks.counts(folder, subtrees),
        // The name of a frame depends on more than the stack.
        _ => Vec::new(),
    };
    let (loaded, blocks) = load_as(input, choice, InBlocks::new, blocks, true)?;
    // Each boot has a time of its own.
    let blocks = if loaded.profile.boots.len() > 1 { Vec::new() } else { blocks };
    let run = Run { blocks, unequal: loaded.profile.unequal, ..Run::of(&loaded.folded, subtrees) };
    Ok((loaded, run))
}

/// As [`load`], with another consumer than a tally, and what else is made of it; `is_side`: of a comparison.
fn load_as<C: Consumer + AsRef<Tally>, R>(
    input: &Input,
    choice: &Choice,
    consumer: impl Fn(Tally) -> C,
    more: impl FnOnce(&C, &Folder<'_>) -> R,
    is_side: bool,
) -> Result<(Loaded, R), Error> {
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    // In this case the meaning of a user address depends on the task, so stacks are counted by task.
    if choice.by == By::Line {
        return Err(Error::Usage("--by line works with report; --lines shows lines elsewhere".to_owned()));
    }
    if choice.by == By::Reason {
        return Err(Error::Usage("--by reason works with --event: samples are not taken for a reason".to_owned()));
    }
    if choice.by == By::Age {
        return Err(Error::Usage("--by age works with --event heap.live: samples have no age".to_owned()));
    }
    let groups = match (users::are_given(input, &rest), choice.by) {
        (true, By::Cpu) => {
            return Err(Error::Usage("--by cpu cannot be had with user symbols by task".to_owned()));
        }
        (true, _) => By::Task,
        (false, by) => by,
    };
    let opened = open(input, choice, Output::Other, |select| consumer(Tally::new(select.clone(), groups)))?;
    let Opened { consumer, profile, stacks, symbols, select, account, problems, .. } = opened;
    let tally = consumer.as_ref();
    let folder = Folder { symbols: &symbols, stacks: &stacks, select: &select, by: choice.by, groups: tally.groups() };
    let folded = folder.fold(&tally.counts());
    let made = more(&consumer, &folder);
    matched::functions(&folded, &symbols, &select, is_side, Talk { quiet: input.quiet })?;
    if folded.stacks.is_empty() && !is_side {
        matched::tasks(input, &select)?;
    }
    let unsampled = spent::unsampled(&profile, &select);
    let lost_is_attributable = select.tasks.is_empty();
    let beside = beside(choice, &unsampled, lost_is_attributable);
    let lost = unsampled.lost;
    let loaded =
        Loaded { beside, folded, symbols, profile, account, problems, lost, lost_is_attributable, event: None };
    loaded.say_losses(choice.shows_lost(), select.user, Talk { quiet: input.quiet });
    Ok((loaded, made))
}

fn select(choice: &Choice, rest: &Rest) -> Select {
    Select {
        cpus: choice.cpu.clone(),
        tasks: choice.task.clone(),
        between: None,
        user: choice.user || rest.user,
        irq_off: choice.irq_off.then_some(true).or(choice.irq_on.then_some(false)),
        hide_idle: choice.idle == Shown::Hide,
        under: choice.under.clone(),
        not: choice.not.clone(),
        callers: choice.callers.clone(),
    }
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

impl Loaded {
    /// What is drawn besides the samples and the lost ones, which tables always have.
    pub fn ticks(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.beside.iter().copied().filter(|(name, _)| ![folded::LOST, folded::LOST_ANYWHERE].contains(name))
    }

    fn say_losses(&self, shows_lost: bool, has_user: bool, talk: Talk) {
        let missing = self.profile.missing();
        if missing > 0 {
            talk.say(format_args!(
                "{missing} samples that were delivered cannot be read from the file, and count as lost"
            ));
        }
        if self.lost > 0 && self.profile.lost() > missing {
            let hint = match (shows_lost, self.lost_is_attributable) {
                (false, _) => "not shown; a larger ring or a lower rate helps",
                (true, true) => "shown as [lost]; a larger ring or a lower rate helps",
                (true, false) => "not attributable to a task, and shown so; a larger ring or a lower rate helps",
            };
            talk.say(format_args!("{} samples were lost ({hint})", self.lost));
        }
        let samples = self.profile.samples();
        if self.folded.stacks.is_empty() && self.profile.is_user_only() && !has_user {
            talk.say(format_args!("all {samples} samples are of user code: --user shows them"));
        } else if self.folded.stacks.is_empty() {
            talk.say(format_args!("no sample of {samples} is left by the choice"));
        }
    }

    /// One line below the title of a picture.
    pub fn subtitle(&self) -> String {
        let samples = self.folded.samples();
        if let Some(event) = &self.event {
            let notes = crate::output::report::notes(&self.profile);
            return format!("{samples} {} of {}, {} lost{notes}", event.unit, event.name, self.lost);
        }
        let part = self.lost as f64 * 100.0 / samples.saturating_add(self.lost).max(1) as f64;
        let lost = match (self.lost, self.account.cpus.is_empty()) {
            (0, true) => "losses not counted at the source".to_owned(),
            (lost, _) => format!("{lost} lost ({part:.2} %)"),
        };
        format!("{samples} samples, {lost}{}", crate::output::report::notes(&self.profile))
    }

    /// The exit code after the output was written.
    pub fn exit_code(&self, limits: Limits) -> u8 {
        exit_code(limits, &self.problems, &self.account, (self.folded.samples(), self.lost))
    }
}

impl<C> Opened<C> {
    /// The exit code after `samples` were written.
    pub fn exit_code(&self, limits: Limits, samples: usize) -> u8 {
        let lost = spent::unsampled(&self.profile, &self.select).lost;
        exit_code(limits, &self.problems, &self.account, (samples as u64, lost))
    }
}

/// The exit code for what was read, and for the numbers of selected and lost samples.
pub fn exit_code(limits: Limits, problems: &Problems, account: &Account, (samples, lost): (u64, u64)) -> u8 {
    let too_much = limits.max_loss.is_some_and(|most| lost as f64 > most * samples.saturating_add(lost) as f64);
    let unbalanced = !account.cpus.is_empty() && !account.is_balanced();
    match () {
        () if too_much => TOO_MUCH_LOST,
        () if limits.strict && problems.skipped() > 0 => SKIPPED,
        () if limits.strict && unbalanced => UNBALANCED,
        () => 0,
    }
}
