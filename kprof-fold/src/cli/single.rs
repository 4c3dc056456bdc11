//! Subcommands that need single samples: script, info, export, annotate, heatmap. Stage: command line.
//!
//! In: arguments. Out: their output. Unlike the folding subcommands they keep every sample in memory (24 bytes each).

use super::args::{Annotate, Choice, Export, Heatmap, Info, Input, Script, Viewer};
use super::compat::{Output, Rest};
use super::load::{self, Opened};
use super::out::{with_output, write_failed};
use super::{users, values};
use crate::account::Account;
use crate::aliasing::{self, Verdict};
use crate::error::Error;
use crate::output::{annotate as lines, export, heatmap as map, info as facts, report, script as perf};
use crate::profile::Boot;
use crate::read::{self, Source};
use crate::select::Select;
use crate::stacks::Stacks;
use crate::symbols::name::{visible, visible_lines};
use crate::tally::By;
use crate::timeline::Timeline;
use clap::ValueEnum;
use kprof_format::fact::Fact;
use std::collections::BTreeMap;

/// `script`.
pub fn script(args: &Script) -> Result<u8, Error> {
    refuse_folding(&args.choice)?;
    let mut opened = load::open(&args.input, &args.choice, Output::Script, |select| Timeline::new(select.clone()))?;
    opened.consumer.sort_by_time();
    let asked = opened.style;
    let style = perf::Style {
        tsc_hz: clock(&opened, &args.input)?,
        user: opened.select.user,
        offsets: args.offsets || asked.offsets,
        expand_offsets: args.expand_offsets || asked.expand_offsets,
        stop_at_unknown: args.stop_at_unknown || asked.stop_at_unknown,
    };
    with_output(&args.input, |out| {
        let done = perf::write(&opened.consumer, &opened.stacks, &opened.symbols, style, out);
        done.map_err(|error| write_failed(&args.input, error))
    })?;
    Ok(opened.exit_code(args.input.limits(), opened.consumer.events.len()))
}

/// `info`.
pub fn info(args: &Info) -> Result<u8, Error> {
    let tsc_hz = args.ghz.as_deref().map(values::ghz).transpose().map_err(Error::Usage)?;
    let select = Select { user: true, ..Select::default() };
    let source = Source { file: &args.file, form: args.form, progress: &mut |_| {} };
    let reading = read::read(source, Timeline::new(select))?;
    super::talk::print(&reading.problems);
    let tsc_hz = tsc_hz.or(reading.profile.boots.iter().find_map(Boot::tsc_hz).map(|hz| hz as f64));
    let account = Account::of(&reading.profile);
    let form = reading.form.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let aliasing = aliasing::check(&places(&reading.consumer, &reading.stacks));
    let text = facts::text(&reading.profile, &reading.consumer, (&account, &aliasing), &form, tsc_hz);
    super::print_all(visible_lines(&text).as_bytes())?;
    let kept = (reading.profile.samples(), reading.profile.lost());
    let code = load::exit_code(args.limits, &reading.problems, &account, kept);
    let in_step = !matches!(aliasing, Verdict::TooFew | Verdict::None);
    Ok(if code == 0 && args.limits.strict && in_step { load::SKIPPED } else { code })
}

/// Time and innermost address of the kernel's samples, by boot and CPU.
fn places(timeline: &Timeline, stacks: &Stacks) -> Vec<Vec<(u64, u64)>> {
    let (mut cpus, mut words) = (BTreeMap::<_, Vec<(u64, u64)>>::new(), Vec::new());
    for event in timeline.events.iter().filter(|event| stacks.traits(event.stack).is_kernel()) {
        stacks.words(event.stack, &mut words);
        cpus.entry((event.boot, event.cpu)).or_default().push((event.tsc, words.first().copied().unwrap_or(0)));
    }
    cpus.values_mut().for_each(|samples| samples.sort_unstable());
    cpus.into_values().collect()
}

