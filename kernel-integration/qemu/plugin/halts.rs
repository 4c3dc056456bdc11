//! How long each vCPU has waited in `hlt`. Stage: capture.
//!
//! In: blocks before they run, and the guest's clock. Out: for each vCPU the time from the end of its `hlt` to its next
//! block, and what the other vCPUs executed meanwhile; only from the time that counting begins until it ends. All in
//! the guest's clock, which goes on while no vCPU executes anything. Runs in: QEMU's process, before a block.

use super::block::{Block, Machine};

/// The guest's clock, and the instructions that all vCPUs have executed until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub ns: u64,
    pub executed: u64,
}

impl Moment {
    /// The time when this many instructions have begun.
    pub fn of(machine: &impl Machine, executed: u64) -> Self {
        Self { ns: machine.time(executed), executed }
    }

    /// From an earlier moment to this one.
    fn since(self, earlier: Self) -> Self {
        let executed = self.executed.saturating_sub(earlier.executed);
        Self { ns: self.ns.saturating_sub(earlier.ns), executed }
    }
}

/// The waits.
#[derive(Debug, Default)]
pub struct Halts {
    /// When counting began; `None` before, and after its end.
    begin: Option<Moment>,
    /// How long was counted.
    counted_ns: u64,
    /// By vCPU: since when it waits, and its waits until now.
    cpus: Vec<(Option<Moment>, Moment)>,
}

impl Halts {
    /// Counting begins. A wait that has begun counts from now on.
    pub fn begin(&mut self, now: Moment) {
        self.begin = Some(now);
        self.cpus.iter_mut().filter_map(|(since, _)| since.as_mut()).for_each(|since| *since = now);
    }

    /// Counting ends. A wait that has not ended counts until now.
    pub fn end(&mut self, now: Moment) {
        (0..self.cpus.len()).for_each(|cpu| self.resume(cpu, now));
        if let Some(begin) = self.begin.take() {
            self.counted_ns = now.since(begin).ns;
        }
    }

    /// A block is about to run.
    #[inline]
    pub fn before(&mut self, cpu: usize, block: &Block, executed: u64, machine: &impl Machine) {
        if matches!(self.cpus.get(cpu), Some((Some(_), _))) {
            self.resume(cpu, Moment::of(machine, executed));
        }
        if block.is_halt {
            self.halt(cpu, Moment::of(machine, executed + block.lengths.len() as u64));
        }
    }

    /// A vCPU waits from `now` on.
    #[cold]
    fn halt(&mut self, cpu: usize, now: Moment) {
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, Default::default());
        }
        self.cpus[cpu].0 = Some(now);
    }

    /// A vCPU executes code again.
    #[cold]
    fn resume(&mut self, cpu: usize, now: Moment) {
        let Some((since, sum)) = self.cpus.get_mut(cpu) else { return };
        if let Some(since) = since.take().filter(|_| self.begin.is_some()) {
            let wait = now.since(since);
            (sum.ns, sum.executed) = (sum.ns + wait.ns, sum.executed + wait.executed);
        }
    }

    /// For each vCPU: nanoseconds of its waits, what the others executed meanwhile, nanoseconds that were counted.
    pub fn all(&self) -> impl Iterator<Item = (usize, [u64; 3])> {
        (0..).zip(&self.cpus).map(|(cpu, (_, sum))| (cpu, [sum.ns, sum.executed, self.counted_ns]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64, executed: u64) -> Moment {
        Moment { ns, executed }
    }

    #[test]
    fn waits_count_from_the_begin_to_the_end_also_those_that_are_longer() {
        let mut halts = Halts::default();
        halts.halt(1, at(100, 10));
        halts.begin(at(400, 20));
        halts.resume(1, at(500, 50));
        halts.halt(0, at(600, 60));
        halts.resume(0, at(650, 60));
        halts.halt(0, at(700, 70));
        halts.end(at(1000, 75));
        assert_eq!(halts.all().collect::<Vec<_>>(), [(0, [350, 5, 600]), (1, [100, 30, 600])]);
        // After the end nothing counts.
        halts.halt(1, at(2000, 100));
        halts.resume(1, at(3000, 100));
        halts.end(at(4000, 100));
        assert_eq!(halts.all().nth(1), Some((1, [100, 30, 600])));
    }
}
