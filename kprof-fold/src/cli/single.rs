//! Subcommands that need single samples: script, info, export, annotate. Stage: command line.
//!
//! In: arguments. Out: the output of the subcommand. Unlike the folding subcommands most of them keep every sample in
//! memory: 8 bytes each for an export in the order of time, 24 bytes for the others. `info` keeps only the first
//! samples of each CPU.

use super::args::{Annotate, Choice, Export, Info, Input, Script, Viewer};
use super::boots;
use super::compat::{Output, Rest};
use super::event;
use super::event_export;
use super::load::{self, Opened};
use super::mistakes;
use super::nearest::did_you_mean;
use super::out::{with_output, write_failed};
use super::{plain, source, users, values};
use crate::account::Account;
use crate::aliasing::{self, Verdict};
use crate::error::Error;
use crate::events::EventFacts;
use crate::output::export::perf_data::Mapping;
use crate::output::{annotate as lines, export, info as facts, script as perf};
use crate::overview::Overview;
use crate::symbols::name::visible_lines;
use crate::symbols::users::plain;
use crate::tally::By;
use crate::timeline::{Clock, Timeline};
use crate::tracks::Tracks;
use clap::ValueEnum;
use kprof_format::fact::Fact;
use std::collections::BTreeMap;

/// `script`.
pub fn script(args: &Script) -> Result<u8, Error> {
    refuse_folding(&args.choice)?;
    if let Some(name) = &args.choice.event {
        return event::script(args, name);
    }
    let (opened, mut timeline) =
        load::open(&args.input, &args.choice, Output::Script, |select| Timeline::new(select.clone()))?;
    timeline.sort_by_time();
    let style = style(args, &opened)?;
    with_output(&args.input, |out| {
        let done = perf::write(&timeline, &opened.stacks, &opened.symbols, style, out);
        done.map_err(|error| write_failed(&args.input, error))
    })?;
    Ok(opened.exit_code(args.input.limits(), timeline.events.len()))
}

/// How `script` prints, by its options and by the letters of redox-kprofiling.
pub(super) fn style(args: &Script, opened: &Opened) -> Result<perf::Style, Error> {
    let asked = opened.style;
    Ok(perf::Style {
        tsc_hz: clock(opened, &args.input)?,
        user: opened.select.user,
        offsets: args.offsets || asked.offsets,
        expand_offsets: args.expand_offsets || asked.expand_offsets,
        stop_at_unknown: args.stop_at_unknown || asked.stop_at_unknown,
    })
}

/// `info`.
pub fn info(args: &Info) -> Result<u8, Error> {
    let [syms, ghz] = args.syms_and_ghz();
    let tsc_hz = ghz.map(values::ghz).transpose().map_err(Error::Usage)?;
    let mut reading = plain::read(&args.plain, syms, Overview::default())?;
    let tsc_hz = values::clock(tsc_hz, &reading.profile, super::talk::Talk { quiet: false });
    let account = Account::of(&reading.profile);
    let form = reading.form.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let (places, is_part) = reading.consumer.places(&reading.stacks);
    let aliasing = aliasing::check(&places);
    let (profile, overview) = (&reading.profile, &reading.consumer);
    let text = || facts::text(profile, overview, (&account, &aliasing, is_part), &form, tsc_hz);
    let document = || facts::json::document(profile, overview, (&account, &aliasing), &form, tsc_hz);
    let code = plain::write(&args.plain, &reading, text, document)?;
    let in_step = !matches!(aliasing, Verdict::TooFew | Verdict::None);
    Ok(if code == 0 && args.plain.limits.strict && in_step { load::SKIPPED } else { code })
}

/// `export`.
pub fn export(args: &Export) -> Result<u8, Error> {
    refuse_folding(&args.choice)?;
    refuse_users(&args.input)?;
    if let Some(name) = &args.choice.event {
        return event_export::run(args, name);
    }
    if args.to == Viewer::Pprof {
        return pprof(args);
    }
    let (opened, mut tracks) =
        load::open(&args.input, &args.choice, Output::Other, |select| Tracks::new(select.clone()))?;
    tracks.finish();
    let about = (clock(&opened, &args.input)?, &args.input.file[..], &args.input.syms[..]);
    let names = (&opened.stacks, &opened.symbols, &opened.select);
    let input = export::Input::new(&tracks, names, &opened.profile, about);
    let mappings = if args.to == Viewer::PerfData { mappings(&args.input, &opened)? } else { Vec::new() };
    #[cfg(feature = "parquet")]
    if args.to == Viewer::Parquet {
        tables(args, (&input, &opened.profile), None)?;
        return Ok(opened.exit_code(args.input.limits(), tracks.len()));
    }
    with_output(&args.input, |out| {
        let done = match args.to {
            Viewer::Firefox => export::firefox::write(&input, out),
            Viewer::Perfetto => export::perfetto::write(&input, out),
            Viewer::PerfData => export::perf_data::write(&input, &mappings, out),
            #[cfg(feature = "otlp")]
            Viewer::Otlp => export::otlp::write(&input, out),
            _ => export::speedscope::write(&input, out),
        };
        done.map_err(|error| write_failed(&args.input, error))
    })?;
    let code = opened.exit_code(args.input.limits(), tracks.len());
    // The process ends next, so freeing the memory would only take time.
    std::mem::forget((opened, tracks));
    Ok(code)
}

