//! The trigger `published`: shares per entry. Here an entry lasts from its publication to that of the next place.
//!
//! In: the kernel's count of these times (`test-kernel/src/profiling/places.rs`) in a run without sampling, then
//! profiles of the same work. The sampled runs count too, so that both execute the same instructions. Idle time differs
//! from run to run, so it is taken from the sampled run itself, between two outputs of the count. Out: a table without
//! any tolerance. A second table shows the shares in a kernel that does not count: with entries from their publication
//! on, and with entries from the first instruction of their stub on. The number of instructions between these two has a
//! limit, and so has the cost of publishing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::basis::{Counted, z};
use super::entries::{self, IDLE_CPUS, PLACES, Row, Samples, bound, samples};
use super::{count, log_of};
use crate::build::Kernel;
use crate::parts::Parts;

/// Maximum number of profiles with this trigger.
const MAX_SEEDS: u64 = 5;
/// Maximum number of instructions of one entry and exit that are counted for the place before: those of the stub until
/// the entry is published, and those from the publication of the next place to the end of the stub.
const MAX_BEFORE_AND_AFTER: f64 = 80.0;
/// Maximum number of instructions for publishing at one entry and its exit together.
const MAX_COST: f64 = 60.0;
/// Interrupts in a round of the program.
const INTERRUPTS: f64 = 5.0;
/// Number of entries in a round: five system calls, a page fault, the interrupts.
const ENTRIES: f64 = 6.0 + INTERRUPTS;
/// The two words of a sample of an idle CPU: the address for `[running]`, and the facts "published" and "idle".
const IDLE: [&str; 2] = ["ffffffffffffeffe", "fffffffffffff006"];

/// The counts of the kernel.
#[derive(Default)]
struct Places {
    /// For each place its time in ticks of the instruction clock, and how often it was published.
    places: BTreeMap<String, (f64, f64)>,
    /// For each CPU and each output of the count: idle ticks, and the clock.
    idle: BTreeMap<u64, Vec<(u64, u64)>>,
    /// The number of instructions for counting one publication.
    cost: f64,
}

impl Places {
    /// Reads the counts from the serial log. If a line is there twice, the last one is used.
    fn read(log: &str) -> Result<Self> {
        let mut read = Self::default();
        for line in log.lines().filter_map(|line| line.strip_prefix("places: ")) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["cpu", cpu, "idle", ticks, "at", now] => {
                    read.idle.entry(cpu.parse()?).or_default().push((ticks.parse()?, now.parse()?));
                }
                ["counting", "takes", cost] => read.cost = cost.parse()?,
                [place, ticks, "in", times] => {
                    read.places.insert(place.to_owned(), (ticks.parse()?, times.parse()?));
                }
                _ => bail!("what is `places: {line}`?"),
            }
        }
        Ok(read)
    }

    fn of(&self, place: &str) -> Result<(f64, f64)> {
        self.places.get(place).copied().with_context(|| format!("the place {place} was not counted"))
    }

    /// The number of rounds of the program.
    fn rounds(&self) -> Result<f64> {
        Ok(self.of("[interrupt-240]")?.1 / INTERRUPTS)
    }

    /// The time in all of [`PLACES`] together, in ticks of the instruction clock (no sampling ticks).
    fn whole(&self) -> Result<f64> {
        PLACES.iter().map(|place| Ok(self.of(place)?.0)).sum()
    }

    /// Ticks that a place would have in a kernel that does not count.
    fn without_counting(&self, place: &str) -> Result<f64> {
        let (ticks, times) = self.of(place)?;
        Ok(ticks - times * self.cost)
    }
}

