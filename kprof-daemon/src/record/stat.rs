//! `kprof-record stat`: counts instead of stacks.
//!
//! In: ctl, which counts since a run began. Out: events, and shares of the time that add up to 100 %; for several runs
//! their means. Runs in: user process. The shares are shares of ticks: each tick is counted by what its CPU was doing.

use super::Run;
use super::account::Account;
use super::options::Counting;
use super::stat_points::PointRows;
use crate::ctl::Ctl;
use kprof_format::account::{self, FATES};
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::record::EVENT_NAMES;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

/// The maximum number of lines in the table by task.
const MAX_TASKS: usize = 20;

/// The index of the row of all ticks. The rows before it are events; the rows after it are the fates of the ticks.
const TICKS: usize = Counter::EVENTS.len();
/// The number of rows.
const ROWS: usize = TICKS + 1 + FATES.len();
/// The index of the row of the pending ticks.
const PENDING: usize = TICKS + 1 + account::PENDING;

/// The name of each row in fields and intervals.
fn row_name(row: usize) -> &'static str {
    match row {
        ..TICKS => Counter::EVENTS[row].name(),
        TICKS => Counter::Sent.name(),
        _ => FATES[row - TICKS - 1].name,
    }
}

/// What was counted in a span of time, summed over the CPUs: the value of each row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    time: Duration,
    rows: [u64; ROWS],
}

impl Counts {
    fn of(ctl: &Ctl, time: Duration) -> Self {
        let account = Account(ctl);
        let fates = account.fates();
        let rows = std::array::from_fn(|row| match row {
            ..TICKS => account.sum(Counter::EVENTS[row]),
            TICKS => account.sum(Counter::Sent),
            _ => fates[row - TICKS - 1],
        });
        Self { time, rows }
    }

    /// What was counted after `before`. Ticks that were pending then are taken later, so they count as sent later.
    fn since(&self, before: &Self) -> Self {
        let mut old = before.rows;
        old[TICKS] = old[TICKS].saturating_sub(std::mem::take(&mut old[PENDING]));
        let mut rows = self.rows;
        rows.iter_mut().zip(old).for_each(|(now, old)| *now = now.saturating_sub(old));
        Self { time: self.time.saturating_sub(before.time), rows }
    }
}

/// A mean, and its standard error in percent of it, as perf computes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub value: f64,
    pub spread: f64,
}

impl Mean {
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let runs = values.clone().count().max(1) as f64;
        let value = values.clone().sum::<f64>() / runs;
        let squares: f64 = values.map(|one| (one - value).powi(2)).sum();
        let error = (squares / (runs - 1.0).max(1.0) / runs).sqrt();
        Self { value, spread: if value == 0.0 { 0.0 } else { 100.0 * error / value } }
    }

    /// The spread, where there were several runs.
    pub fn spread_text(self, is_repeated: bool) -> String {
        if is_repeated { format!("  ( +- {:>5.2}% )", self.spread) } else { String::new() }
    }
}

/// The means over several runs.
struct Means {
    seconds: Mean,
    rows: [Mean; ROWS],
    is_repeated: bool,
}

impl Means {
    fn of(counts: &[Counts], is_repeated: bool) -> Self {
        let seconds = Mean::of(counts.iter().map(|count| count.time.as_secs_f64()));
        let row = |row: usize| Mean::of(counts.iter().map(|count| count.rows[row] as f64));
        Self { seconds, rows: std::array::from_fn(row), is_repeated }
    }

    fn rate(&self, row: usize) -> f64 {
        self.rows[row].value / self.seconds.value.max(1e-9)
    }

    /// A part of the ticks in percent.
    fn percent(&self, part: f64) -> f64 {
        100.0 * part / self.rows[TICKS].value.max(1.0)
    }

    fn spread(&self, of: Mean) -> String {
        of.spread_text(self.is_repeated)
    }

    /// Writes a line of fields for each counter, in the order of `perf stat -x`.
    fn write_fields(&self, out: &mut impl Write, separator: &str, at: Option<Duration>) -> io::Result<()> {
        for (row, mean) in self.rows.into_iter().enumerate() {
            let name = row_name(row);
            let (unit, metric, metric_unit) = match row {
                ..TICKS => ("", format!("{:.1}", self.rate(row)), "/sec"),
                TICKS => ("ticks", String::new(), ""),
                _ => ("ticks", format!("{:.1}", self.percent(mean.value)), "% of sent"),
            };
            let spread = self.is_repeated.then(|| format!("{:.2}%", mean.spread));
            let counted = [format!("{:.0}", self.seconds.value * 1e9), "100.00".into()];
            let first = at.map(|at| format!("{:.9}", at.as_secs_f64()));
            let fields: Vec<String> = first
                .into_iter()
                .chain([format!("{:.0}", mean.value), unit.into(), name.into()])
                .chain(counted)
                .chain(spread)
                .chain([metric, metric_unit.into()])
                .collect();
            writeln!(out, "{}", fields.join(separator))?;
        }
        Ok(())
    }