/// Where the code of the kernel's ELF file, and of those of the images, was in memory.
///
/// # Errors
/// If one of them is no ELF file: readers of `perf.data` take names from ELF files only.
fn mappings(input: &Input, opened: &Opened) -> Result<Vec<Mapping>, Error> {
    let symbols = &opened.symbols;
    // The programs of tasks (`--user-syms`) are all at the same addresses, which a single process cannot show.
    let images = symbols.images().filter(|image| plain(image.text.0) == image.text.0);
    let files = images.filter_map(|image| {
        let given = input.image.iter().find(|given| given.name == image.name)?;
        Some((&given.file, &image.symbols))
    });
    let mut mappings = Vec::new();
    for (file, symbols) in [(&input.syms, symbols)].into_iter().chain(files) {
        let Some(elf) = &symbols.elf else {
            let why = "has no code: perf.data names its functions by the ELF file. Give the file that the linker made";
            return Err(Error::unusable(file, why.to_owned()));
        };
        let path = std::fs::canonicalize(file).map_err(|error| Error::io(file, "find", error))?;
        let file = path.to_string_lossy().into_owned();
        mappings.extend(elf.code.iter().map(|(address, bytes, offset)| Mapping {
            file: file.clone(),
            start: plain(address.wrapping_add(symbols.slide)),
            bytes: *bytes,
            offset: *offset,
            build_id: elf.build_id.clone(),
        }));
    }
    Ok(mappings)
}

/// Writes each table to a file of its own in the folder of `-o`: those of the samples, or of the hits of a point.
///
/// # Errors
/// If there is no folder, the folder has tables of the other kind, or a table cannot be written.
#[cfg(feature = "parquet")]
pub(super) fn tables(
    args: &Export,
    (input, profile): (&export::Input<'_>, &crate::profile::Profile),
    event: Option<export::parquet::hits::OfPoint<'_>>,
) -> Result<(), Error> {
    let Some(folder) = args.input.output.as_deref().filter(|folder| *folder != "-") else {
        return Err(Error::Usage("--to parquet writes several files: give their folder with -o".to_owned()));
    };
    std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, "create", error))?;
    let (tables, [own, other]) = match event.is_some() {
        true => (&export::parquet::TABLES_OF_HITS[..], ["hits", "samples"]),
        false => (&export::parquet::TABLES[..], ["samples", "hits"]),
    };
    // Both kinds have tables of stacks and frames, and those of one do not have what the other one needs.
    if std::path::Path::new(folder).join(format!("{other}.parquet")).exists() {
        let why =
            format!("has the table {other}, whose stacks would be replaced by those of {own}: give another folder");
        return Err(Error::unusable(folder, why));
    }
    let about = export::parquet::About { machine: &args.machine, build: args.build.as_deref(), event };
    for table in tables {
        let file = format!("{folder}/{table}.parquet");
        super::out::put(Some(&file), args.input.quiet, &args.input.files(), |out| {
            let done = export::parquet::write(table, (input, profile, &about), out);
            done.map_err(|error| super::out::not_written(Some(&file), error))
        })?;
    }
    Ok(())
}

/// pprof only needs the count of each stack, so the samples need not stay in the order of time.
fn pprof(args: &Export) -> Result<u8, Error> {
    let (opened, mut timeline) =
        load::open(&args.input, &args.choice, Output::Other, |select| Timeline::new(select.clone()))?;
    let tsc_hz = clock(&opened, &args.input)?;
    let header_hz = || opened.profile.boots.iter().find_map(|boot| boot.number(Fact::Hz));
    let rate_hz = opened.profile.rate.or_else(header_hz);
    let clock = Clock::new(&opened.profile, tsc_hz);
    let nanos = || timeline.events.iter().map(|event| clock.nanos(event.boot, event.tsc));
    let seconds = nanos().max().zip(nanos().min()).map_or(0.0, |(last, first)| (last - first) as f64 / 1e9);
    timeline.events.sort_unstable_by_key(export::pprof::order);
    let about = about_pprof(args, &opened, rate_hz, seconds);
    let names = (&opened.stacks, &opened.symbols, &opened.select);
    with_output(&args.input, |out| {
        let done = export::pprof::write(&timeline, names, &about, out);
        done.map_err(|error| write_failed(&args.input, error))
    })?;
    Ok(opened.exit_code(args.input.limits(), timeline.events.len()))
}

