//! What the profiler's handler itself has cost, in the unit in which the kernel has measured it. Stage: output.
//!
//! In: the header and the account. Out: a share of the time, cycles, or why it is not known. A clock that is too coarse
//! gives no number, and cycles are not converted to time, because the frequency of the processor is not known.
//!
//! Of 64 ticks one is measured. `cycles` goes from the beginning of the first of `n` such handlers to that of the last
//! one, so the mean from one to the next is `cycles / (n - 1)`; `self-cycles` is 64 times the sum of all `n`:
//!
//! ```text
//! cycles a tick    = self-cycles / n / 64
//! share of cycles  = (self-cycles / n) / (cycles / (n - 1))
//! ```

use crate::account::{Account, CpuAccount};
use crate::profile::{Boot, Profile};
use kprof_format::counter::{Counter, TICKS_A_MEASUREMENT};
use kprof_format::fact::Fact;
use std::fmt;

/// The self cost of all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum SelfCost {
    /// Measured by the clock: a share of the time of all CPUs, 0 to 1.
    Time(f64),
    /// Measured by the cycle counters of the CPUs.
    Cycles {
        /// The mean of the handlers that were measured.
        a_tick: f64,
        /// How many were measured.
        measured: u64,
        /// The handlers' share of the cycles that the CPUs have counted, 0 to 1, if two or more were measured on a CPU.
        share: Option<f64>,
        /// The CPUs whose counter does not count.
        without: Vec<u32>,
    },
    /// Not measured, and why.
    NotMeasured(String),
}

/// The self cost of a profile. If its boots measure it differently, the first boot decides.
pub fn of(profile: &Profile, account: &Account) -> SelfCost {
    let source = |boot: &Boot| boot.fact(Fact::SelfCost).map(|fact| fact.trim().to_owned());
    let first = profile.boots.first().and_then(source);
    let cpus: Vec<&CpuAccount> =
        account.cpus.iter().filter(|cpu| profile.boots.get(cpu.boot).and_then(source) == first).collect();
    match first.as_deref() {
        None => SelfCost::Time(share_of_time(profile, &cpus)),
        Some("cycles") => by_cycles(&cpus),
        Some("-") => SelfCost::NotMeasured(match profile.boots.iter().find_map(Boot::tsc_hz) {
            Some(hz) => format!(
                "a tick of the kernel's clock is {:.0} ns, and the kernel offers no cycle counter \
                 (Config::cycle_counter)",
                1e9 / hz as f64
            ),
            None => "the kernel's clock is too coarse, and it offers no cycle counter".to_owned(),
        }),
        Some(other) => SelfCost::NotMeasured(format!("by {other}, which this kprof-fold does not know")),
    }
}

/// The handlers' share of the time of all CPUs.
fn share_of_time(profile: &Profile, cpus: &[&CpuAccount]) -> f64 {
    let (mut own, mut elapsed) = (0.0, 0.0);
    for cpu in cpus {
        let boot = &profile.boots[cpu.boot];
        let ticks = match (boot.tsc_hz(), boot.number(Fact::Hz)) {
            (Some(tsc_hz), Some(hz)) if hz > 0 => cpu.get(Counter::Sent) as f64 * tsc_hz as f64 / hz as f64,
            _ => 0.0,
        };
        let from = boot.cpus.values().filter_map(|cpu| cpu.seen.tsc_min()).min();
        let to = boot.cpus.values().filter_map(|cpu| cpu.seen.tsc_max()).max();
        let span = from.zip(to).map_or(0, |(from, to)| to - from) as f64;
        own += cpu.get(Counter::SelfTsc) as f64;
        elapsed += f64::max(ticks, span);
    }
    if elapsed > 0.0 { (own / elapsed).clamp(0.0, 1.0) } else { 0.0 }
}

fn by_cycles(cpus: &[&CpuAccount]) -> SelfCost {
    // Batches have no such counters; only an account line does.
    let with: Vec<_> = cpus.iter().filter_map(|cpu| Some((cpu, cpu.find(Counter::SelfCycles)?))).collect();
    let is_told = |cpu: &&&CpuAccount| cpu.find(Counter::Sent).is_some() && cpu.find(Counter::SelfCycles).is_none();
    let without: Vec<u32> = cpus.iter().filter(is_told).map(|cpu| cpu.cpu).collect();
    let measured: u64 = with.iter().map(|(cpu, _)| cpu.get(Counter::SelfSamples)).sum();
    if measured == 0 {
        return SelfCost::NotMeasured(match (with.is_empty(), without.is_empty()) {
            (true, true) => "the profile has no account".to_owned(),
            (true, false) => standing(&without),
            (false, _) => format!("fewer than {TICKS_A_MEASUREMENT} ticks on each CPU, of which one is measured"),
        });
    }
    let own: f64 = with.iter().map(|(_, own)| *own as f64).sum();
    // On each CPU the mean from one measured handler to the next, for as many as there were.
    let (mut of, mut all) = (0.0, 0.0);
    for (cpu, own) in &with {
        let (cycles, measured) = (cpu.get(Counter::Cycles) as f64, cpu.get(Counter::SelfSamples) as f64);
        if cycles > 0.0 && measured > 1.0 {
            of += *own as f64;
            all += cycles * measured / (measured - 1.0);
        }
    }
    let share = (all > 0.0).then(|| (of / all).clamp(0.0, 1.0));
    SelfCost::Cycles { a_tick: own / TICKS_A_MEASUREMENT as f64 / measured as f64, measured, share, without }
}

fn standing(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    format!("the cycle counter of CPU {} is not enabled, or stands still", cpus.join(", "))
}

impl SelfCost {
    /// The share of the time, if that is what was measured.
    pub fn share_of_time(&self) -> Option<f64> {
        if let Self::Time(share) = self { Some(*share) } else { None }
    }

    /// The share of the cycles that the CPUs have counted, if that is what was measured.
    pub fn share_of_cycles(&self) -> Option<f64> {
        if let Self::Cycles { share, .. } = self { *share } else { None }
    }

    /// The sentence for a profile whose self cost is no row of the table of times.
    pub fn sentence(&self) -> Option<String> {
        self.share_of_time().is_none().then(|| format!("self cost: {self}"))
    }
}

impl fmt::Display for SelfCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(share) => write!(f, "{:.2} % of the time", share * 100.0),
            Self::NotMeasured(why) => write!(f, "not measured: {why}"),
            Self::Cycles { a_tick, measured, share, without } => {
                write!(f, "{a_tick:.0} cycles a tick, the mean of {measured}")?;
                if let Some(share) = share {
                    write!(f, "; {:.2} % of the cycles that the CPUs counted meanwhile", share * 100.0)?;
                }
                if without.is_empty() { Ok(()) } else { write!(f, "; {}", standing(without)) }
            }
        }
    }
}
