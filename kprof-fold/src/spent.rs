//! Spent: what the chosen CPUs did in the chosen time. Stage: read, part of its second result.
//!
//! In: every sample of these CPUs and this time, of whatever task, and the ticks without a sample. Out: how many ticks
//! hit each state. It is needed only where the kernel's own counters do not say it: these are of a whole boot, and
//! count each tick once, at whatever rate it came.

use crate::profile::{Profile, Spent, Unsampled};
use crate::read::consumer::Sample;
use crate::select::{Select, in_words};
use crate::state::State;

/// Counts samples by their state.
#[derive(Debug)]
pub struct Counter {
    select: Select,
    certain: [u64; 5],
    /// Those of the present batch.
    open: [u64; 5],
}

impl Counter {
    /// A counter of the samples of these CPUs and this time.
    pub fn new(select: &Select) -> Self {
        let select = Select { cpus: select.cpus.clone(), between: select.between, ..Select::default() };
        Self { select, certain: [0; 5], open: [0; 5] }
    }

    /// Counts a sample of the present batch.
    pub fn add(&mut self, sample: &Sample<'_>) {
        if self.select.admits_sample(sample) {
            self.open[State::of(sample.traits) as usize] += 1;
        }
    }

    /// The samples of the present batch count.
    pub fn commit(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.certain.iter_mut().zip(open).for_each(|(certain, open)| *certain += open);
    }

    /// The samples of the present batch do not count.
    pub fn discard(&mut self) {
        self.open = [0; 5];
    }

    /// What was counted, and the ticks without a sample in the same time.
    pub fn spent(&self, profile: &Profile) -> Spent {
        let select = &self.select;
        let of = match &select.cpus[..] {
            [] => "all CPUs".to_owned(),
            [one] if one.start() == one.end() => format!("CPU {}", one.start()),
            several => format!("CPUs {}", in_words(several)),
        };
        let of = if select.between.is_some() { format!("{of}, chosen time") } else { of };
        Spent { states: self.certain, unsampled: unsampled(profile, select), of }
    }
}

/// The ticks without a sample on the chosen CPUs and in the chosen time. What cannot be read from the file is lost.
pub fn unsampled(profile: &Profile, select: &Select) -> Unsampled {
    let mut sum = Unsampled::default();
    for gap in profile.gaps.iter().filter(|gap| select.admits_cpu(gap.cpu)) {
        let share = |count| select.share(count, gap.from, gap.to);
        let Unsampled { user, idle, kernel, coalesced, .. } = gap.ticks;
        let [user, idle, kernel, coalesced] = [user, idle, kernel, coalesced].map(share);
        sum.add(&Unsampled { user, idle, kernel, coalesced, lost: share(gap.samples()) });
    }
    sum
}