/// Makes all runs and prints the tables. `unpublished` is the program's count in a kernel that publishes nothing.
pub fn run(
    parts: &Parts,
    kernel: &Kernel,
    output: &Path,
    unpublished: &BTreeMap<String, Counted>,
    seeds: u64,
) -> Result<Vec<String>> {
    let truth =
        Places::read(&log_of(parts, kernel, &output.join("places"), "scenario=truth-places trigger=published")?)?;
    let from_stub = count(parts, kernel, output, "trigger=published")?;
    let (Some(from_stub), Some(unpublished)) = (from_stub.get("e"), unpublished.get("e")) else {
        bail!("mix e was not counted")
    };
    let seeds = seeds.min(MAX_SEEDS);
    let tables = if seeds > 1 { seeds as usize + 1 } else { 1 };
    let z = z(tables * PLACES.len() + seeds as usize * IDLE_CPUS);
    let hz = entries::hz_of(truth.whole()? / truth.rounds()?);
    let (mut wrong, mut all) = (Vec::new(), Samples::new());
    for seed in 1..=seeds {
        let folder = entries::profile_of("published", "idle,user", hz, seed, parts, kernel, output)?;
        let samples = samples(parts, &folder)?;
        let title = format!("published, entries, seed {seed}");
        wrong.extend(shares(&title, &truth, &samples, z)?);
        wrong.extend(idle(&title, &folder, z)?);
        samples.into_iter().for_each(|(place, count)| *all.entry(place).or_default() += count);
    }
    if seeds > 1 {
        let title = format!("published, entries, the samples of {seeds} seeds together");
        wrong.extend(shares(&title, &truth, &all, z)?);
    }
    wrong.extend(distance(&truth, from_stub, unpublished)?);
    Ok(wrong)
}

fn shares(title: &str, places: &Places, samples: &Samples, z: f64) -> Result<Vec<String>> {
    let whole = places.whole()?;
    entries::shares(title, |place| Ok(places.of(place)?.0 / whole), samples, z)
}

/// Compares the idle samples of each CPU between the first and the last output of the count with its idle time.
fn idle(title: &str, folder: &Path, z: f64) -> Result<Vec<String>> {
    let places = Places::read(&std::fs::read_to_string(folder.join("serial.log"))?)?;
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let mut wrong = Vec::new();
    for (cpu, looks) in &places.idle {
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else { continue };
        let (mut all, mut idle) = (0, 0);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, of, tsc, ref stack @ ..] = words[..] else { bail!("{line}: no sample") };
            let tsc = u64::from_str_radix(tsc, 16)?;
            if u64::from_str_radix(of, 16)? == *cpu && (first.1..last.1).contains(&tsc) {
                (all, idle) = (all + 1, idle + u64::from(stack == IDLE));
            }
        }
        let truth = (last.0 - first.0) as f64 / (last.1 - first.1) as f64;
        let (what, share) = (format!("idle, CPU {cpu}"), idle as f64 / all as f64);
        wrong.extend(Row { what: &what, truth, share, bound: bound(truth, all, z) }.judge(title));
    }
    if places.idle.values().filter(|looks| looks.len() > 1).count() < IDLE_CPUS {
        wrong.push(format!("{title}: the kernel did not say of each CPU how long it was idle"));
    }
    Ok(wrong)
}

