//! The account: checks that every sample that the kernel delivered is in the file, and that the kernel's counters add
//! up. Stage: after fold.
//!
//! In: the counters of the newest `# account` line of each CPU (otherwise those of its newest batch), and the number of
//! samples that the file really has. Out: for each CPU its counters and the identities that do not hold. Nothing is
//! corrected.
//!
//! ```text
//! delivered = samples in the file            and the identities of kprof_format::account
//! ```
//!
//! A file that begins in the middle of a boot (a second recording, a rotated file) lacks the samples that were
//! delivered before. In this case its positions must be contiguous from its first batch to its last.

use crate::profile::{self, Counters, Profile, counted, named};
use kprof_format::account::{self, FATES, IDENTITIES, IDLE, OTHER, USER};
use kprof_format::counter::Counter;
use std::collections::BTreeSet;
use std::fmt;

/// The account of one CPU.
#[derive(Clone, Debug)]
pub struct CpuAccount {
    /// Index of its boot.
    pub boot: usize,
    /// The CPU.
    pub cpu: u32,
    /// The counters as the kernel sent them.
    pub counters: Counters,
    /// How many ticks have had each of the [`FATES`].
    pub fates: [u64; FATES.len()],
    /// Samples of this CPU in the file.
    pub in_file: u64,
    /// Whether the file begins later than this boot, so that earlier samples are not in it.
    pub begins_later: bool,
    /// How many of the samples in `in_file` were not delivered: they were still in the ring, and a panic handler has
    /// written them (`export_last`).
    pub dumped: u64,
    /// Whether the counters are from an `# account` line. Only then must the identities hold.
    pub is_final: bool,
    /// Identities that do not hold, in words.
    pub faults: Vec<String>,
}

impl CpuAccount {
    /// The value of a counter, if the profile contains it.
    pub fn find(&self, counter: Counter) -> Option<u64> {
        counted(&self.counters, counter)
    }

    /// The value of a counter, or 0 if the profile does not contain it.
    pub fn get(&self, counter: Counter) -> u64 {
        self.find(counter).unwrap_or(0)
    }

    /// The sum of all losses of this CPU.
    pub fn lost(&self) -> u64 {
        account::lost(named(&self.counters))
    }
}

/// The account of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// The accounts, ordered by boot and then by CPU.
    pub cpus: Vec<CpuAccount>,
}

impl Account {
    /// Checks the account of a profile.
    pub fn of(profile: &Profile) -> Self {
        let mut cpus = Vec::new();
        for (boot_index, boot) in profile.boots.iter().enumerate() {
            let overwrites = boot.overwrites();
            for (number, cpu) in &boot.cpus {
                let is_final = cpu.account.is_some();
                let counters = cpu.account.clone().unwrap_or_else(|| cpu.batch.clone());
                if counters.is_empty() {
                    continue;
                }
                let in_file = cpu.seen.samples();
                let (begins_later, dumped) = (boot.begins_later(cpu), cpu.dumped());
                let mut one = CpuAccount {
                    boot: boot_index,
                    cpu: *number,
                    fates: fates(&counters, cpu),
                    counters,
                    in_file,
                    begins_later,
                    dumped,
                    is_final,
                    faults: vec![],
                };
                if is_final {
                    one.faults = identities(&one, overwrites, cpu);
                }
                cpus.push(one);
            }
        }
        Self { cpus }
    }

    /// Whether every CPU has a final account and all identities hold.
    pub fn is_balanced(&self) -> bool {
        !self.cpus.is_empty() && self.cpus.iter().all(|cpu| cpu.is_final && cpu.faults.is_empty())
    }

