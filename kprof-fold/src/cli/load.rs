//! Load: from arguments to folded stacks, for every subcommand that shows stacks. Stage: command line.
//!
//! In: [`Input`]. Out: [`Loaded`]. What was skipped, whether the account balances, and what was lost are printed on
//! standard error before the result is returned.

use super::args::{Choice, Input, Limits, Shown};
use super::between;
use super::boots;
use super::clocks;
use super::compat::{Output, Rest, ScriptStyle};
use super::images;
use super::matched;
use super::mistakes;
use super::pass::{self, Read};
use super::places;
use super::placing;
use super::probe_names::Names;
use super::source::{self, Counted};
use super::talk::Talk;
use super::users;
use super::values;
use crate::account::Account;
use crate::diff::{self, weights};
use crate::error::Error;
use crate::events::EventFacts;
use crate::fold::{Folded, Folder};
use crate::output::folded;
use crate::output::page::facts::name_of;
use crate::problems::Problems;
use crate::profile::Profile;
use crate::read::consumer::Consumer;
use crate::select::Select;
use crate::spent;
use crate::stacks::Stacks;
use crate::symbols::{Symbols, callers, stub};
use crate::tally::By;

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
pub struct Opened {
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

/// Reads a profile and its symbols, and prints the messages about them on standard error. Returns the consumer that has
/// received the samples, too.
///
/// # Errors
/// If the input or the arguments are unusable.
pub fn open<C: Consumer>(
    input: &Input,
    choice: &Choice,
    output: Output,
    consumer: impl Fn(&Select) -> C,
) -> Result<(Opened, C), Error> {
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
    let opened = Opened {
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
    };
    Ok((opened, reading.consumer))
}

/// A run for a comparison.
pub enum Run {
    /// Of samples.
    Samples(diff::Run),
    /// Of the weights of events.
    Weights(weights::Run),
}

/// Reads, selects, symbolizes and folds.
///
/// # Errors
/// If the input or the arguments are unusable, or the profile has no such events.
pub fn load(input: &Input, choice: &Choice) -> Result<Loaded, Error> {
    let (opened, counted) = source::count(input, choice, false)?;
    let folder = folder(&opened, &counted, choice);
    let folded = folder.fold(&counted.counts);
    matched::functions(&folded, &opened.symbols, &opened.select, false, Talk { quiet: input.quiet })?;
    if folded.stacks.is_empty() {
        matched::tasks(input, &opened.select)?;
    }
    Ok(loaded((input, choice), opened, counted, folded))
}

/// As [`load`], for one side of a comparison; with `subtrees` also the paths from the root.
///
/// # Errors
/// As [`load`].
pub fn load_run(input: &Input, choice: &Choice, subtrees: bool) -> Result<(Loaded, Run), Error> {
    let (opened, counted) = source::count(input, choice, true)?;
    let folder = folder(&opened, &counted, choice);
    let folded = folder.fold(&counted.counts);
    matched::functions(&folded, &opened.symbols, &opened.select, true, Talk { quiet: input.quiet })?;
    let run = match &counted.event {
        Some(event) => {
            let mut run = weights::Run::of(&folded, &counted.parts, &folder, subtrees);
            (run.lost, run.only_counted, run.is_doubtful) = (counted.lost, event.only_counted, counted.is_doubtful);
            Run::Weights(run)
        }
        None => {
            let blocks = match (folder.by, opened.symbols.users.is_empty()) {
                // Each boot has a time of its own.
                _ if opened.profile.boots.len() > 1 => Vec::new(),
                (By::None | By::Entry, true) => counted.blocks.counts(&folder, subtrees),
                // The name of a frame depends on more than the stack.
                _ => Vec::new(),
            };
            Run::Samples(diff::Run { blocks, unequal: opened.profile.unequal, ..diff::Run::of(&folded, subtrees) })
        }
    };
    Ok((loaded((input, choice), opened, counted, folded), run))
}

fn folder<'a>(opened: &'a Opened, counted: &'a Counted, choice: &Choice) -> Folder<'a> {
    let Opened { symbols, stacks, select, .. } = opened;
    Folder { symbols, stacks, select, by: choice.by, groups: &counted.groups }
}

fn loaded((input, choice): (&Input, &Choice), opened: Opened, counted: Counted, folded: Folded) -> Loaded {
    let Opened { symbols, profile, account, problems, select, .. } = opened;
    let Counted { beside, lost, lost_is_attributable, event, .. } = counted;
    let loaded = Loaded { beside, folded, symbols, profile, account, problems, lost, lost_is_attributable, event };
    if loaded.event.is_none() {
        loaded.say_losses(choice.shows_lost(), select.user, Talk { quiet: input.quiet });
    }
    loaded
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

impl Opened {
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
