//! `top`: a growing profile as a live table. Stage: command line.
//!
//! In: a file, which is read again every interval, or a stream on standard input, which goes through a [`Spool`]. While
//! the file is missing or empty, `top` waits for it. Out: a full-screen table through ratatui, or with `--once` the
//! same table as text. The file is folded as a whole each time: a gigabyte takes less than a second. With `--event` the
//! table has weights, and what was lost or not recorded in rows of its own.

mod screen;

use super::args::Top;
use super::load;
use super::out::{with_output, write_failed};
use super::spool::Spool;
use crate::error::Error;
use crate::output::columns::Columns;
use crate::output::folded::{LOST, LOST_ANYWHERE};
use crate::output::report;
use kprof_format::point::PointPart;
use ratatui::crossterm::event::{self, Event};
use screen::{Function, Screen, View, Weights, draw, percent};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// The row of hits that were lost. A file that grows may not have all events of its account yet.
const MISSING: &str = "[lost, or not in the file yet]";

/// The same if only some tasks are shown: it is not known of which task they were.
const MISSING_ANYWHERE: &str = "[lost, or not in the file yet, of any task]";

/// `top`.
pub fn run(args: &Top) -> Result<u8, Error> {
    if args.once {
        super::values::form_of_file(args.input.output.as_deref(), &[("txt", ())])?;
        let screen = fold(args, None)?;
        let heading = screen.event.as_ref().map_or_else(|| "self".to_owned(), |event| format!("self {}", event.unit));
        let mut table = Columns::with_heads([("self %", 8), ("total %", 8), (&heading[..], 9)], "function");
        for Function { name, all, .. } in screen.functions.iter().take(args.top) {
            let [own, total] = [all.0, all.1].map(|part| percent(part, screen.whole));
            table.row([own, total, all.0.to_string()], name);
        }
        let text = format!("{}\n\n{}", screen.title, table.text());
        with_output(&args.input, |out| {
            out.write_all(text.as_bytes()).map_err(|error| write_failed(&args.input, error))
        })?;
        return Ok(screen.code);
    }
    let spool = match &args.input.file[..] {
        "-" => Some(Spool::start(std::io::stdin()).map_err(|error| Error::io("a temporary file", "create", error))?),
        _ => None,
    };
    let mut screen = fold(args, spool.as_ref())?;
    let mut terminal = ratatui::try_init().map_err(|error| Error::io("the terminal", "open", error))?;
    let result = follow(args, spool.as_ref(), &mut terminal, &mut screen);
    ratatui::restore();
    result.map(|()| screen.code)
}

fn follow(
    args: &Top,
    spool: Option<&Spool>,
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
) -> Result<(), Error> {
    let failed = |error| Error::io("the terminal", "use", error);
    let interval = Duration::from_secs_f64(args.interval.clamp(0.1, 3600.0));
    let mut view = View::default();
    let mut read = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, screen, view)).map_err(failed)?;
        let next = Instant::now() + interval;
        while let Some(rest) = next.checked_duration_since(Instant::now()) {
            if !event::poll(rest).map_err(failed)? {
                break;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) => {
                    if !view.key(key, screen.functions.len()) {
                        return Ok(());
                    }
                    terminal.draw(|frame| draw(frame, screen, view)).map_err(failed)?;
                }
                Event::Resize(..) => {
                    terminal.draw(|frame| draw(frame, screen, view)).map_err(failed)?;
                }
                _ => {}
            }
        }
        let mut now = fold(args, spool)?;
        now.since(screen, read.elapsed());
        (*screen, read) = (now, Instant::now());
    }
}

/// Folds the present content of a file, or what a stream has brought so far.
fn fold(args: &Top, spool: Option<&Spool>) -> Result<Screen, Error> {
    let Some(spool) = spool else { return fold_file(args) };
    // Asked before the file is read: bytes that come later are then read the next time.
    let ended = spool.has_ended();
    if let Some(error) = spool.failure() {
        return Err(Error::io("standard input", "read", error));
    }
    let path = spool.path().display().to_string();
    match table(args, &path) {
        Ok(screen) => Ok(screen),
        // The first bytes of a profile may not look like one yet.
        Err(error) if !ended => Ok(waiting(&error.to_string().replace(&path, "standard input"))),
        Err(error) => Err(Error::Usage(error.to_string().replace(&path, "standard input"))),
    }
}

