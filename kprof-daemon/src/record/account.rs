//! The account of a session: what became of its ticks, and whether the counters add up.
//!
//! In: two readings of ctl. Out: the difference per CPU and in total, as a table. Runs in: user process; without side
//! effects except for the writing. A value that the kernel counts is never computed here. A counter that does not add
//! up is reported.

use crate::ctl::Ctl;
use crate::drain_loop::Totals;
use kprof_format::account;
use kprof_format::counter::Counter;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// The columns of the table; `None` is the sum of all losses.
const COLUMNS: [Option<Counter>; 8] = [
    Some(Counter::Sent),
    Some(Counter::Taken),
    Some(Counter::Coalesced),
    Some(Counter::Pending),
    Some(Counter::User),
    Some(Counter::Idle),
    None,
    Some(Counter::Recorded),
];

/// What was counted between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// For each CPU, the counters by the kernel's names.
    pub cpus: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Difference {
    /// `after` minus `before`. A CPU that was added in between counts from 0. Ticks that were pending at the beginning
    /// are taken in the session, so they count as sent in it.
    pub fn new(before: &Ctl, after: &Ctl) -> Self {
        let cpu = |(cpu, counters): (u32, &crate::ctl::Counters)| {
            let count = |counter| before.cpu(cpu).map_or(0, |counters| counters.get(counter));
            let old = |name: &str| match Counter::of(name) {
                Some(Counter::Sent) => count(Counter::Sent).saturating_sub(count(Counter::Pending)),
                Some(Counter::Pending) => 0,
                Some(counter) => count(counter),
                None => before.cpu(cpu).and_then(|counters| counters.named(name)).unwrap_or(0),
            };
            let new = counters.iter().map(|(name, value)| (name.to_owned(), value.saturating_sub(old(name))));
            (cpu, new.collect())
        };
        Self { cpus: after.cpus().map(cpu).collect() }
    }

    /// The sum over all CPUs.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.cpus.values().filter_map(|counters| counters.get(counter.name())).sum()
    }

    /// The number of lost samples: the sum over all reasons.
    pub fn lost(&self) -> u64 {
        self.cpus.values().map(|counters| account::lost(named(counters))).sum()
    }

    /// One sentence for each identity that does not hold. Only meaningful after sampling has stopped.
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (cpu, counters) in &self.cpus {
            // Samples that were in a ring at the beginning had been recorded before. So over an interval only the
            // identities of ticks hold.
            for fault in [account::SENT, account::TAKEN].iter().filter_map(|identity| identity.fault(named(counters))) {
                found.push(format!("cpu {cpu}: {fault}"));
            }
        }
        found
    }

    /// Writes a line for each CPU.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let heads = COLUMNS.map(|column| column.map_or("lost", Counter::name));
        writeln!(out, "{:>5}{}", "cpu", heads.map(|head| format!("{head:>10}")).concat())?;
        for (cpu, counters) in &self.cpus {
            let value = |column: Option<Counter>| match column {
                None => account::lost(named(counters)),
                Some(counter) => counters.get(counter.name()).copied().unwrap_or(0),
            };
            writeln!(out, "{cpu:>5}{}", COLUMNS.map(|column| format!("{:>10}", value(column))).concat())?;
        }
        Ok(())
    }

    /// Writes what `kprof-record` prints at the end.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_account(
        &self,
        out: &mut impl Write,
        totals: &Totals,
        file: &Path,
        elapsed: Duration,
        quiet: bool,
    ) -> io::Result<()> {
        if !quiet {
            let seconds = elapsed.as_secs_f64();
            let (file, lost) = (file.display(), self.lost());
            writeln!(
                out,
                "{} samples in {seconds:.2} s to {file}, {} bytes, {lost} lost",
                totals.samples, totals.bytes
            )?;
            if totals.older > 0 {
                writeln!(out, "{} samples from before the recording are not in the file", totals.older)?;
            }
            self.write_table(out)?;
        }
        for sentence in self.contradictions() {
            writeln!(out, "the account does not balance: {sentence}")?;
        }
        Ok(())
    }
}

fn named(counters: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    counters.iter().map(|(name, value)| (name.as_str(), *value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ctl(text: &str) -> Ctl {
        Ctl::parse(text).unwrap()
    }

    #[test]
    fn only_what_was_counted_in_between_counts() {
        let before = ctl("cpu.1.sent 100\ncpu.1.taken 100\ncpu.1.recorded 90\ncpu.1.idle 10\n");
        let after = ctl("cpu.1.sent 160\ncpu.1.taken 155\ncpu.1.coalesced 5\ncpu.1.recorded 130\ncpu.1.idle 20\n\
                         cpu.1.lost-full 5\ncpu.2.sent 7\ncpu.2.taken 7\ncpu.2.recorded 7\n");
        let difference = Difference::new(&before, &after);
        assert_eq!((difference.sum(Counter::Sent), difference.lost()), (67, 5));
        assert_eq!(difference.contradictions(), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_add_up_is_said() {
        let after = ctl("cpu.3.sent 10\ncpu.3.taken 9\ncpu.3.recorded 8\n");
        let difference = Difference::new(&Ctl::default(), &after);
        assert_eq!(
            difference.contradictions(),
            [
                "cpu 3: sent 10 is not taken + coalesced + pending = 9",
                "cpu 3: taken 9 is not user + idle + lost + recorded = 8"
            ]
        );
    }

    #[test]
    fn ticks_on_their_way_at_the_beginning_and_at_the_end_are_in_the_account() {
        let before = ctl("cpu.1.sent 100\ncpu.1.taken 97\ncpu.1.pending 3\ncpu.1.recorded 97\n");
        let after = ctl("cpu.1.sent 150\ncpu.1.taken 146\ncpu.1.coalesced 2\ncpu.1.pending 2\ncpu.1.recorded 146\n");
        let difference = Difference::new(&before, &after);
        assert_eq!((difference.sum(Counter::Sent), difference.sum(Counter::Pending)), (53, 2));
        assert_eq!(difference.contradictions(), Vec::<String>::new());
    }
}