/// `export`.
pub fn export(args: &Export) -> Result<u8, Error> {
    refuse_folding(&args.choice)?;
    refuse_users(&args.input)?;
    let mut opened = load::open(&args.input, &args.choice, Output::Other, |select| Timeline::new(select.clone()))?;
    opened.consumer.sort_by_time();
    let tsc_hz = clock(&opened, &args.input)?;
    let rate_hz = opened.profile.boots.iter().find_map(|boot| boot.number(Fact::Hz));
    let failed = |error| write_failed(&args.input, error);
    if args.to == Viewer::Pprof {
        // pprof only needs the count of each stack, so the samples need not stay in the order of time.
        let seconds = opened.consumer.clock(tsc_hz);
        let seconds = opened.consumer.events.last().map_or(0.0, |event| seconds.seconds(event));
        opened.consumer.events.sort_unstable_by_key(export::pprof::order);
        let about = about_pprof(args, &opened, rate_hz, seconds);
        let names = (&opened.stacks, &opened.symbols, &opened.select);
        with_output(&args.input, |out| export::pprof::write(&opened.consumer, names, &about, out).map_err(failed))?;
        return Ok(opened.exit_code(args.input.limits(), opened.consumer.events.len()));
    }
    let about = (tsc_hz, rate_hz, &args.input.file[..]);
    let input = export::Input::new(&opened.consumer, &opened.stacks, &opened.symbols, &opened.select, about);
    with_output(&args.input, |out| {
        let done = match args.to {
            Viewer::Firefox => serde_json::to_writer(out, &export::firefox::document(&input)).map_err(Into::into),
            Viewer::Perfetto => export::perfetto::write(&input, out),
            _ => export::speedscope::write(&input, out),
        };
        done.map_err(failed)
    })?;
    Ok(opened.exit_code(args.input.limits(), opened.consumer.events.len()))
}

fn about_pprof<'a>(
    args: &'a Export,
    opened: &'a Opened<Timeline>,
    rate_hz: Option<u64>,
    seconds: f64,
) -> export::pprof::About<'a> {
    let lost = opened.profile.lost();
    export::pprof::About {
        rate_hz,
        seconds,
        kernel: &args.input.syms,
        build_id: opened.profile.boots.iter().find_map(|boot| boot.fact(Fact::BuildId)),
        comment: (lost > 0).then(|| format!("{lost} more samples were lost")),
    }
}

/// `annotate`.
pub fn annotate(args: &Annotate) -> Result<u8, Error> {
    refuse_folding(&args.choice)?;
    refuse_users(&args.input)?;
    let opened = load::open(&args.input, &args.choice, Output::Other, |select| Timeline::new(select.clone()))?;
    if !opened.symbols.has_lines() {
        return Err(Error::unusable(&args.input.syms, "has no lines; annotate needs the kernel's ELF file with DWARF"));
    }
    let Opened { consumer, stacks, symbols, select, profile, .. } = &opened;
    let found = lines::collect(consumer, stacks, symbols, &args.function, select.user);
    if found.functions.is_empty() {
        return Err(Error::unusable(
            &args.input.file,
            format!("no sample with lines in a function `{}`", args.function.as_str()),
        ));
    }
    let text = visible_lines(&lines::text(&found, profile)).into_owned();
    with_output(&args.input, |out| out.write_all(text.as_bytes()).map_err(|error| write_failed(&args.input, error)))?;
    Ok(opened.exit_code(args.input.limits(), consumer.events.len()))
}

/// `heatmap`.
pub fn heatmap(args: &Heatmap) -> Result<u8, Error> {
    refuse_folding(&args.choice)?;
    refuse_users(&args.input)?;
    let opened = load::open(&args.input, &args.choice, Output::Other, |select| Timeline::new(select.clone()))?;
    let title = format!("{}{}", visible(&args.input.file), report::notes(&opened.profile));
    let svg = map::svg(&opened.consumer, clock(&opened, &args.input)?, &title);
    with_output(&args.input, |out| out.write_all(svg.as_bytes()).map_err(|error| write_failed(&args.input, error)))?;
    Ok(opened.exit_code(args.input.limits(), opened.consumer.events.len()))
}

/// Refuses options that only apply to folded stacks. Single samples are selected before names are known and are not
/// grouped, so these options would have no effect, and must not be ignored silently.
fn refuse_folding(choice: &Choice) -> Result<(), Error> {
    let given = [
        ("--under", !choice.under.is_empty()),
        ("--not", !choice.not.is_empty()),
        ("--by", choice.by != By::None),
        ("--show", !choice.show.is_empty()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let todo = "it works with folded, flamegraph, report, top and diff";
    Err(Error::Usage(format!("{option} shapes folded stacks, which are not made here; {todo}")))
}

/// Refuses symbols by task: these subcommands do not distinguish stacks by their task.
fn refuse_users(input: &Input) -> Result<(), Error> {
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    if users::are_given(input, &rest) {
        let todo = "they work with folded, flamegraph, report, top and script";
        return Err(Error::Usage(format!("user symbols by task are not looked at here; {todo}")));
    }
    Ok(())
}

fn clock<C>(opened: &Opened<C>, input: &Input) -> Result<f64, Error> {
    let missing = || {
        Error::Usage(format!(
            "{}: the header has no tsc-hz; give the TSC clock in GHz after SYMS, such as 2.2",
            input.file
        ))
    };
    opened.tsc_hz.ok_or_else(missing)
}