    /// Sum of a counter over all CPUs.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.cpus.iter().map(|cpu| cpu.get(counter)).fold(0, u64::saturating_add)
    }

    /// How many ticks of all CPUs have had each of the [`FATES`].
    pub fn fates(&self) -> [u64; FATES.len()] {
        let each = self.cpus.iter().map(|cpu| cpu.fates);
        each.fold([0; FATES.len()], |sum, one| std::array::from_fn(|at| sum[at].saturating_add(one[at])))
    }

    /// Sum of all losses.
    pub fn lost(&self) -> u64 {
        self.cpus.iter().map(CpuAccount::lost).fold(0, u64::saturating_add)
    }

    /// The losses by their reasons, in words; empty if nothing was lost.
    pub fn losses_in_words(&self) -> String {
        let reason = |counter| match counter {
            Counter::LostFull => "because a ring was full",
            Counter::LostNested => "to an NMI inside the handler",
            Counter::LostTorn => "because what the CPU had published changed meanwhile",
            Counter::LostOvertaken => "because they were overwritten before they were copied",
            other => other.name(),
        };
        let counted = Counter::LOSSES.into_iter().map(|counter| (self.sum(counter), reason(counter)));
        let words = counted.filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The fates of the ticks of a CPU. If the kernel does not count the kinds of what it records, the samples themselves
/// tell user code and idle tasks.
fn fates(counters: &Counters, read: &profile::Cpu) -> [u64; FATES.len()] {
    let mut fates = account::fates(named(counters));
    for (fate, seen) in [(USER, read.seen.samples() - read.seen.kernel()), (IDLE, read.seen.idle())] {
        let moved = fates[OTHER].min(seen);
        fates[fate] = fates[fate].saturating_add(moved);
        fates[OTHER] -= moved;
    }
    fates
}

fn identities(cpu: &CpuAccount, overwrites: bool, read: &profile::Cpu) -> Vec<String> {
    let broken = IDENTITIES.iter().filter_map(|identity| identity.fault(named(&cpu.counters)));
    let mut faults: Vec<String> = broken.map(|fault| format!("CPU {}: {fault}", cpu.cpu)).collect();
    // The samples of a dump are still in the ring.
    let dumped = cpu.dumped;
    if dumped > cpu.get(Counter::InRing) {
        faults.push(format!(
            "CPU {}: {dumped} samples were dumped of {} in the ring",
            cpu.cpu,
            cpu.get(Counter::InRing)
        ));
    }
    if overwrites {
        return faults;
    }
    let (delivered, in_file) = (cpu.get(Counter::Delivered), cpu.in_file.saturating_sub(dumped));
    let mut wrong = |what| faults.push(format!("CPU {}: delivered {delivered} is not {what}, {in_file}", cpu.cpu));
    if !cpu.begins_later && delivered != in_file {
        wrong("the samples in the file");
    } else if in_file > delivered {
        wrong("at least the samples in the file");
    } else if cpu.begins_later && dumped == 0 {
        let ends = read.begins_at.into_iter().chain(read.positions.iter().map(|(_, to)| *to));
        let begins = read.positions.iter().map(|(from, _)| *from).chain(cpu.find(Counter::PositionOut));
        for (end, begin) in ends.zip(begins).filter(|(end, begin)| end < begin) {
            faults.push(format!("CPU {}: positions {end} to {begin} are not in the file", cpu.cpu));
        }
    }
    faults
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cpus.is_empty() {
            return write!(f, "account: the file has none (losses were not counted at the source)");
        }
        let boots: BTreeSet<usize> = self.cpus.iter().map(|cpu| cpu.boot).collect();
        if boots.len() > 1 {
            // Each boot has its own counters, which begin at 0.
            for (at, boot) in boots.into_iter().enumerate() {
                let cpus = self.cpus.iter().filter(|cpu| cpu.boot == boot).cloned().collect();
                write!(f, "{}boot {}: {}", if at > 0 { "; " } else { "" }, boot + 1, Self { cpus })?;
            }
            return Ok(());
        }
        let (sum, lost) = (|counter| self.sum(counter), self.lost());
        let in_file: u64 = self.cpus.iter().map(|cpu| cpu.in_file).sum();
        if self.cpus.iter().all(|cpu| !cpu.is_final) {
            return write!(
                f,
                "account: the file has no final counters, so what was sent cannot be compared with what came. Up to the \
                 last batch: taken {}, coalesced {}, lost {lost}; in the file {in_file}. Stop the recording before the \
                 file is copied",
                sum(Counter::Taken),
                sum(Counter::Coalesced),
            );
        }
        // Ticks are pending only if a CPU did not answer.
        let pending = match sum(Counter::Pending) {
            0 => String::new(),
            ticks => format!(" + pending {ticks}"),
        };
        // Only a profile of user code alone has filtered kernel ticks.
        let kernel = match sum(Counter::Kernel) {
            0 => String::new(),
            ticks => format!(" + kernel {ticks}"),
        };
        write!(
            f,
            "account: sent {} = taken {} + coalesced {}{pending}; taken = user {} + idle {}{kernel} + lost {lost} + \
             recorded {}; in the file {in_file}",
            sum(Counter::Sent),
            sum(Counter::Taken),
            sum(Counter::Coalesced),
            sum(Counter::User),
            sum(Counter::Idle),
            sum(Counter::Recorded),
        )?;
        let open: Vec<String> =
            self.cpus.iter().filter(|cpu| !cpu.is_final).map(|cpu| format!("CPU {}", cpu.cpu)).collect();
        let faults: Vec<&str> = self.cpus.iter().flat_map(|cpu| &cpu.faults).map(String::as_str).collect();
        match (open.is_empty(), faults.is_empty()) {
            (true, true) if self.cpus.iter().any(|cpu| cpu.dumped > 0) => {
                let dumped: u64 = self.cpus.iter().map(|cpu| cpu.dumped).sum();
                write!(f, ": balanced; {dumped} of these are still in the ring (export_last)")
            }
            (true, true) if self.cpus.iter().any(|cpu| cpu.begins_later) => {
                write!(
                    f,
                    ": balanced; {} were delivered before the file begins",
                    sum(Counter::Delivered).saturating_sub(in_file)
                )
            }
            (true, true) => write!(f, ": balanced"),
            (_, false) => write!(f, ": NOT BALANCED: {}", faults.join("; ")),
            (false, true) => write!(f, ": not closed yet ({})", open.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Boot, Cpu};
    use crate::stacks::Traits;

    fn profile(change: Option<(&str, u64)>) -> Profile {
        let counters = [("sent", 10), ("taken", 9), ("coalesced", 1), ("user", 2), ("idle", 1), ("lost-full", 1)];
        let more = [("recorded", 5), ("delivered", 4), ("in-ring", 1)];
        let mut account: Counters =
            counters.iter().chain(&more).map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mut cpu = Cpu::default();
        (0..4).for_each(|tsc| cpu.seen.add(tsc, Traits::of(&[1 << 63])));
        if let Some((name, value)) = change {
            account.insert(name.to_owned(), value);
        }
        cpu.account = Some(account);
        Profile { boots: vec![Boot { cpus: [(1, cpu)].into(), ..Boot::default() }], ..Profile::default() }
    }

    #[test]
    fn a_balanced_account_is_called_balanced() {
        let account = Account::of(&profile(None));
        assert!(account.is_balanced(), "{account}");
        assert!(account.to_string().ends_with("lost 1 + recorded 5; in the file 4: balanced"), "{account}");
    }

    #[test]
    fn ticks_that_a_cpu_has_not_answered_are_in_the_balance() {
        let mut profile = profile(Some(("pending", 3)));
        profile.boots[0].cpus.get_mut(&1).unwrap().account.as_mut().unwrap().insert("sent".to_owned(), 13);
        let account = Account::of(&profile);
        assert!(account.is_balanced(), "{account}");
        assert!(account.to_string().starts_with("account: sent 13 = taken 9 + coalesced 1 + pending 3; "), "{account}");
    }

    #[test]
    fn a_file_that_begins_in_the_midst_of_a_boot_may_lack_what_was_before_and_nothing_else() {
        let of = |delivered, begins_at, positions: &[(u64, u64)]| {
            let mut profile = profile(Some(("delivered", delivered)));
            let cpu = profile.boots[0].cpus.get_mut(&1).unwrap();
            let account = cpu.account.as_mut().unwrap();
            account.extend([("recorded".to_owned(), delivered + 1), ("position-out".to_owned(), 90)]);
            account.extend([("taken".to_owned(), delivered + 5), ("sent".to_owned(), delivered + 6)]);
            (cpu.positions, cpu.begins_at) = (positions.to_vec(), Some(begins_at));
            Account::of(&profile).to_string()
        };
        let ends = |text: String, end: &str| assert!(text.ends_with(end), "{text}");
        ends(of(10, 40, &[(40, 90)]), "in the file 4: balanced; 6 were delivered before the file begins");
        ends(of(10, 0, &[(0, 90)]), "NOT BALANCED: CPU 1: delivered 10 is not the samples in the file, 4");
        ends(of(10, 40, &[(40, 80)]), "NOT BALANCED: CPU 1: positions 80 to 90 are not in the file");
        ends(of(10, 40, &[(40, 60), (70, 90)]), "NOT BALANCED: CPU 1: positions 60 to 70 are not in the file");
        ends(of(10, 40, &[(50, 90)]), "NOT BALANCED: CPU 1: positions 40 to 50 are not in the file");
        ends(of(3, 40, &[(40, 90)]), "NOT BALANCED: CPU 1: delivered 3 is not at least the samples in the file, 4");
    }

    #[test]
    fn a_cpu_that_was_idle_since_an_earlier_file_ended_is_balanced_without_a_sample() {
        let of = |is_from_its_start| {
            let mut profile = profile(Some(("position-out", 90)));
            profile.boots[0].is_from_its_start = is_from_its_start;
            profile.boots[0].cpus.get_mut(&1).unwrap().seen = Default::default();
            Account::of(&profile).to_string()
        };
        let text = of(false);
        assert!(text.ends_with("in the file 0: balanced; 4 were delivered before the file begins"), "{text}");
        let text = of(true);
        assert!(text.ends_with("NOT BALANCED: CPU 1: delivered 4 is not the samples in the file, 0"), "{text}");
    }

    #[test]
    fn a_recording_of_copies_may_have_holes_if_what_is_missing_there_counts_as_overtaken() {
        let of = |overtaken, delivered| {
            let mut profile = profile(Some(("lost-overtaken", overtaken)));
            let cpu = profile.boots[0].cpus.get_mut(&1).unwrap();
            let account = cpu.account.as_mut().unwrap();
            account.extend([("delivered".to_owned(), delivered), ("recorded".to_owned(), delivered + 1)]);
            let taken = 2 + 1 + 1 + overtaken + delivered + 1;
            account.extend([("taken".to_owned(), taken), ("sent".to_owned(), taken + 1)]);
            account.insert("position-out".to_owned(), 90);
            (cpu.positions, cpu.begins_at) = (vec![(40, 60), (70, 90)], Some(40));
            Account::of(&profile).to_string()
        };
        let text = of(3, 4);
        assert!(text.contains(" + lost 4 + ") && text.ends_with("in the file 4: balanced"), "{text}");
        let text = of(3, 6);
        assert!(text.ends_with("NOT BALANCED: CPU 1: delivered 6 is not the samples in the file, 4"), "{text}");
        assert!(of(0, 4).ends_with("positions 60 to 70 are not in the file"), "{}", of(0, 4));
    }

    #[test]
    fn every_single_change_of_a_counter_is_noticed() {
        for name in "sent taken coalesced pending user idle lost-full lost-torn recorded delivered in-ring".split(' ') {
            let account = Account::of(&profile(Some((name, 77))));
            assert!(!account.is_balanced(), "{name}: {account}");
            assert!(account.to_string().contains("NOT BALANCED: CPU 1"), "{name}: {account}");
        }
        assert!(!Account::of(&Profile::default()).is_balanced());
    }
}
