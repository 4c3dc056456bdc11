//! The way `published`: shares per entry, an entry being from where it is published to where the next place is.
//!
//! In: the kernel's count of just that (`test-kernel/src/profiling/places.rs`) in a run in which nobody samples, then
//! profiles of the same work. The runs that are sampled count too: both do the same, instruction by instruction. Idle
//! time: of the sampled run itself, from one look at the count to another, as it differs from run to run. Out: a table
//! without any slack; beside it what the shares are in a kernel that does not count, by publication and from the first
//! instruction of the stub on; and how many instructions of an entry lie between the two, which has a limit of its own,
//! as has what publishing takes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::entries::{self, IDLE_CPUS, PLACES, Row, Samples, bound, samples};
use super::{Counted, count, log_of, z};
use crate::build::Kernel;
use crate::parts::Parts;

/// Profiles of the way, at most.
const MOST_SEEDS: u64 = 5;
/// Instructions of one entry and exit that stand at what was there before: the stub, up to where it is published, and
/// from where the next place is to the end of the stub.
const MOST_BEFORE_AND_AFTER: f64 = 80.0;
/// Instructions that publishing takes, at one entry and its exit together.
const MOST_COST: f64 = 60.0;
/// Interrupts in a round of the program.
const INTERRUPTS: f64 = 5.0;
/// What is published in a round: five system calls, a page fault, the interrupts.
const ENTRIES: f64 = 6.0 + INTERRUPTS;
/// First address and facts of a sample of an idle CPU: `[running]`; published, idle. Nothing follows.
const IDLE: [&str; 2] = ["ffffffffffffeffe", "fffffffffffff006"];

/// What the kernel has counted.
#[derive(Default)]
struct Places {
    /// Of each place: ticks, and how often it was published.
    places: BTreeMap<String, (f64, f64)>,
    /// Of each CPU, by look: idle ticks, and the clock.
    idle: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Instructions that counting takes each time.
    cost: f64,
}

impl Places {
    /// From the serial log; of what is there twice the last counts.
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

    /// Of the program.
    fn rounds(&self) -> Result<f64> {
        Ok(self.of("[interrupt-240]")?.1 / INTERRUPTS)
    }

    /// Ticks of the places that are claimed.
    fn whole(&self) -> Result<f64> {
        PLACES.iter().map(|place| Ok(self.of(place)?.0)).sum()
    }

    /// Ticks that a place would have in a kernel that does not count.
    fn without_counting(&self, place: &str) -> Result<f64> {
        let (ticks, times) = self.of(place)?;
        Ok(ticks - times * self.cost)
    }
}

/// Runs it all and prints the tables. `unpublished` is the program's count in a kernel that publishes nothing.
pub fn run(
    parts: &Parts,
    kernel: &Kernel,
    output: &Path,
    unpublished: &BTreeMap<String, Counted>,
    seeds: u64,
) -> Result<Vec<String>> {
    let truth = Places::read(&log_of(parts, kernel, &output.join("places"), "scenario=truth-places way=published")?)?;
    let from_stub = count(parts, kernel, output, "way=published")?;
    let (Some(from_stub), Some(unpublished)) = (from_stub.get("e"), unpublished.get("e")) else {
        bail!("mix e was not counted")
    };
    let seeds = seeds.min(MOST_SEEDS);
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

/// Idle samples of each CPU between the first and the last look at the count.
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

/// From the first instruction of the stub to where the entry is published, and back: what the shares would be, and how
/// many instructions that is. Without the instructions of counting.
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
    // What user code has too much, its entries have too little; the same of interrupts, which came in system calls.
    let user = (places.without_counting("user")? / rounds - stub(from_stub, "user")) / (places.of("user")?.1 / rounds);
    let of_interrupts = stub(from_stub, "[interrupt-240]") - places.without_counting("[interrupt-240]")? / rounds;
    let cost = (whole - unpublished.values().sum::<u64>() as f64) / ENTRIES;
    let limits = [
        ("of an entry from user code stand at user code", user, MOST_BEFORE_AND_AFTER),
        ("of an interrupt stand at what it interrupted", of_interrupts / INTERRUPTS, MOST_BEFORE_AND_AFTER),
        ("are what publishing takes", cost, MOST_COST),
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

    /// What the kernel says, in part twice, between other lines.
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
        // One entry from user code and five interrupts in the round.
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
