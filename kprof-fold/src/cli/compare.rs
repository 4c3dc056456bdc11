//! `diff`. Stage: command line.
//!
//! In: two profiles or two files of folded stacks. Out: the comparison, and exit code 4 if a claim holds.

use super::args::{self, DiffFormat, ImageFile, Input};
use super::out;
use super::{load, mistakes, nearest, talk};
use crate::account::Account;
use crate::diff::claim::{Claim, Tested};
use crate::diff::significance::Interval;
use crate::diff::{self, Diff, Method, Run, output, weights};
use crate::error::Error;
use crate::fold::Folded;
use crate::output::folded;
use crate::problems::Problems;
use crate::profile::{Boot, rates};
use crate::symbols::Symbols;
use crate::symbols::name::visible;
use crate::tally::By;
use std::collections::BTreeSet;
use std::io::Read;

/// Exit code: a claim of `--fail-if` holds.
pub const CLAIM_HOLDS: u8 = 4;

/// What widens the intervals of such a comparison.
const IN_BLOCKS: &str = "the intervals are widened by how much the shares vary from one block of a run's time to the \
                         next, because samples near each other in time are alike";

/// Rows of a table, unless `--top` is given.
const TOP: usize = 20;

/// `diff`.
pub fn run(args: &args::Diff) -> Result<u8, Error> {
    let format = DiffFormat::of(args.format, args.output.as_deref())?;
    if !args.choice.show.is_empty() {
        let todo = "it says how many samples each side has lost. `kprof-fold folded --show` writes the ticks without a \
                    sample, and diff compares such files";
        return Err(Error::Usage(format!("--show does not work with diff, which compares samples; {todo}")));
    }
    let [old_files, new_files] = sides(args)?;
    let (old, new) = (side(args, &old_files, &args.old_image)?, side(args, &new_files, &args.new_image)?);
    let is_known = |side: &Side| !side.rates.is_empty();
    if args.same_work && args.choice.event.is_none() && is_known(&old) && is_known(&new) && old.rates != new.rates {
        let [old, new] = [&old, &new].map(|side| rates::in_words(&side.rates));
        return Err(Error::Usage(format!(
            "--same-work compares numbers of samples, and OLD was sampled {old} times per second and CPU, NEW {new} \
             times: sample both at one rate, or compare shares without --same-work"
        )));
    }
    let method = Method { confidence: args.confidence, is_same_work: args.same_work };
    let mut compared = match (&args.choice.event, &old.unit, &new.unit) {
        (Some(name), Some(unit), Some(other)) if unit == other => {
            weights::compare(&old.weighed, &new.weighed, (&visible(name), unit), method)
        }
        (Some(name), unit, other) => return Err(other_unit(name, unit.as_deref(), other.as_deref())),
        (None, ..) => diff::compare(&old.counted, &new.counted, method),
    };
    let notes = [("OLD", &old.doubts), ("NEW", &new.doubts)];
    if compared.runs == (1, 1) && compared.event.is_none() {
        compared.notes.push(diff::ONE_RUN.to_owned());
        if diff::uses_blocks(&old.counted, &new.counted, method) {
            compared.notes.push(IN_BLOCKS.to_owned());
        }
    }
    if !old.clocks.is_empty() && !new.clocks.is_empty() && old.clocks != new.clocks {
        let [old, new] = [&old, &new].map(|side| side.clocks.iter().copied().collect::<Vec<_>>().join(" and "));
        compared
            .notes
            .push(format!("time is counted in {old} in OLD and in {new} in NEW, so shares differ without a change"));
    }
    // The weights of events have exact sums of what was lost.
    let losses = [("OLD", &old), ("NEW", &new)].into_iter().filter(|_| compared.event.is_none());
    let losses = losses.filter_map(|(name, side)| Some(format!("{name}: {}", side.loss()?))).collect::<Vec<_>>();
    compared.notes.extend(losses);
    let doubts = notes.iter().flat_map(|(side, all)| all.iter().map(move |it| format!("{side}: {it}")));
    compared.notes.extend(doubts);
    let talk = talk::Talk { quiet: args.quiet };
    if args.subtrees && old.runs.iter().chain(&new.runs).any(diff::has_longer_paths) {
        talk.say(format_args!("of paths of more than {} frames the outermost {0} are compared", diff::MAX_PATH));
    }
    let top = args.top.unwrap_or(if format == DiffFormat::Json { 0 } else { TOP });
    let [old_name, new_name] = [&old_files, &new_files].map(|files| files.runs.join(", "));
    let style = output::Style { old_name, new_name, top };
    let images = args.image.iter().chain(&args.old_image).chain(&args.new_image).map(|image| &image.file);
    let files = [&old_files, &new_files].into_iter().flat_map(|files| files.runs.iter().chain(&files.syms));
    let inputs: Vec<&str> = files.chain(images).map(String::as_str).collect();
    let output = args.output.as_deref();
    out::put(output, args.quiet, &inputs, |out| {
        let bytes = match format {
            DiffFormat::Text => output::text(&compared, &style).into_bytes(),
            DiffFormat::Markdown => output::markdown(&compared, &style).into_bytes(),
            DiffFormat::Json => format!("{:#}\n", output::json(&compared, &style)).into_bytes(),
            DiffFormat::Flamegraph => flamegraph(&style, &compared, &old.runs, &new.runs)?,
        };
        out.write_all(&bytes).map_err(|error| out::not_written(output, error))
    })?;
    let functions = if args.fail_if.is_empty() { Vec::new() } else { functions([&old, &new]) };
    // The user asked about the claim, so its exit code takes precedence.
    let mut code = old.code.max(new.code);
    for claim in &args.fail_if {
        let rows = claim.rows(&compared, &functions).ok_or_else(|| unknown(claim, &compared))?;
        let tested = claim.test(&rows, args.confidence);
        let text = |tested: &Tested<'_>| {
            let Interval { low, middle, high } = tested.change;
            let (low, middle, high) = (low * 100.0, middle * 100.0, high * 100.0);
            let (row, unit) = (tested.row, compared.unit());
            format!(
                "{} of {} changed by {middle:+.2} ({low:+.2} to {high:+.2}) % of all {unit}",
                row.kind.word(),
                row.name
            )
        };
        for tested in tested.iter().filter(|tested| tested.holds) {
            talk::print(format_args!("claim holds: {}: {}", claim.as_str(), text(tested)));
            code = CLAIM_HOLDS;
        }
        if !tested.iter().any(|tested| tested.holds) {
            match &tested[..] {
                [] => talk.say(format_args!("claim does not hold: {}: it has no {}", claim.as_str(), compared.unit())),
                [one] => talk.say(format_args!("claim does not hold: {}: {}", claim.as_str(), text(one))),
                _ => talk.say(format_args!(
                    "claim does not hold: {}: none of {} functions",
                    claim.as_str(),
                    tested.len()
                )),
            }
        }
    }
    Ok(code)
}

