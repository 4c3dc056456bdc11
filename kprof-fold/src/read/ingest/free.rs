//! Samples and lines outside any batch. Stage: read.
//!
//! In: samples that [`Ingest`] has found in no batch, and lines that should be in one. Out: the samples in the account
//! of their CPU, or a report of what was left out and why. In the text form a line outside any batch is damage as soon
//! as there are batches, so it never counts there.

use super::Ingest;
use crate::problems::Kind;
use crate::profile::Seen;
use crate::read::consumer::Consumer;
use crate::stacks::Traits;

/// CPUs below this number are counted in an array.
const FEW_CPUS: usize = 1024;

impl<C: Consumer> Ingest<C> {
    #[cold]
    pub(super) fn first_on_cpu(&mut self, cpu: u32, tsc: u64, traits: Traits) {
        if (cpu as usize) < FEW_CPUS {
            self.free.resize(cpu as usize + 1, Seen::default());
            self.free[cpu as usize].add(tsc, traits);
        } else {
            self.free_beyond = true;
            self.present_boot().cpus.entry(cpu).or_default().seen.add(tsc, traits);
        }
    }

    /// Whether samples outside any batch have come since the last batch.
    pub(in crate::read) fn has_free_samples(&self) -> bool {
        self.free_beyond || self.free.iter().any(|seen| seen.samples() > 0)
    }

    /// Adds the samples outside any batch to the current boot.
    pub(in crate::read) fn flush_free(&mut self) {
        self.consumer.commit();
        self.free_beyond = false;
        for (cpu, seen) in std::mem::take(&mut self.free).into_iter().enumerate() {
            if seen.samples() > 0 {
                self.present_boot().cpus.entry(cpu as u32).or_default().seen.merge(&seen);
            }
        }
    }

    /// Called at the first lines of headers and of batches. In the text form samples outside any batch do not count
    /// then, not even earlier ones.
    pub(in crate::read) fn end_free(&mut self) {
        if !self.is_text {
            return self.flush_free();
        }
        if !self.only_batches {
            self.only_batches = true;
            if self.has_free_samples() {
                self.discard_free();
            }
        }
        self.tell_stray();
    }

    #[cold]
    fn discard_free(&mut self) {
        self.consumer.discard();
        self.free_beyond = false;
        let mut samples: u64 = std::mem::take(&mut self.free).iter().map(Seen::samples).sum();
        for cpu in self.present_boot().cpus.values_mut() {
            samples += std::mem::take(&mut cpu.seen).samples();
        }
        self.present_boot().cpus.retain(|_, cpu| cpu.account.is_some());
        let (file, line) = (&self.file, self.line);
        self.problems.add_lines(Kind::Stray, samples, || {
            format!("{file}:{line}: {samples} samples before the first header or batch; left out")
        });
    }

    /// Counts a line that is in no batch although it should be.
    #[cold]
    pub(in crate::read) fn stray_line(&mut self) {
        let place = self.line;
        self.is_in_header = false;
        self.stray.get_or_insert((place, 0)).1 += 1;
    }

    /// Reports the lines outside any batch since the last batch.
    pub(in crate::read) fn tell_stray(&mut self) {
        if let Some((place, lines)) = self.stray.take() {
            let file = &self.file;
            self.problems.add_lines(Kind::Stray, lines, || {
                format!("{file}:{place}: {lines} lines outside any batch; left out (their batch is damaged)")
            });
        }
    }
}
