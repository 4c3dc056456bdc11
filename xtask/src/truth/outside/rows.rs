//! The shares of functions, exact and sampled, and their comparison.
//!
//! In: stacks with counts. Out: for each function its share by itself (`self`) and with its callees (`total`), and a
//! verdict for those of at least [`MIN_SHARE`] of all instructions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::entries::{Row, bound};
use super::stacks::Stack;
use super::{CPU, IDLE, NMI, SAMPLER_CPU, stacks};

/// Functions and tasks with a smaller exact share are not judged.
const MIN_SHARE: f64 = 0.005;
/// The row of the idle task, which is always judged.
const IDLE_KIND: &str = "idle";

/// Counts by function.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Of all stacks.
    pub all: u64,
    /// How many samples these are.
    pub samples: u64,
    /// What the row of the idle task is a part of.
    with_idle: u64,
    /// By `self` or `total`, and function.
    rows: BTreeMap<(&'static str, String), u64>,
}

impl Shares {
    fn add(&mut self, stack: &[&str], task: &str, count: u64) {
        self.all += count;
        let mut add = |kind, name: &str| *self.rows.entry((kind, name.to_owned())).or_default() += count;
        if let Some(leaf) = stack.last() {
            add("self", leaf);
        }
        stack.iter().collect::<BTreeSet<_>>().into_iter().for_each(|name| add("total", name));
        add("task", task);
    }

    /// With the row of the idle task, which is a part of another sum than the others: of time, or of all samples.
    pub fn with_idle(mut self, idle: u64, of: u64) -> Self {
        self.rows.insert((IDLE_KIND, "the idle task".to_owned()), idle);
        self.with_idle = of;
        self
    }

    /// The counts of samples, each a stack from the outermost function with what it counts.
    pub fn of_samples<'a>(samples: impl Iterator<Item = (&'a Stack, u64)>) -> Self {
        let mut shares = Self::default();
        for (stack, count) in samples {
            shares.add(&stack.frames.iter().map(String::as_str).collect::<Vec<_>>(), &stack.task, count);
            shares.samples += 1;
        }
        shares
    }

    /// Without the samples in functions with this in their name, as a profiler would have it that drops them.
    pub fn without(&self, part: &str) -> Self {
        let mut less = self.clone();
        for ((kind, name), count) in &mut less.rows {
            if *kind == "self" && name.contains(part) {
                less.all -= std::mem::take(count);
            }
        }
        less
    }

    fn share(&self, row: &(&'static str, String)) -> f64 {
        let all = if row.0 == IDLE_KIND { self.with_idle } else { self.all };
        self.rows.get(row).copied().unwrap_or(0) as f64 / all as f64
    }
}

/// The exact counts of a run.
#[derive(Default)]
pub struct Exact {
    /// Those of CPU 1.
    pub shares: Shares,
    /// What is not in them: instructions by what they are.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Instructions of the handler of NMIs, by the interrupted stack.
    pub handler: BTreeMap<Vec<String>, u64>,
}

/// The parts that are left out.
const HANDLER: &str = "left out: in the handler of NMIs";
const IDLE_PART: &str = "left out: in the idle task, and in interrupts while it waits";
const SAMPLER: &str = "left out: of the sampler's CPU";

/// Reads the exact counts.
pub fn exact(folder: &Path, tasks: &BTreeMap<u64, String>) -> Result<Exact> {
    let file = folder.join("exact.folded");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut exact = Exact::default();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a folded line ends with its count")?;
        let (cpu, stack) = stack.split_once(';').context("a stack begins with its CPU")?;
        let (task, stack) = stack.split_once(';').context("its task comes next")?;
        let task: u64 =
            task.strip_prefix("[task ").and_then(|task| task.strip_suffix(']')?.parse().ok()).context("a task")?;
        let (count, frames): (u64, Vec<&str>) = (count.parse()?, stack.split(';').collect());
        let handler = frames.iter().position(|frame| *frame == NMI);
        let why = match handler {
            _ if cpu != format!("[cpu {CPU}]") => SAMPLER,
            Some(at) => {
                let interrupted = stacks::normal(&frames[..at]).into_iter().map(str::to_owned).collect();
                *exact.handler.entry(interrupted).or_default() += count;
                HANDLER
            }
            None if frames.contains(&IDLE) => IDLE_PART,
            None => {
                let unnamed = || format!("id{task:x}");
                exact.shares.add(&stacks::normal(&frames), &tasks.get(&task).cloned().unwrap_or_else(unnamed), count);
                continue;
            }
        };
        *exact.left_out.entry(why).or_default() += count;
    }
    ensure!(exact.shares.all > 0, "{}: nothing was counted", file.display());
    let of = |part| exact.left_out.get(part).copied().unwrap_or(0);
    let (halted, all) = times(folder)?;
    // No tick is in the handler of the tick before.
    exact.shares = exact.shares.with_idle(halted + of(IDLE_PART), all - of(HANDLER));
    Ok(exact)
}

