//! `kprof-record probe`: calls of functions of the running kernel, counted and timed while a command runs.
//!
//! In: the places of the kernel, patterns of names, a command. Out: a probe on each function that is meant, until the
//! command has ended; then a table of the calls and their times. Runs in: user process. The probes are removed at every
//! end: by `unprobe lease` before the counts are read, and by the kernel, with the lease, if this process is killed. A
//! probe that was there before is not put once more and stays; its calls are counted.

use super::account::Account;
use super::options::Record;
use super::places::{Function, Places};
use super::{COMMAND_WAIT, Failed, Run, run};
use crate::by_point::PointSum;
use crate::ctl::Ctl;
use crate::drain_loop::{Options, Totals};
use crate::error::Error;
use crate::signals::Signals;
use crate::source::Source;
use crate::source::kprof_device::KprofDevice;
use crate::system::System;
use kprof_format::command::{Command, Removed, Verb};
use kprof_format::point::PointState;
use kprof_format::probe::{POINT_PREFIX, PointName, address_of_point};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What to put probes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// The file of `kprof-fold probes`.
    pub places: PathBuf,
    /// Names of functions, or patterns; none means all.
    pub patterns: Vec<String>,
    /// Whether places are used although it is not known whether they are of this kernel.
    pub force: bool,
    /// What is asked of the calls: the end of each `probe` command, from `args` or `if` on.
    pub asked: String,
    /// Whether each call gets a record in the sample file.
    pub is_recording: bool,
}

/// Puts the probes there, runs the command, removes the probes, and writes the table. Returns the exit code of the
/// command.
///
/// # Errors
/// [`Failed`]: the places cannot be used, the kernel refuses a probe, the session's error, or why the command cannot be
/// started. Its probes are removed in every case.
pub fn probe<S: System>(
    system: &mut S,
    wanted: &Record,
    probing: &Probing,
    signals: &Signals,
    talk: &mut impl Write,
) -> Result<u8, Failed> {
    let places = Places::read(&probing.places)?;
    let chosen = places.chosen(&probing.patterns)?;
    let ctl = observed(system, &wanted.scheme)?;
    let slide = places.slide(&ctl, probing.force)?;
    let others: BTreeSet<u64> = probes_of(&ctl).map(|(address, _)| address).collect();
    let has_probe = |function: &Function| others.contains(&function.address.wrapping_add(slide));
    let (before, new): (Vec<&Function>, Vec<&Function>) = chosen.iter().partition(|function| has_probe(function));
    if let Some(first) = before.first().filter(|_| !probing.asked.is_empty()) {
        let why = "has a probe already, which asks for other arguments and conditions; remove it, or leave it out";
        return Err(Error::Usage(format!("{} {why}", first.name)).into());
    }
    let recording = probing.is_recording.then(|| format!("{} {POINT_PREFIX}* {}", Verb::Event, PointState::Record));
    let probes = new.into_iter().map(|function| command(function, slide, &probing.asked));
    let commands = std::iter::once(Command::Lease.to_string()).chain(recording).chain(probes).collect();
    let last_commands = vec![Command::Unprobe(Removed::OfLease).to_string()];
    let options = Options { commands, last_commands, ..wanted.options.clone() };
    let run = run(system, &Record { options, ..wanted.clone() }, signals, |_, _, _| COMMAND_WAIT)?;
    // If the terminal is gone, the command has run nevertheless.
    let _ = write(talk, &chosen, slide, &run).and_then(|()| write_before(talk, &before));
    if probing.is_recording {
        let _ = write_recorded(talk, &wanted.options.output, &run);
    }
    Ok(run.code)
}

/// Writes a table of the functions that have a probe: state of the point, address, name of the function if `places` are
/// given. The kernel switches the point of a probe off when it removes the probe.
///
/// # Errors
/// The error of the device files or of the places.
pub fn list<S: System>(
    system: &mut S,
    scheme: &Path,
    places: Option<&Path>,
    force: bool,
    out: &mut impl Write,
) -> Result<(), Error> {
    let ctl = observed(system, scheme)?;
    let places = places.map(Places::read).transpose()?;
    let slide = places.as_ref().map(|places| places.slide(&ctl, force)).transpose()?.unwrap_or(0);
    let mut probes: Vec<(u64, &str)> = probes_of(&ctl).collect();
    probes.sort_unstable();
    let name = |address: u64| places.as_ref()?.name(address.wrapping_sub(slide));
    let mut text = String::from(if probes.is_empty() {
        "no function has a probe\n"
    } else {
        "functions with probes:\nstate         address           function\n"
    });
    for (address, state) in probes {
        text += &format!("{state:<14}{address:016x}  {}\n", name(address).unwrap_or("-"));
    }
    // A closed pipe is no error of the kernel.
    let _ = out.write_all(text.as_bytes());
    Ok(())
}

