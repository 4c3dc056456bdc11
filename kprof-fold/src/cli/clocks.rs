//! Time stamps that cannot be compared: of CPUs whose counters disagree, and of one whose counter went back. Stage:
//! command line.
//!
//! In: the first and last time stamps of each CPU, and the tick numbers at these times if the file has them. Out: a
//! sentence for each fault. A tick number belongs to one moment on all CPUs, so it shows how far their counters are
//! apart; without it, only CPUs that seem to have run in different ages are noticed.

use crate::profile::{Boot, Cpu, Profile};

/// Counters that disagree by more than so many periods of the sampler are named. A tick reaches the CPUs within one.
const APART_PERIODS: f64 = 20.0;
/// CPUs whose samples are this many times further apart than they are long are named.
const APART_SPANS: u64 = 10;

/// What is wrong with the time stamps of a boot.
pub fn faults(boot: &Boot) -> Vec<String> {
    let todo = "times of CPUs cannot be compared, by --between and in timelines: does every CPU have the same TSC?";
    let back = boot.cpus.iter().filter(|(_, cpu)| cpu.went_back).map(|(number, _)| {
        format!(
            "the time stamps of CPU {number} go back: was its TSC written to? --between and timelines are wrong there"
        )
    });
    let mut found: Vec<String> = back.collect();
    let Some((first, reference)) = boot.cpus.iter().find(|(_, cpu)| cpu.seen.tsc_min().is_some()) else { return found };
    for (number, cpu) in boot.cpus.iter().filter(|(number, cpu)| *number != first && cpu.seen.samples() > 0) {
        if let Some(ticks) = by_ticks(boot, reference, cpu).or_else(|| by_spans(reference, cpu)) {
            let apart = boot.tsc_hz().map_or_else(
                || format!("{ticks} ticks of the clock"),
                |hz| format!("{:.6} s", ticks as f64 / hz as f64),
            );
            found.push(format!("the time stamps of CPU {number} are {apart} from those of CPU {first}: {todo}"));
        }
    }
    found
}

/// How far two counters are apart at the same tick. `None` if that is not known, or little.
fn by_ticks(boot: &Boot, one: &Cpu, other: &Cpu) -> Option<u64> {
    // With other triggers each CPU counts its own ticks.
    if !matches!(boot.trigger(), Some("nmi" | "ipi")) || boot.rates((0, u64::MAX)).len() > 1 {
        return None;
    }
    let period = one.ticks.period()?;
    let ([from, _], [(tick, tsc), _]) = (one.ticks.ends()?, other.ticks.ends()?);
    let expected = from.1 as f64 + (tick as f64 - from.0 as f64) * period;
    // Intervals are random, so the time of a tick that is far away is known less exactly.
    let slack = period * (APART_PERIODS + (tick as f64 - from.0 as f64).abs() / 4.0);
    let apart = (tsc as f64 - expected).abs();
    (apart > slack).then_some(apart as u64)
}

/// How far apart the samples of two CPUs are, if that is many times as long as the samples took.
fn by_spans(one: &Cpu, other: &Cpu) -> Option<u64> {
    let span = |cpu: &Cpu| cpu.seen.tsc_min().zip(cpu.seen.tsc_max());
    let ((from, to), (first, last)) = (span(one)?, span(other)?);
    let apart = first.saturating_sub(to).max(from.saturating_sub(last));
    let longest = (to - from).max(last - first);
    (longest > 0 && apart > longest.saturating_mul(APART_SPANS)).then_some(apart)
}

/// A sentence about the CPUs that have no sample in the chosen time, although they have some in the file.
pub fn without_samples(
    profile: &Profile,
    between: Option<(u64, u64)>,
    is_chosen: impl Fn(u32) -> bool,
) -> Option<String> {
    let (from, to) = between?;
    let is_outside = |cpu: &Cpu| {
        let span = cpu.seen.tsc_min().zip(cpu.seen.tsc_max());
        span.is_some_and(|(first, last)| last < from || to <= first)
    };
    let cpus = profile.boots.iter().flat_map(|boot| &boot.cpus);
    let outside = cpus.filter(|(number, cpu)| is_chosen(**number) && is_outside(cpu));
    let outside: Vec<String> = outside.map(|(number, _)| number.to_string()).collect();
    (!outside.is_empty()).then(|| {
        format!(
            "CPU {} has samples, but none in the chosen time; if it ran then, its time stamps are not those of the \
             other CPUs (`kprof-fold doctor`)",
            outside.join(", ")
        )
    })
}