/// How long the CPU was halted, and all of the guest's time, in nanoseconds, from the table of counts. An error if the
/// sampler's CPU was halted: then such runs would not always be the same.
fn times(folder: &Path) -> Result<(u64, u64)> {
    let file = folder.join("counts.txt");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let (_, rows) = text.split_once("halted (ns)").with_context(|| format!("{}: nothing of halts", file.display()))?;
    let (mut halted, mut by_sampler, mut all) = (None, None, None);
    for row in rows.lines() {
        match row.split_whitespace().collect::<Vec<_>>()[..] {
            [ns, _, _, CPU] => halted = Some(ns.parse()?),
            [ns, _, _, SAMPLER_CPU] => by_sampler = Some(ns),
            [ns, _, "all", ..] => all = Some(ns.parse()?),
            _ => {}
        }
    }
    ensure!(by_sampler == Some("0"), "{}: vCPU {SAMPLER_CPU} was halted, or is missing", file.display());
    halted.zip(all).with_context(|| format!("{}: nothing of halts of vCPU {CPU}, or of all time", file.display()))
}

/// Exact and sampled shares of the same run.
#[derive(Clone, Default)]
pub struct Table {
    pub title: String,
    pub exact: Shares,
    /// Each sample counts the instructions that it stands for.
    pub sampled: Shares,
    /// Each sample counts 1, as in the profile.
    pub profile: Shares,
}

impl Table {
    /// The sum of several runs.
    pub fn sum(tables: &[Self], title: String) -> Self {
        let mut sum = Self { title, ..Self::default() };
        for table in tables {
            let all = [&table.exact, &table.sampled, &table.profile];
            for (to, from) in [&mut sum.exact, &mut sum.sampled, &mut sum.profile].into_iter().zip(all) {
                to.all += from.all;
                to.samples += from.samples;
                to.with_idle += from.with_idle;
                from.rows.iter().for_each(|(row, count)| *to.rows.entry(row.clone()).or_default() += count);
            }
        }
        sum
    }

    /// The rows that are judged, largest first.
    fn judged(&self) -> Vec<&(&'static str, String)> {
        let mut rows: Vec<_> =
            self.exact.rows.keys().filter(|row| self.exact.share(row) >= MIN_SHARE || row.0 == IDLE_KIND).collect();
        rows.sort_by(|one, other| {
            one.0.cmp(other.0).then_with(|| self.exact.share(other).total_cmp(&self.exact.share(one)))
        });
        rows
    }

    /// How many rows are judged.
    pub fn count(&self) -> usize {
        self.judged().len()
    }