/// The addresses of the functions that have a probe, and the states of their points.
fn probes_of(ctl: &Ctl) -> impl Iterator<Item = (u64, &str)> {
    let probes = ctl.points().filter_map(|(name, _, state)| Some((address_of_point(name)?, state)));
    probes.filter(|(_, state)| PointState::of(state) != Some(PointState::Off))
}

fn observed<S: System>(system: &mut S, scheme: &Path) -> Result<Ctl, Error> {
    let mut ctl = Ctl::default();
    KprofDevice::open_counters(system, scheme)?.observe(system, &mut ctl)?;
    Ok(ctl)
}

/// The command that puts a probe on a function.
fn command(function: &Function, slide: u64, asked: &str) -> String {
    let mut command = format!("{} {:x}", Verb::Probe, function.address.wrapping_add(slide));
    function.exits.iter().for_each(|exit| command += &format!(" {exit:x}"));
    command + asked
}

/// Says what the sample file has, and what the account of the session does not explain.
fn write_recorded(out: &mut impl Write, file: &Path, run: &Run) -> io::Result<()> {
    let Totals { events, bytes, samples, .. } = run.totals;
    write!(out, "{events} recorded hits of points to {}, {bytes} bytes", file.display())?;
    writeln!(out, "{}", if samples > 0 { format!(", beside {samples} samples") } else { String::new() })?;
    for sentence in Account(&run.ctl).contradictions() {
        writeln!(out, "the account does not balance: {sentence}")?;
    }
    Ok(())
}

/// Says which functions had a probe before; nothing if none had.
fn write_before(out: &mut impl Write, before: &[&Function]) -> io::Result<()> {
    let Some(first) = before.first() else { return Ok(()) };
    let (functions, their) = if before.len() == 1 { ("function", "it stays") } else { ("functions", "they stay") };
    let (count, name) = (before.len(), &first.name);
    let names = if count == 1 { name.clone() } else { format!("{name} and others") };
    writeln!(out, "{count} {functions} had a probe before, which is not of this command: {their} ({names})")
}