/// Waits for a file that is missing, empty or only begun: it may be written soon, or appear again after a rotation.
/// Errors in the symbols or the arguments are returned, because waiting does not change them.
fn fold_file(args: &Top) -> Result<Screen, Error> {
    let file = &args.input.file;
    match table(args, file) {
        Err(error) if !args.once => match &error {
            Error::Io { file: about, source, .. } if about == file && source.kind() == ErrorKind::NotFound => {
                Ok(waiting(&error.to_string()))
            }
            Error::Unusable { file: about, .. } if about == file && !std::path::Path::new(file).is_dir() => {
                Ok(waiting(&error.to_string()))
            }
            _ => Err(error),
        },
        result => result,
    }
}

fn waiting(why: &str) -> Screen {
    Screen { title: format!("waiting: {}", why.lines().next().unwrap_or_default()), ..Screen::default() }
}

fn table(args: &Top, file: &str) -> Result<Screen, Error> {
    let quiet = super::args::Input { quiet: true, file: file.to_owned(), ..args.input.clone() };
    let loaded = load::load(&quiet, &args.choice.for_table())?;
    let (samples, lost) = (loaded.folded.samples(), loaded.lost);
    let function = |row: &crate::output::table::Row| {
        let name = loaded.folded.frames.shown(row.frame).into_owned();
        Function { name, all: (row.self_samples, row.total), last: (0, 0) }
    };
    let mut functions: Vec<Function> = crate::output::table::rows(&loaded.folded).iter().map(function).collect();
    let note = report::notes(&loaded.profile);
    let name = if args.input.file == "-" { "standard input" } else { &args.input.file };
    let code = loaded.exit_code(args.input.limits());
    let row = |(name, weight): (&str, u64)| Function { name: name.to_owned(), all: (weight, weight), last: (0, 0) };
    let Some(event) = &loaded.event else {
        let ticks: Vec<_> = loaded.ticks().filter(|(_, ticks)| *ticks > 0).collect();
        let not = if ticks.is_empty() { ", not of all the time" } else { " and of ticks without a sample" };
        let title = format!("{name}: {samples} samples, {lost} lost; shares are of these{not}{note}");
        let whole = ticks.iter().fold(samples, |sum, (_, ticks)| sum.saturating_add(*ticks));
        functions.extend(ticks.into_iter().map(row));
        functions.sort_by_key(|row| std::cmp::Reverse(row.all));
        return Ok(Screen { title, functions, whole: (whole, lost), code, ..Screen::default() });
    };
    // The account of a point may be newer than the events in the file.
    let missing = if loaded.lost_is_attributable { MISSING } else { MISSING_ANYWHERE };
    let name_of = |name| if [LOST, LOST_ANYWHERE].contains(&name) { missing } else { name };
    let beside = loaded.beside.iter().map(|(name, weight)| (name_of(*name), *weight));
    let whole = beside.clone().map(|(_, weight)| weight).fold(samples, u64::saturating_add);
    functions.extend(beside.filter(|(_, weight)| *weight > 0).map(row));
    functions.sort_by_key(|row| std::cmp::Reverse(row.all));
    let title = format!("{name}: {whole} {} of {}{note}", event.unit, event.name);
    let is_exact = event.sums.as_ref().map(|point| point.part(PointPart::Unsampled) == 0);
    let event = Some(Weights { unit: event.unit.clone(), is_exact });
    Ok(Screen { title, functions, whole: (whole, 0), code, event, ..Screen::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;
    use std::io::Write;

    const OF_SAMPLES: &str = "shares are of these, not of all the time";

    #[test]
    fn a_stream_is_waited_for_and_then_shown_as_far_as_it_has_come() {
        let syms = tempfile::NamedTempFile::new().expect("the test folder is writable");
        std::fs::write(syms.path(), "ffffffff80001000 T kmain\n").expect("is writable");
        let words = ["kprof-fold", "top", "-", syms.path().to_str().expect("is text")];
        let Some(Command::Top(args)) = Cli::try_parse_from(words).expect("is a command").command else {
            panic!("is `top`");
        };
        let (reader, mut writer) = std::io::pipe().expect("pipes exist");
        let spool = Spool::start(reader).expect("the test folder is writable");
        let empty = fold(&args, Some(&spool)).expect("may begin at any time");
        assert!(empty.title.starts_with("waiting: standard input: is empty"), "{}", empty.title);
        let line = "a 0 1 ffffffff80001000\n";
        for samples in 1..=3u64 {
            writer.write_all(line.as_bytes()).expect("the reader lives");
            while std::fs::metadata(spool.path()).expect("exists").len() < samples * line.len() as u64 {
                std::thread::yield_now();
            }
            let screen = fold(&args, Some(&spool)).expect("is a profile");
            assert_eq!(screen.title, format!("standard input: {samples} samples, 0 lost; {OF_SAMPLES}"));
            assert_eq!((screen.functions[0].all.0, &screen.functions[0].name[..]), (samples, "kmain"));
        }
    }

    #[test]
    fn a_point_is_waited_for_and_its_weights_are_shown_with_all_that_is_missing() {
        let inputs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
        let [file, syms] =
            ["events.profile", "five-functions.syms"].map(|name| inputs.join(name).display().to_string());
        let top = |options: &[&str]| {
            let words = [&["kprof-fold", "top", &file, &syms], options].concat();
            match Cli::try_parse_from(words).expect("is a command").command {
                Some(Command::Top(args)) => fold(&args, None).expect("is a profile"),
                _ => panic!("is `top`"),
            }
        };
        let waiting = top(&["--event", "null.read"]).title;
        assert!(waiting.starts_with("waiting: ") && waiting.contains("has no point null.read"), "{waiting}");
        let screen = top(&["--event", "null.write"]);
        assert_eq!((screen.title, screen.whole), (format!("{file}: 1300 bytes of null.write"), (1300, 0)));
        assert_eq!(screen.event.map(|event| (event.unit, event.is_exact)), Some(("bytes".to_owned(), Some(true))));
        assert_eq!(screen.functions.iter().map(|row| row.all.0).sum::<u64>(), 1300);
        let of_task = top(&["--event", "null.write", "--task", "dd"]);
        assert!(of_task.functions.iter().any(|row| row.name == MISSING_ANYWHERE), "{:?}", of_task.functions);
    }

    #[test]
    fn a_file_is_waited_for_while_it_is_missing_empty_or_rotated_and_symbols_are_not() {
        let folder = tempfile::tempdir().expect("the test folder is writable");
        let [file, syms] = ["profile", "syms"].map(|name| folder.path().join(name).display().to_string());
        let top = |once: &[&str]| {
            let words = [&["kprof-fold", "top", &file, &syms], once].concat();
            match Cli::try_parse_from(words).expect("is a command").command {
                Some(Command::Top(args)) => fold(&args, None).map(|screen| screen.title),
                _ => panic!("is `top`"),
            }
        };
        let line = "a 0 1 ffffffff80001000\n";
        assert!(top(&[]).is_err_and(|error| error.to_string().contains("syms")));
        std::fs::write(&syms, "ffffffff80001000 T kmain\n").expect("is writable");
        for round in 1..=2 {
            assert!(top(&[]).is_ok_and(|title| title.starts_with("waiting: cannot open")), "{round}");
            assert!(top(&["--once"]).is_err());
            for begun in ["", "# kprof", "a 0 1 fff"] {
                std::fs::write(&file, begun).expect("is writable");
                let is_begun = top(&[]).expect("is waited for");
                assert!(is_begun.starts_with("waiting: ") || begun == "a 0 1 fff", "{begun}: {is_begun}");
            }
            std::fs::write(&file, line.repeat(round)).expect("is writable");
            assert_eq!(top(&[]).expect("is a profile"), format!("{file}: {round} samples, 0 lost; {OF_SAMPLES}"));
            std::fs::rename(&file, folder.path().join("profile.1")).expect("is ours");
        }
    }
}