/// The files of one side.
struct Files {
    runs: Vec<String>,
    syms: Option<String>,
}

/// Which files belong to which side.
fn sides(args: &args::Diff) -> Result<[Files; 2], Error> {
    let files = |runs: &[String], syms: Option<&String>| Files { runs: runs.to_vec(), syms: syms.cloned() };
    if args.new.is_empty() {
        return match &args.files[..] {
            [old, new] => Ok([old, new].map(|file| files(std::slice::from_ref(file), None))),
            [old, new, syms] => Ok([old, new].map(|file| files(std::slice::from_ref(file), Some(syms)))),
            [old, old_syms, new, new_syms] => {
                Ok([(old, old_syms), (new, new_syms)].map(|(file, syms)| files(std::slice::from_ref(file), Some(syms))))
            }
            [_] => Err(Error::Usage("diff compares two profiles: give OLD NEW SYMS".to_owned())),
            many => Err(Error::Usage(format!(
                "diff has {} files: for several runs of each side give OLD... SYMS -- NEW...",
                many.len()
            ))),
        };
    }
    let split = |side: &[String]| match side {
        [runs @ .., last] if !runs.is_empty() && mistakes::is_symbols(last) => files(runs, Some(last)),
        runs => files(runs, None),
    };
    let mut sides = [split(&args.files), split(&args.new)];
    // Symbols on one side only are those of both.
    let known = sides.iter().find_map(|side| side.syms.clone());
    sides.iter_mut().for_each(|side| side.syms = side.syms.take().or(known.clone()));
    Ok(sides)
}

/// One side of the comparison.
struct Side {
    runs: Vec<Folded>,
    /// The same runs as counts, without --event.
    counted: Vec<Run>,
    /// With --event the same runs, with how exactly they are known, and the unit of all of them.
    weighed: Vec<weights::Run>,
    unit: Option<String>,
    symbols: Option<Symbols>,
    /// Why what is shown of it may be wrong, in sentences.
    doubts: Vec<String>,
    /// The rates of all runs, if they are known.
    rates: BTreeSet<u64>,
    /// What time is counted in, if it is known.
    clocks: BTreeSet<&'static str>,
    /// Samples that were kept, and lost ones.
    kept: (u64, u64),
    code: u8,
}