/// Compares entries from their publication on with entries from the first instruction of the stub on: the shares, and
/// the number of instructions in between. The instructions of counting are subtracted.
fn distance(places: &Places, from_stub: &Counted, unpublished: &Counted) -> Result<Vec<String>> {
    let rounds = places.rounds()?;
    let (mut published_whole, whole) = (0.0, from_stub.values().sum::<u64>() as f64);
    for place in PLACES {
        published_whole += places.without_counting(place)?;
    }
    println!("\npublished, without the instructions of counting\n  by publication %  from the stub on %  what");
    for place in PLACES {
        let published = places.without_counting(place)? / published_whole * 100.0;
        println!("{published:18.3} {:19.3}  {place}", stub(from_stub, place) / whole * 100.0);
    }
    // By publication, user code has the instructions of its entries that come before the publication. The same holds
    // for system calls and the interrupts in them.
    let user = (places.without_counting("user")? / rounds - stub(from_stub, "user")) / (places.of("user")?.1 / rounds);
    let of_interrupts = stub(from_stub, "[interrupt-240]") - places.without_counting("[interrupt-240]")? / rounds;
    let cost = (whole - unpublished.values().sum::<u64>() as f64) / ENTRIES;
    let limits = [
        ("of an entry from user code stand at user code", user, MAX_BEFORE_AND_AFTER),
        ("of an interrupt stand at what it interrupted", of_interrupts / INTERRUPTS, MAX_BEFORE_AND_AFTER),
        ("are what publishing takes", cost, MAX_COST),
    ];
    println!("\ninstructions  at most  verdict    of one entry and its exit together");
    let judged = limits.map(|(what, instructions, most)| {
        let holds = (0.0..=most).contains(&instructions);
        let verdict = if holds { "right" } else { "WRONG" };
        let row = format!("{instructions:12.1} {most:8.0}  {verdict:<9}  {what}");
        println!("{row}");
        (!holds).then(|| format!("published, entries: {row}"))
    });
    Ok(judged.into_iter().flatten().collect())
}

fn stub(counted: &Counted, place: &str) -> f64 {
    counted.get(place).copied().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log with other lines in between, in which some counts are there twice.
    const LOG: &str = "places: cpu 1 idle 10 at 100\nplaces: counting takes 40\nplaces: user 5 in 1\nsomething else
places: cpu 1 idle 60 at 200\nplaces: counting takes 41\nplaces: user 1000 in 20\nplaces: [interrupt-240] 900 in 10\n";

    #[test]
    fn the_count_of_the_kernel_is_read_and_the_instructions_of_counting_are_taken_off() {
        let places = Places::read(LOG).unwrap();
        assert_eq!(places.idle[&1], [(10, 100), (60, 200)]);
        assert_eq!(places.without_counting("user").unwrap(), 1000.0 - 20.0 * 41.0);
        assert_eq!(places.rounds().unwrap(), 2.0);
        assert!(places.of("[syscall]").is_err() && Places::read("places: user 5\n").is_err());
    }

    #[test]
    fn a_share_that_is_off_is_wrong_and_so_is_an_entry_that_is_published_too_late() {
        let log = "places: user 300 in 1\nplaces: [syscall] 500 in 1\nplaces: [exception-14] 100 in 1\nplaces: [interrupt-240] 100 in 5\n";
        let places = Places::read(log).unwrap();
        let samples = |user| {
            Samples::from([("user", user), ("[syscall]", 5000), ("[exception-14]", 1000), ("[interrupt-240]", 1000)])
        };
        assert!(shares("", &places, &samples(3000), 4.0).unwrap().is_empty());
        assert!(!shares("", &places, &samples(3400), 4.0).unwrap().is_empty());
        let counted = |user, interrupt| {
            let counts = [("user", user), ("[syscall]", 500), ("[exception-14]", 100), ("[interrupt-240]", interrupt)];
            Counted::from(counts.map(|(place, count)| (place.to_owned(), count)))
        };
        // The round has one entry from user code and five interrupts.
        assert!(distance(&places, &counted(230, 120), &counted(200, 0)).unwrap().is_empty());
        assert_eq!(distance(&places, &counted(200, 120), &counted(200, 0)).unwrap().len(), 1);
        assert_eq!(distance(&places, &counted(230, 600), &counted(600, 600)).unwrap().len(), 2);
        assert_eq!(distance(&places, &counted(310, 120), &counted(200, 0)).unwrap().len(), 1);
    }

    #[test]
    fn hardly_any_samples_have_the_wider_bound_of_their_tail() {
        assert!((bound(0.5, 10_000, 4.0) - 0.02).abs() < 1e-9);
        assert!(bound(1.0, 10_000, 4.0) * 10_000.0 > 5.0);
        assert!(bound(0.9999, 10_000, 4.0) > 4.0 * (0.0001f64 / 10_000.0).sqrt());
    }
}