/// Writes a row for each function that was called, the longest sum first.
fn write(out: &mut impl Write, chosen: &[&Function], slide: u64, run: &Run) -> io::Result<()> {
    let Some(points) = &run.points else {
        let why = "some of what the kernel counted was overwritten before it was read, or read by another program";
        let todo = "put probes on fewer functions, or give the kernel more memory for the meta stream";
        return writeln!(out, "<not counted>: {why}; {todo}");
    };
    let point = |function: &Function| points.get(&PointName(function.address.wrapping_add(slide)).to_string());
    let mut rows: Vec<(&Function, &PointSum)> =
        chosen.iter().filter_map(|function| Some((*function, point(function).filter(|sum| sum.hits > 0)?))).collect();
    rows.sort_by(|(a, left), (b, right)| {
        (right.weight, right.hits).cmp(&(left.weight, left.hits)).then(a.address.cmp(&b.address))
    });
    let calls = rows.iter().fold(0_u64, |sum, (_, point)| sum.saturating_add(point.hits));
    let (count, seconds) = (chosen.len(), run.elapsed.as_secs_f64());
    let functions = if count == 1 { "function" } else { "functions" };
    writeln!(out, "probes on {count} {functions}, {calls} calls in {seconds:.3} s; times in ns\n")?;
    if !rows.is_empty() {
        let heads = ["calls", "total", "average", "p50 up to", "p99 up to", "max up to"];
        writeln!(out, "{}  function", heads.map(|head| format!("{head:>12}")).join(" "))?;
    }
    for (function, sum) in &rows {
        let none = || "-".to_owned();
        let is_timed = !function.exits.is_empty() && sum.weighed() > 0;
        let timed = |text: String| if is_timed { text } else { none() };
        let quantile = |share| timed(sum.quantile(share).map_or_else(none, |value| value.to_string()));
        let average = format!("{:.1}", sum.weight as f64 / sum.weighed().max(1) as f64);
        let columns = [
            sum.hits.to_string(),
            timed(sum.weight.to_string()),
            timed(average),
            quantile(0.5),
            quantile(0.99),
            quantile(1.0),
        ];
        writeln!(out, "{}  {}", columns.map(|column| format!("{column:>12}")).join(" "), function.name)?;
    }
    let uncalled = count - rows.len();
    if uncalled > 0 {
        writeln!(out, "{uncalled} without a call that began and ended meanwhile")?;
    }
    let untimed =
        rows.iter().fold(0_u64, |sum, (_, point)| sum.saturating_add(point.hits - point.weighed().min(point.hits)));
    if untimed > 0 {
        writeln!(out, "{untimed} of the calls were lost: they are counted, and their times are not known")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_point::ByPoint;
    use std::time::Duration;

    fn function(address: u64, exits: &[u64], name: &str) -> Function {
        Function { address, exits: exits.to_vec(), name: name.to_owned() }
    }

    #[test]
    fn the_command_has_the_address_where_the_function_runs_and_the_distances_of_its_exits() {
        for (function, slide, expected) in [
            (function(0xffff_ffff_8000_0010, &[0xf, 0x2a], "a"), 0x1000, "probe ffffffff80001010 f 2a"),
            (function(0xffff_ffff_8000_0010, &[], "b"), 0, "probe ffffffff80000010"),
        ] {
            let asked = " args u64,i32 if arg1 > 7";
            let command = command(&function, slide, asked);
            assert_eq!(command, expected.to_owned() + asked);
            let Ok(Command::Probe(places)) = Command::parse(command.as_bytes()) else { panic!("{command}") };
            let (entry, exits) = (function.address.wrapping_add(slide), function.exits.iter());
            assert!(places.entry == entry && places.exits().eq(exits.map(|exit| entry + exit)), "{command}");
        }
    }

    fn table(records: Option<&[(u64, &str)]>) -> String {
        let functions =
            [function(0x1010, &[1], "read"), function(0x1100, &[], "serve"), function(0x1200, &[1], "seldom")];
        let points = records.map(|records| {
            let mut points = ByPoint::default();
            records.iter().for_each(|(weight, text)| points.add(*weight, text.as_bytes()));
            points
        });
        let run = Run { points, elapsed: Duration::from_millis(1500), ..Run::default() };
        let mut out = Vec::new();
        write(&mut out, &functions.iter().collect::<Vec<_>>(), 0x1000, &run).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_printed_by_function_with_the_ends_of_their_buckets() {
        let text = table(Some(&[
            (0, "ns probe.0000000000002100 filtered=7 log2-0=7"),
            (1000, "ns probe.0000000000002010 filtered=101 log2-2=99 log2-9=1 lost=1"),
            (5, "ns probe.0000000000003000 filtered=1 log2-2=1"),
        ]));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(text.lines().next(), Some("probes on 3 functions, 109 calls in 1.500 s; times in ns"));
        assert_eq!(lines[3], ["102", "1000", "10.0", "7", "7", "1023", "read"]);
        assert_eq!(lines[4], ["7", "-", "-", "-", "-", "-", "serve"]);
        assert_eq!(text.lines().nth(5), Some("1 without a call that began and ended meanwhile"));
        assert_eq!(
            text.lines().nth(6),
            Some("2 of the calls were lost: they are counted, and their times are not known")
        );
        assert_eq!(text.lines().count(), 7);
    }

    #[test]
    fn a_call_that_was_lost_is_counted_without_a_time_and_a_point_without_calls_has_no_row() {
        let text = table(Some(&[(0, "ns probe.0000000000002200 lost=3"), (0, "ns probe.0000000000002010 filtered=0")]));
        let lines: Vec<Vec<&str>> = text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["3", "-", "-", "-", "-", "-", "seldom"]);
        assert_eq!(lines[1][..2], ["2", "without"]);
        assert_eq!(lines[2][..4], ["3", "of", "the", "calls"]);
        assert_eq!(lines.len(), 3, "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_0() {
        assert!(table(None).starts_with("<not counted>: some of what the kernel counted"));
        let text = table(Some(&[]));
        assert!(
            text.contains("0 calls in") && text.ends_with("3 without a call that began and ended meanwhile\n"),
            "{text}"
        );
    }
}
