//! The account of a session: what became of its ticks, and whether the counters add up.
//!
//! In: ctl, which counts since the session began. Out: the counters per CPU and in total, as a table. Runs in: user
//! process; without side effects except for the writing. A value that the kernel counts is never computed here. A
//! counter that does not add up is reported.

use crate::ctl::Ctl;
use crate::drain_loop::Totals;
use kprof_format::account::{self, FATES, fates};
use kprof_format::counter::Counter;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// The counters of all CPUs. They count since boot, or since the session began ([`Ctl::count_from_now`]).
#[derive(Clone, Copy, Debug)]
pub struct Account<'a>(pub &'a Ctl);

impl Account<'_> {
    /// The sum over all CPUs.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.cpus().map(|(_, counters)| counters.get(counter)).sum()
    }

    /// The number of lost samples: the sum over all reasons.
    pub fn lost(&self) -> u64 {
        self.0.cpus().map(|(_, counters)| counters.lost()).sum()
    }

    /// One sentence for each identity that does not hold. Only meaningful after sampling has stopped.
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (cpu, counters) in self.0.cpus() {
            // Samples that were in a ring at the beginning had been recorded before. So over an interval only the
            // identities of ticks hold.
            for fault in [account::SENT, account::TAKEN].iter().filter_map(|identity| identity.fault(counters.iter())) {
                found.push(format!("cpu {cpu}: {fault}"));
            }
        }
        found
    }

    /// How many ticks of all CPUs have had each of the [`FATES`].
    pub fn fates(&self) -> [u64; FATES.len()] {
        let each = self.0.cpus().map(|(_, counters)| fates(counters.iter()));
        each.fold([0; FATES.len()], |sum, one| std::array::from_fn(|at| sum[at].saturating_add(one[at])))
    }

    /// Writes a line for each CPU: the ticks that were sent, and what has become of them.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let sums = self.fates();
        let shown = || FATES.iter().enumerate().filter(|(at, fate)| fate.is_shown(sums[*at]));
        let heads = shown().map(|(_, fate)| format!("{:>10}", fate.name));
        writeln!(out, "{:>5}{:>10}{}", "cpu", Counter::Sent.name(), heads.collect::<String>())?;
        for (cpu, counters) in self.0.cpus() {
            let values = fates(counters.iter());
            let values = shown().map(|(at, _)| format!("{:>10}", values[at]));
            writeln!(out, "{cpu:>5}{:>10}{}", counters.get(Counter::Sent), values.collect::<String>())?;
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
            if totals.events > 0 {
                writeln!(out, "{} recorded hits of points", totals.events)?;
            }
            if totals.older > 0 {
                writeln!(out, "{} samples from before the recording are not in the file", totals.older)?;
            }
            self.write_table(out)?;
        }
        let missing = self.sum(Counter::Recorded).saturating_sub(totals.samples);
        if totals.reached_max {
            writeln!(
                out,
                "the file has reached --max-size, which has ended the recording; {missing} samples that the kernel has \
                 recorded are not in it"
            )?;
        } else if missing > 0 && !quiet {
            writeln!(out, "{missing} of the ticks in the table were recorded and are not in the file")?;
        }
        for sentence in self.contradictions() {
            writeln!(out, "the account does not balance: {sentence}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters of ctl text `after`, counted since ctl text `before`.
    fn between(before: &str, after: &str) -> Ctl {
        let mut ctl = Ctl::parse(before);
        ctl.count_from_now();
        ctl.update(after);
        ctl
    }

    #[test]
    fn only_what_was_counted_in_between_counts() {
        let before = "cpu.1.sent 100\ncpu.1.taken 100\ncpu.1.recorded 90\ncpu.1.idle 10\n";
        let after = "cpu.1.sent 160\ncpu.1.taken 155\ncpu.1.coalesced 5\ncpu.1.recorded 130\ncpu.1.idle 20\n\
                         cpu.1.lost-full 5\ncpu.2.sent 7\ncpu.2.taken 7\ncpu.2.recorded 7\n";
        let ctl = between(before, after);
        assert_eq!((Account(&ctl).sum(Counter::Sent), Account(&ctl).lost()), (67, 5));
        assert_eq!(Account(&ctl).contradictions(), Vec::<String>::new());
    }

    #[test]
    fn hits_of_points_and_older_samples_are_said_if_there_are_any() {
        let ctl = between("", "cpu.1.sent 2\ncpu.1.taken 2\ncpu.1.recorded 2\n");
        let said = |events, older| {
            let (mut out, totals) = (Vec::new(), Totals { samples: 2, bytes: 90, events, older, ..Totals::default() });
            Account(&ctl).write_account(&mut out, &totals, Path::new("f"), Duration::from_secs(3), false).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first = "2 samples in 3.00 s to f, 90 bytes, 0 lost\n";
        let plain = said(0, 0);
        let table = plain.strip_prefix(first).unwrap();
        assert!(!plain.contains("recorded hits") && !plain.contains("before the recording"), "{plain}");
        assert_eq!(said(5, 0), format!("{first}5 recorded hits of points\n{table}"));
        assert_eq!(said(0, 1), format!("{first}1 samples from before the recording are not in the file\n{table}"));
    }

    #[test]
    fn a_file_that_has_fewer_samples_than_the_table_counts_is_said_to_have_and_why() {
        let ctl = between("cpu.1.recorded 7\n", "cpu.1.sent 2142\ncpu.1.taken 2142\ncpu.1.recorded 2149\n");
        let last_line = |samples, reached_max, quiet| {
            let (mut out, totals) = (Vec::new(), Totals { samples, reached_max, ..Totals::default() });
            Account(&ctl).write_account(&mut out, &totals, Path::new("f"), Duration::from_secs(3), quiet).unwrap();
            String::from_utf8(out).unwrap().lines().last().map(str::to_owned)
        };
        let full = "the file has reached --max-size, which has ended the recording; 942 samples that the kernel has \
                    recorded are not in it";
        assert_eq!([false, true].map(|quiet| last_line(1200, true, quiet)), [Some(full.into()), Some(full.into())]);
        let rest = "2 of the ticks in the table were recorded and are not in the file";
        assert_eq!([false, true].map(|quiet| last_line(2140, false, quiet)), [Some(rest.into()), None]);
        assert!(last_line(2142, false, false).is_some_and(|line| line.trim().starts_with("1 ")), "the table");
    }

    #[test]
    fn what_does_not_add_up_is_said() {
        let ctl = between("", "cpu.3.sent 10\ncpu.3.taken 9\ncpu.3.recorded 8\n");
        assert_eq!(
            Account(&ctl).contradictions(),
            [
                "cpu 3: sent 10 is not taken + coalesced + pending = 9",
                "cpu 3: taken 9 is not user + idle + kernel + lost + recorded = 8"
            ]
        );
    }

    #[test]
    fn ticks_on_their_way_at_the_beginning_and_at_the_end_are_in_the_account() {
        let before = "cpu.1.sent 100\ncpu.1.taken 97\ncpu.1.pending 3\ncpu.1.recorded 97\n";
        let after = "cpu.1.sent 150\ncpu.1.taken 146\ncpu.1.coalesced 2\ncpu.1.pending 2\ncpu.1.recorded 146\n";
        let ctl = between(before, after);
        assert_eq!((Account(&ctl).sum(Counter::Sent), Account(&ctl).sum(Counter::Pending)), (53, 2));
        assert_eq!(Account(&ctl).contradictions(), Vec::<String>::new());
    }
}