    /// Writes the events and shares.
    fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        for (row, event) in Counter::EVENTS.iter().enumerate() {
            let (mean, event) = (self.rows[row], event.name());
            writeln!(out, "{:>14.0}  {event:<18} {:>12.1} /s{}", mean.value, self.rate(row), self.spread(mean))?;
        }
        let sent = self.rows[TICKS];
        writeln!(out, "{:>14.0}  ticks{}\n", sent.value, self.spread(sent))?;
        let mut rest = sent.value;
        for (mean, fate) in self.rows[TICKS + 1..].iter().zip(FATES) {
            rest -= mean.value;
            if fate.is_shown(mean.value.ceil() as u64) {
                writeln!(out, "{:>12.1} %  {}{}", self.percent(mean.value), fate.words, self.spread(*mean))?;
            }
        }
        // Means are rounded, so their sum may be off by much less than a tick.
        if rest.abs() > 1e-3 {
            let (share, rest) = (self.percent(rest.abs()), rest.abs());
            writeln!(out, "{share:>12.1} %  not accounted for ({rest:.0} ticks): the counters do not add up")?;
        }
        Ok(())
    }
}

/// Writes the counts of all runs: as a table, or in lines of fields.
///
/// # Errors
/// Errors of the writer.
pub fn write(out: &mut impl Write, counting: &Counting, command: &[OsString], runs: &[Run]) -> io::Result<()> {
    let counts: Vec<Counts> = runs.iter().map(|run| Counts::of(&run.ctl, run.elapsed)).collect();
    let means = Means::of(&counts, counting.repeat.is_some());
    let Some(ctl) = runs.last().map(|run| &run.ctl) else { return Ok(()) };
    let points = PointRows::new(runs, counting, means.seconds.value);
    if let Some(separator) = &counting.separator {
        means.write_fields(out, separator, None)?;
        return points.write_fields(out, separator);
    }
    let fact = |fact, unknown| ctl.fact(fact).unwrap_or(unknown);
    let (cpus, hz, clock) = (ctl.cpus().count(), fact(Fact::Hz, "?"), fact(Fact::Clock, "tsc"));
    let clock = if clock == "instructions" { "; time is counted in instructions" } else { "" };
    let words: Vec<String> = command.iter().map(|word| word.display().to_string()).collect();
    let name = if command.is_empty() { "the whole system".into() } else { format!("`{}`", words.join(" ")) };
    let times = if means.is_repeated { format!(" (mean of {} runs)", runs.len()) } else { String::new() };
    let (seconds, spread) = (means.seconds.value, means.spread(means.seconds));
    writeln!(out, "{name}{times}: {seconds:.2} s{spread}, {cpus} CPUs sampled at {hz} Hz{clock}\n")?;
    means.write_table(out)?;
    points.write_table(out)?;
    write_tasks(out, runs)
}

/// Writes the table by task, over all runs; nothing if the kernel does not count by task.
fn write_tasks(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    let mut sums = BTreeMap::<&str, [u64; EVENT_NAMES.len()]>::new();
    for (name, counts) in runs.iter().flat_map(|run| &run.tasks) {
        let row = sums.entry(name).or_default();
        row.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    if sums.is_empty() {
        return Ok(());
    }
    let mut table: Vec<_> = sums.into_iter().collect();
    table.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))));
    let all = if runs.len() > 1 { ", all runs" } else { "" };
    writeln!(out, "\n{}  task{all}", EVENT_NAMES.map(|event| format!("{event:>18}")).concat())?;
    for (name, counts) in table.iter().take(MAX_TASKS) {
        writeln!(out, "{}  {name}", counts.map(|count| format!("{count:>18}")).concat())?;
    }
    if table.len() > MAX_TASKS {
        writeln!(out, "and {} tasks with fewer events", table.len() - MAX_TASKS)?;
    }
    // As for points: what another program read, or the kernel overwrote, may have had more of these counts.
    if runs.iter().any(|run| run.points.is_none()) {
        writeln!(out, "these may be too low: a part of what the kernel counts was not read here")?;
    }
    Ok(())
}

