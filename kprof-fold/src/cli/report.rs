//! `report`. Stage: command line.
//!
//! In: arguments. Out: tables, a tree, JSON or CSV, and the exit code.

use super::args::{Input, Report, TableFormat};
use super::load::{self, Loaded};
use super::out::{with_output, write_failed};
use super::pager;
use super::talk::Talk;
use crate::error::Error;
use crate::output::report;
use crate::output::tree::{self, Direction};
use crate::tally::By;
use kprof_format::counter::Counter;

/// Rows of a table of text, unless `--top` is given.
const TOP: usize = 20;

/// `report`.
pub fn run(args: &Report) -> Result<u8, Error> {
    let format = TableFormat::of(args.format, args.input.output.as_deref())?;
    let direction = match (args.callers.is_empty(), args.callees.is_empty()) {
        (false, _) => Some(Direction::Callers),
        (_, false) => Some(Direction::Callees),
        (true, true) => args.tree,
    };
    if direction.is_some() && format != TableFormat::Text {
        return Err(Error::Usage("a tree is text; JSON and CSV have the functions without it".to_owned()));
    }
    let mut choice = args.choice.for_table();
    choice.callers.clone_from(&args.callers);
    choice.under.extend(args.callees.iter().cloned());
    if choice.by == By::Line {
        (choice.by, choice.lines) = (By::None, true);
    }
    let shows_account = direction.is_none() && format != TableFormat::Csv;
    let loaded = load::load(&Input { shows_account, ..args.input.clone() }, &choice)?;
    let Loaded { folded, profile, account, lost, symbols, .. } = &loaded;
    if loaded.event.is_none() && profile.samples() == 0 && account.sum(Counter::Sent) == 0 {
        return Err(Error::unusable(
            &args.input.file,
            "no sample and no tick: nothing to report. Did the recording run?",
        ));
    }
    if args.choice.by == By::Line && !symbols.has_lines() {
        return Err(Error::unusable(
            &args.input.syms,
            "has no lines; --by line needs the kernel's ELF file with DWARF",
        ));
    }
    if let Some(direction) = direction {
        let screen = pager::screen(args.input.output.as_deref());
        let (width, is_coloured) =
            (screen.and_then(|screen| screen.columns), screen.is_some_and(|screen| screen.is_coloured));
        let top = args.top.unwrap_or(TOP);
        let style = tree::Style { direction, limit: args.limit, top, width, is_coloured };
        // The tree has no lost samples.
        let event = loaded.event.as_ref();
        let shares = report::shares(report::Input { folded, profile, account, lost: 0, ticks: &[], event });
        pager::show(&args.input, &format!("{shares}\n{}", tree::text(folded, &style)))?;
        return Ok(loaded.exit_code(args.input.limits()));
    }
    let top = args.top.unwrap_or(if format == TableFormat::Text { TOP } else { 0 });
    let by = match choice.by {
        By::None | By::Line => None,
        By::Task => Some("task"),
        By::Cpu => Some("cpu"),
        By::Reason => Some("reason"),
        By::Age => Some("age"),
        By::Entry => Some("entry"),
    };
    let style = report::Style { sort: args.sort, top, limit: args.limit, by, has_lines: choice.lines };
    let ticks: Vec<_> = loaded.ticks().filter(|_| loaded.event.is_none()).collect();
    let input = report::Input { folded, profile, account, lost: *lost, ticks: &ticks, event: loaded.event.as_ref() };
    if format == TableFormat::Text {
        let mut text = Vec::new();
        report::write(input, &style, &mut text).map_err(|error| Error::io("memory", "write", error))?;
        pager::show(&args.input, &String::from_utf8_lossy(&text))?;
    }
    let is_table = format != TableFormat::Text;
    let write = |out: &mut dyn std::io::Write| {
        let done = match format {
            TableFormat::Text => Ok(()),
            TableFormat::Json => writeln!(out, "{:#}", report::json::document(input, &style)),
            TableFormat::Csv => report::csv::write(input, &style, out),
        };
        done.map_err(|error| write_failed(&args.input, error))
    };
    if is_table {
        with_output(&args.input, write)?;
    }
    if format == TableFormat::Csv {
        let talk = Talk { quiet: args.input.quiet };
        talk.say("CSV has this one table; --format json also has where the time went and the account");
    }
    let unbalanced = account.cpus.iter().any(|cpu| !cpu.faults.is_empty());
    Ok(if unbalanced { load::UNBALANCED } else { loaded.exit_code(args.input.limits()) })
}