/// What a boot counts its time in.
fn clock(boot: &Boot) -> &'static str {
    if boot.counts_instructions() { "instructions" } else { "ticks of the clock" }
}

impl Side {
    fn keep(&mut self, (samples, lost): (u64, u64)) {
        self.kept = (self.kept.0.saturating_add(samples), self.kept.1.saturating_add(lost));
    }

    /// How many samples were lost, in words: the function in which they were is not known.
    fn loss(&self) -> Option<String> {
        let (samples, lost) = self.kept;
        let all = samples.saturating_add(lost);
        let part = lost as f64 * 100.0 / all.max(1) as f64;
        (lost > 0).then(|| format!("{lost} of {all} samples were lost ({part:.2} %), and are in no row"))
    }
}

fn side(args: &args::Diff, files: &Files, images: &[ImageFile]) -> Result<Side, Error> {
    let mut side = Side {
        runs: Vec::new(),
        counted: Vec::new(),
        weighed: Vec::new(),
        unit: None,
        symbols: None,
        doubts: Vec::new(),
        rates: BTreeSet::new(),
        clocks: BTreeSet::new(),
        kept: (0, 0),
        code: 0,
    };
    let images = [&args.image, images].concat();
    for file in &files.runs {
        let code = match &files.syms {
            Some(syms) => {
                let (input, choice) = (input(args, file, syms, images.clone()), args.choice.for_table());
                let (loaded, run) = load::load_run(&input, &choice, args.subtrees)?;
                match run {
                    load::Run::Samples(run) => side.counted.push(run),
                    load::Run::Weights(run) => side.weighed.push(run),
                }
                if let Some(event) = &loaded.event {
                    let unit = side.unit.get_or_insert_with(|| event.unit.clone());
                    if *unit != event.unit {
                        return Err(other_unit(&event.name, Some(unit), Some(&event.unit)));
                    }
                }
                let code = loaded.exit_code(args.limits);
                side.rates.extend(loaded.profile.rate.map_or_else(|| loaded.profile.rates(None), |rate| [rate].into()));
                side.clocks.extend(loaded.profile.boots.iter().map(clock));
                side.keep((loaded.folded.samples(), loaded.lost));
                side.doubts.extend(loaded.profile.doubts);
                side.runs.push(loaded.folded);
                side.symbols = Some(loaded.symbols);
                code
            }
            None if !images.is_empty() => {
                return Err(Error::Usage(
                    "--image belongs to profiles; give the kernel's symbols with them".to_owned(),
                ));
            }
            None if args.choice.event.is_some() => {
                let todo = "--event needs profiles, and the kernel's symbols after them: folded stacks do not say \
                            which of their numbers are exact";
                return Err(Error::Usage(todo.to_owned()));
            }
            None => {
                refuse_choice(&args.choice)?;
                let (folded, lost) = folded_file(file)?;
                let kept = (folded.samples(), lost);
                side.keep(kept);
                side.counted.push(Run::of(&folded, args.subtrees));
                side.runs.push(folded);
                load::exit_code(args.limits, &Problems::default(), &Account::default(), kept)
            }
        };
        side.code = side.code.max(code);
    }
    Ok(side)
}