pub(super) fn about_pprof<'a>(
    args: &'a Export,
    opened: &'a Opened,
    rate_hz: Option<u64>,
    seconds: f64,
) -> export::pprof::About<'a> {
    let mut lost = BTreeMap::<u32, u64>::new();
    let ticks = export::unsampled(&opened.profile, &opened.select);
    for loss in ticks.iter().filter(|ticks| ticks.reason == export::Reason::Lost) {
        let sum = lost.entry(loss.cpu).or_default();
        *sum = sum.saturating_add(loss.count);
    }
    export::pprof::About {
        rate_hz,
        seconds,
        doubts: &opened.profile.doubts,
        kernel: &args.input.syms,
        build_id: opened.profile.boots.iter().find_map(|boot| boot.fact(Fact::BuildId)),
        lost,
        lost_name: export::Reason::Lost.name(&opened.select),
        gzip: !args.input.output.as_deref().is_some_and(|file| file.ends_with(".pb")),
    }
}

/// `annotate`.
pub fn annotate(args: &Annotate) -> Result<u8, Error> {
    values::form_of_file(args.input.output.as_deref(), &[("txt", ())])?;
    mistakes::function_first(&args.input, args.function.as_str())?;
    refuse_folding(&args.choice)?;
    refuse_users(&args.input)?;
    let (opened, counted) = source::count(&args.input, &args.choice.for_table(), false)?;
    let Opened { stacks, symbols, select, profile, .. } = &opened;
    if !symbols.has_lines() {
        return Err(Error::unusable(
            &args.input.syms,
            "is a list of symbols; annotate needs the kernel's ELF file, with DWARF for source lines",
        ));
    }
    let mut counts = BTreeMap::new();
    let admitted = counted.counts.iter().filter(|one| select.admits_traits(stacks.traits(one.stack)));
    admitted.for_each(|one| *counts.entry(one.stack).or_default() += one.samples);
    let sum = counts.values().fold(0, |sum: u64, one| sum.saturating_add(*one));
    let found = lines::collect(counts, stacks, symbols, &args.function, select.user);
    if found.functions.is_empty() {
        let meant = did_you_mean(args.function.as_str(), found.known.iter().map(String::as_str));
        let what = if counted.event.is_some() { "recorded hit" } else { "sample" };
        return Err(Error::unusable(
            &args.input.file,
            format!("no {what} in a function `{}`{meant}", args.function.as_str()),
        ));
    }
    let note = match &counted.event {
        Some(event) if counted.lost > 0 || event.only_counted > 0 => {
            let EventFacts { unit, only_counted, .. } = event;
            format!("{} {unit} lost and {only_counted} {unit} not recorded may be in any function", counted.lost)
        }
        _ if counted.is_doubtful => {
            "records of allocations or frees were lost: an allocation whose free was lost counts as not freed".into()
        }
        _ => String::new(),
    };
    let event = counted.event.as_ref().map(|event| (&event.unit[..], &note[..]));
    let style = lines::Style { instructions: args.instructions, source: &args.source, event };
    let text = visible_lines(&lines::text(&found, symbols, profile, style)).into_owned();
    with_output(&args.input, |out| out.write_all(text.as_bytes()).map_err(|error| write_failed(&args.input, error)))?;
    Ok(load::exit_code(args.input.limits(), &opened.problems, &opened.account, (sum, counted.lost)))
}

/// Refuses options that only apply to folded stacks. Single samples are selected before names are known and are not
/// grouped, so these options would have no effect, and must not be ignored silently.
pub(super) fn refuse_folding(choice: &Choice) -> Result<(), Error> {
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
pub(super) fn refuse_users(input: &Input) -> Result<(), Error> {
    let rest = Rest::read(&input.rest).map_err(Error::Usage)?;
    if users::are_given(input, &rest) {
        let todo = "they work with folded, flamegraph, report, top and script";
        return Err(Error::Usage(format!("user symbols by task are not looked at here; {todo}")));
    }
    Ok(())
}

pub(super) fn clock(opened: &Opened, input: &Input) -> Result<f64, Error> {
    let missing = || {
        Error::Usage(format!(
            "{}: the header has no tsc-hz; give the TSC clock in GHz after SYMS, such as 2.2",
            input.file
        ))
    };
    if boots::have_several_clocks(&opened.profile) {
        return Err(Error::Usage(format!(
            "{}: its boots have different clocks, so their times cannot be shown together: choose one boot with --boot",
            input.file
        )));
    }
    opened.tsc_hz.ok_or_else(missing)
}