/// What `-I` prints: what was counted in each interval.
#[derive(Debug)]
pub struct Intervals {
    length: Duration,
    separator: Option<String>,
    /// When the next interval ends, counted from the beginning of the run.
    pub next: Duration,
    before: Counts,
}

impl Intervals {
    /// Intervals of this length.
    pub fn new(length: Duration, separator: Option<String>) -> Self {
        Self { length, separator, next: length, before: Counts::default() }
    }

    /// Writes what was counted since the last call.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&mut self, out: &mut impl Write, ctl: &Ctl, elapsed: Duration) -> io::Result<()> {
        let now = Counts::of(ctl, elapsed);
        let is_first = self.before == Counts::default();
        let counts = now.since(&self.before);
        self.before = now;
        while self.next <= elapsed {
            self.next += self.length;
        }
        let means = Means::of(&[counts], false);
        if let Some(separator) = &self.separator {
            return means.write_fields(out, separator, Some(elapsed));
        }
        if is_first {
            writeln!(out, "#           time             counts unit  events")?;
        }
        for (row, count) in counts.rows.into_iter().enumerate() {
            let (name, unit) = (row_name(row), if row < TICKS { "" } else { "ticks" });
            writeln!(out, "{:>16.9} {count:>18} {unit:<5} {name}", elapsed.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_point::ByPoint;

    const CTL: &str = "hz 1000\nclock instructions\ncpu.1.sent 200\ncpu.1.coalesced 6\ncpu.1.pending 4\n\
                       cpu.1.user 90\ncpu.1.idle 20\ncpu.1.irq-on 50\ncpu.1.irq-off 20\ncpu.1.interrupt 8\n\
                       cpu.1.lost-full 2\ncpu.1.context-switches 5\ncpu.1.page-faults 7\ncpu.1.interrupts 9\n";

    fn run(ctl: &str, seconds: u64) -> Run {
        let ctl = Ctl::parse(ctl);
        let tasks = vec![("cp".into(), [4, 7, 2])];
        let points = Some(ByPoint::default());
        Run { ctl, tasks, points, elapsed: Duration::from_secs(seconds), ..Run::default() }
    }

    fn printed(counting: &Counting, runs: &[Run]) -> String {
        let mut out = Vec::new();
        write(&mut out, counting, &["cp".into(), "a".into()], runs).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn shares_add_up_to_everything() {
        let out = printed(&Counting::default(), &[run(CTL, 2)]);
        let shares: Vec<f64> = out.lines().filter_map(|line| line.split_once(" %")?.0.trim().parse().ok()).collect();
        assert_eq!(shares, [45.0, 25.0, 10.0, 4.0, 10.0, 3.0, 2.0, 1.0], "{out}");
        assert!(out.contains("`cp a`: 2.00 s, 1 CPUs sampled at 1000 Hz; time is counted in instructions"), "{out}");
        assert!(out.contains("5  context-switches            2.5 /s\n"), "{out}");
        assert!(!out.contains("not accounted"), "{out}");
        assert!(out.contains("  task\n"), "there are no other runs: {out}");
        assert!(out.ends_with("                 4                 7                 2  cp\n"), "{out}");
        let not_whole = printed(&Counting::default(), &[Run { points: None, ..run(CTL, 2) }]);
        let doubt = "these may be too low: a part of what the kernel counts was not read here\n";
        assert_eq!(not_whole, format!("{out}{doubt}"));
        let more = printed(&Counting::default(), &[run(&CTL.replace("sent 200", "sent 210"), 2)]);
        assert!(more.contains(" 4.8 %  not accounted for (10 ticks): the counters do not add up"), "{more}");
    }

    #[test]
    fn recorded_user_and_idle_time_is_user_and_idle_time() {
        let recorded = CTL.replace("user 90", "user 0").replace("idle 20", "idle 0")
            + "cpu.1.recorded-user 90\ncpu.1.recorded-idle 20\ncpu.1.recorded 188\n";
        let (table, fields) = (Counting::default(), Counting { separator: Some(",".into()), ..Counting::default() });
        for counting in [table, fields] {
            assert_eq!(printed(&counting, &[run(&recorded, 2)]), printed(&counting, &[run(CTL, 2)]));
        }
    }

    #[test]
    fn what_a_cpu_was_doing_is_not_known_if_the_kernel_does_not_say_it() {
        let ctl = "cpu.1.sent 200\ncpu.1.taken 200\ncpu.1.user 50\ncpu.1.recorded 100\ncpu.1.lost-overtaken 50\n";
        let out = printed(&Counting::default(), &[run(ctl, 2)]);
        assert!(out.contains("50.0 %  recorded, kind of code not told\n"), "{out}");
        assert!(!out.contains("not accounted"), "{out}");
    }

    #[test]
    fn tasks_that_have_no_row_are_counted() {
        for (more, said) in [(0, None), (1, Some("and 1 tasks with fewer events"))] {
            let tasks = (0..MAX_TASKS + more).map(|task| (format!("task-{task}"), [1, 0, 0])).collect();
            let out = printed(&Counting::default(), &[Run { tasks, ..run(CTL, 2) }]);
            assert_eq!(out.lines().find(|line| line.starts_with("and ")), said);
        }
    }

    #[test]
    fn several_runs_give_means_and_their_standard_error() {
        // 5, 7 and 9 context switches: variance 4, so the error of the mean is sqrt(4/3) = 1.1547, 16.50 % of 7.
        let runs = [5, 7, 9].map(|count| run(&CTL.replace("switches 5", &format!("switches {count}")), count - 3));
        let counting = Counting { repeat: Some(3), ..Counting::default() };
        let out = printed(&counting, &runs);
        assert!(out.contains("`cp a` (mean of 3 runs): 4.00 s  ( +- 28.87% ), 1 CPUs"), "{out}");
        assert!(out.contains("7  context-switches            1.8 /s  ( +- 16.50% )\n"), "{out}");
        assert!(out.contains("45.0 %  user  ( +-  0.00% )\n") && !out.contains("not accounted"), "{out}");
        assert!(out.contains("task, all runs\n                12                21                 6  cp\n"), "{out}");
        let out = printed(&Counting { separator: Some(";".into()), ..counting }, &runs);
        assert!(out.starts_with("7;;context-switches;4000000000;100.00;16.50%;1.8;/sec\n"), "{out}");
    }

    #[test]
    fn fields_are_in_the_order_of_perf() {
        let out = printed(&Counting { separator: Some(",".into()), ..Counting::default() }, &[run(CTL, 2)]);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), ROWS);
        assert_eq!(lines[0], "5,,context-switches,2000000000,100.00,2.5,/sec");
        assert_eq!(lines[3], "200,ticks,sent,2000000000,100.00,,");
        assert_eq!(lines[4], "90,ticks,user,2000000000,100.00,45.0,% of sent");
        assert_eq!(lines[11], "2,ticks,lost,2000000000,100.00,1.0,% of sent");
    }

    #[test]
    fn intervals_have_what_was_counted_since_the_one_before_and_their_ticks_balance() {
        let mut intervals = Intervals::new(Duration::from_secs(1), Some(",".into()));
        let later =
            CTL.replace("sent 200", "sent 260").replace("pending 4", "pending 1").replace("user 90", "user 153");
        let mut out = Vec::new();
        intervals.write(&mut out, &Ctl::parse(CTL), Duration::from_millis(1001)).unwrap();
        assert_eq!(intervals.next, Duration::from_secs(2));
        intervals.write(&mut out, &Ctl::parse(&later), Duration::from_millis(4500)).unwrap();
        assert_eq!(intervals.next, Duration::from_secs(5), "intervals that nobody could print are skipped");
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[3], "1.001000000,200,ticks,sent,1001000000,100.00,,");
        let second = |row: usize| lines[ROWS + row];
        // 60 ticks were sent, and 4 that were sent before were taken now: 63 user, 1 pending.
        assert_eq!(second(TICKS), "4.500000000,64,ticks,sent,3499000000,100.00,,");
        assert_eq!(second(4), "4.500000000,63,ticks,user,3499000000,100.00,98.4,% of sent");
        assert_eq!(second(PENDING), "4.500000000,1,ticks,pending,3499000000,100.00,1.6,% of sent");

        let (mut intervals, mut out) = (Intervals::new(Duration::from_secs(1), None), Vec::new());
        intervals.write(&mut out, &Ctl::parse(CTL), Duration::from_secs(1)).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("#           time             counts unit  events\n     1.000000000    "), "{out}");
        assert!(out.contains("                 90 ticks user\n"), "{out}");
        assert!(out.contains("                200 ticks sent\n"), "{out}");
        assert!(out.contains("                  5       context-switches\n"), "events are no ticks: {out}");
    }
}