/// Refuses options that choose samples: folded stacks do not say of which task, CPU and time they are, and what they
/// have was chosen when they were made.
fn refuse_choice(choice: &args::Choice) -> Result<(), Error> {
    let given = [
        ("--under", !choice.under.is_empty()),
        ("--not", !choice.not.is_empty()),
        ("--task", !choice.task.is_empty()),
        ("--cpu", !choice.cpu.is_empty()),
        ("--between", !choice.between.is_empty()),
        ("--by", choice.by != By::None),
        ("--user", choice.user),
        ("--irq-off", choice.irq_off),
        ("--irq-on", choice.irq_on),
        ("--idle", choice.idle == args::Shown::Hide),
        ("--lines", choice.lines),
        ("--merge-generics", choice.merge_generics),
        ("--inline", choice.inline),
        ("--no-inline", choice.no_inline),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let todo = "folded stacks were chosen when they were made. Give it to `kprof-fold folded`, or give profiles and \
                the kernel's symbols after them";
    Err(Error::Usage(format!("{option} needs profiles: {todo}")))
}

/// Weights of different units cannot be compared.
pub(super) fn other_unit(name: &str, unit: Option<&str>, other: Option<&str>) -> Error {
    let [unit, other] = [unit, other].map(|unit| unit.unwrap_or("none"));
    Error::Usage(format!(
        "{name} is measured in {unit} in one profile and in {other} in another one, so they cannot be compared; \
         --count compares numbers of hits"
    ))
}

/// The names of all functions that have a symbol on either side. A claim about one of them without samples passes.
fn functions(sides: [&Side; 2]) -> Vec<String> {
    let symbols = sides.into_iter().filter_map(|side| side.symbols.as_ref());
    symbols.flat_map(|symbols| (0..symbols.len()).map(|number| diff::unify(&symbols.function(number)))).collect()
}

/// A claim about a function that does not exist is refused, because it would always pass.
fn unknown(claim: &Claim, compared: &Diff) -> Error {
    let meant = nearest::did_you_mean(claim.pattern().as_str(), compared.rows.iter().map(|row| &row.name[..]));
    Error::Usage(format!("--fail-if '{}': neither side has such a function{meant}", claim.as_str()))
}

fn input(args: &args::Diff, file: &str, syms: &str, image: Vec<ImageFile>) -> Input {
    Input {
        file: file.to_owned(),
        syms: syms.to_owned(),
        rest: Vec::new(),
        form: None,
        boot: None,
        force: args.force,
        image,
        user_syms: Vec::new(),
        debug_file: None,
        strict: args.limits.strict,
        max_loss: args.limits.max_loss,
        quiet: args.quiet,
        output: args.output.clone(),
        shows_account: false,
    }
}

/// Reads lines of folded stacks, `frame;frame COUNT`. Returns them with the number of lost samples in them.
fn folded_file(file: &str) -> Result<(Folded, u64), Error> {
    let mut text = Vec::new();
    crate::read::open(file)?.read_to_end(&mut text).map_err(|error| Error::io(file, "read", error))?;
    let text = String::from_utf8_lossy(&text);
    let (mut folded, mut lost) = (Folded::default(), 0u64);
    let is_stack = |line: &str| !line.trim().is_empty() && !line.starts_with("# ");
    for (number, line) in text.lines().enumerate().filter(|(_, line)| is_stack(line)) {
        let parsed = line.rsplit_once(' ').and_then(|(stack, count)| Some((stack, count.parse::<u64>().ok()?)));
        let Some((stack, samples)) = parsed else {
            let todo = "not a line of folded stacks; if these are profiles, give the kernel's symbols after them";
            return Err(Error::unusable(file, format!("line {}: {todo}", number + 1)));
        };
        if [folded::LOST, folded::LOST_ANYWHERE].contains(&stack) {
            lost = lost.saturating_add(samples);
        } else {
            let frames: Vec<_> = stack.split(';').map(|name| folded.frames.named(name)).collect();
            folded.push(frames, samples);
        }
    }
    if folded.stacks.is_empty() {
        return Err(Error::unusable(file, "has no stacks"));
    }
    Ok((folded, lost))
}

/// Draws both sides in one flame graph with the inferno library; OLD is scaled to NEW's number of samples.
fn flamegraph(style: &output::Style, compared: &Diff, old: &[Folded], new: &[Folded]) -> Result<Vec<u8>, Error> {
    let lines = |runs: &[Folded]| {
        let mut text = Vec::new();
        let mut done = runs.iter().map(|folded| folded::write(folded, 0, &mut text));
        let done = done.try_for_each(|done| done);
        done.map(|()| text).map_err(|error| Error::io("memory", "write", error))
    };
    let (old, new) = (lines(old)?, lines(new)?);
    let failed = |error| Error::io("the flame graph", "write", error);
    let mut both = Vec::new();
    let options = inferno::differential::Options { normalize: true, strip_hex: false };
    inferno::differential::from_readers(options, &old[..], &new[..], &mut both).map_err(failed)?;
    let mut options = inferno::flamegraph::Options::default();
    options.title = visible(&format!("from {} (OLD) to {} (NEW)", style.old_name, style.new_name)).into_owned();
    let beside = output::beside(compared).map_or_else(String::new, |beside| format!("; {beside}"));
    let notes: String = compared.notes.iter().map(|note| format!("; {}", visible(note))).collect();
    options.subtitle = Some(format!("red grew, blue shrank; widths are those of NEW{beside}{notes}"));
    options.count_name = compared.unit().to_owned();
    let mut svg = Vec::new();
    inferno::flamegraph::from_reader(&mut options, &both[..], &mut svg).map_err(failed)?;
    Ok(svg)
}