    /// How many samples a row's share is of.
    fn samples(&self, row: &(&'static str, String)) -> u64 {
        if row.0 == IDLE_KIND { self.sampled.with_idle } else { self.sampled.samples }
    }

    fn bound(&self, row: &(&'static str, String), z: f64) -> f64 {
        bound(self.exact.share(row), self.samples(row), z)
    }

    /// Prints the table, and returns the rows that do not hold.
    pub fn judge(&self, z: f64) -> Vec<String> {
        println!("\n{}: {} samples", self.title, self.sampled.samples);
        println!("  exact %   sampled %    bound  verdict    kind  profile %  function");
        let judge = |row: &(&'static str, String)| {
            let (truth, share) = (self.exact.share(row), self.sampled.share(row));
            let what = format!("{:<5} {:9.3}  {}", row.0, self.profile.share(row) * 100.0, row.1);
            Row { what: &what, truth, share, bound: self.bound(row, z) }.judge(&self.title)
        };
        let wrong = self.judged().into_iter().filter_map(judge).collect();
        println!("the largest deviation is {:.2} standard deviations; the bound is {z:.2}", self.largest());
        wrong
    }

    /// The largest deviation of a row, in standard deviations of its share.
    fn largest(&self) -> f64 {
        let deviation = |row| {
            let (truth, share) = (self.exact.share(row), self.sampled.share(row));
            (share - truth).abs() / (truth * (1.0 - truth) / self.samples(row) as f64).sqrt()
        };
        self.judged().into_iter().map(deviation).filter(|deviation| deviation.is_finite()).fold(0.0, f64::max)
    }

    /// The rows that do not hold, without printing.
    pub fn wrong(&self, z: f64) -> Vec<&(&'static str, String)> {
        let is_wrong = |row: &&(&'static str, String)| {
            (self.exact.share(row) - self.sampled.share(row)).abs() > self.bound(row, z)
        };
        self.judged().into_iter().filter(is_wrong).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(sampled: [u64; 2]) -> Table {
        let (mut exact, mut shares) = (Shares::default(), Shares::default());
        for (leaf, exact_count, sampled) in [("sort", 40_000, sampled[0]), ("copy", 60_000, sampled[1])] {
            exact.add(&["main", leaf], leaf, exact_count);
            shares.add(&["main", leaf], leaf, sampled);
            shares.samples += sampled;
        }
        Table { exact, sampled: shares, ..Table::default() }
    }

    #[test]
    fn a_share_that_is_off_is_wrong_and_so_is_one_whose_samples_are_dropped() {
        let good = table([4_000, 6_000]);
        // By itself, with callees, by task.
        assert_eq!((good.count(), good.wrong(4.0).len()), (7, 0));
        assert_eq!(table([4_400, 5_600]).wrong(4.0).len(), 6);
        assert!((table([4_049, 5_951]).largest() - 1.0).abs() < 0.01);
        let dropped = Table { sampled: good.sampled.without("sort"), ..good };
        assert!(dropped.wrong(4.0).iter().any(|row| row.1 == "sort"));
    }

    #[test]
    fn the_idle_task_is_judged_also_if_it_is_seldom_and_a_wrong_share_of_it_is_found() {
        let with = |exact, sampled| {
            let table = table([4_000, 6_000]);
            let samples = 10_000 + sampled;
            let (exact, sampled) = (table.exact.with_idle(exact, 110_000), table.sampled.with_idle(sampled, samples));
            Table { exact, sampled, ..table }
        };
        assert_eq!((with(0, 0).count(), with(0, 0).wrong(4.0).len()), (8, 0));
        assert_eq!(with(100, 12).wrong(4.0).len(), 0);
        let wrong = with(100, 200);
        assert!(matches!(wrong.wrong(4.0)[..], [(IDLE_KIND, _)]));
    }

    #[test]
    fn the_idle_row_is_of_the_guests_time_whatever_the_sampler_executes_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "exact.folded",
            &format!(
                "[cpu 1];[task 1];main 500\n[cpu 1];[task 1];main;{NMI} 20\n[cpu 1];[task 0];{IDLE} 2\n\
                 [cpu 0];[task 0];main;test_kernel::cpu::turns::pass_time 300\n"
            ),
        );
        let halts = |of_sampler| {
            let rows = format!("{of_sampler} 0.00 0  0\n 98 9.61 98  1\n 1020 100.00  all of the guest's time\n");
            write("counts.txt", &format!("\n halted (ns) %  instructions of the others  vCPU\n {rows}"));
        };
        halts(0);
        let exact = exact(folder.path(), &BTreeMap::new()).unwrap();
        let idle = exact.shares.rows.keys().find(|row| row.0 == IDLE_KIND).unwrap();
        assert_eq!(exact.shares.share(idle), 0.1);
        assert_eq!((exact.shares.all, exact.left_out[IDLE_PART], exact.left_out[SAMPLER]), (500, 2, 300));
        halts(1);
        assert!(super::exact(folder.path(), &BTreeMap::new()).is_err());
    }

    #[test]
    fn a_function_that_is_in_a_stack_twice_counts_once() {
        let mut shares = Shares::default();
        shares.add(&["f", "g", "f"], "sh", 3);
        assert_eq!(shares.rows[&("total", "f".to_owned())], 3);
        assert_eq!(shares.rows[&("self", "f".to_owned())], 3);
    }
}
