//! Samples beside the exact contexts, to compare them. Stage: capture.
//!
//! In: `beside=N`, executed instructions of all vCPUs between two samples on average, and the shadow stack. Out: for
//! each sample two messages: what `record` would have recorded, and a visit with the exact context. Runs in: QEMU's
//! process, before a block.

use super::output::{Output, message};
use super::qemu::Vcpu;
use super::sample::interval;
use super::seen::Seen;
use super::shadow::Shadow;

pub struct Beside {
    period: u64,
    /// The number of executed instructions at which the next sample is due.
    pub due: u64,
    random: u64,
}

impl Beside {
    pub fn new(period: u64) -> Self {
        Self { period, due: period, random: 1 }
    }

    #[cold]
    pub fn sample(
        &mut self,
        cpu: usize,
        (vcpu, seen): (&Vcpu, &mut Seen),
        executed: u64,
        shadow: &Shadow,
        out: &Output,
    ) {
        self.due = executed + interval(&mut self.random, self.period);
        let words = seen.sample(vcpu, executed);
        let [_, rip, _, cs, ..] = words[..] else { return };
        out.send(message::SAMPLE, cpu, &words);
        let node = u64::from(shadow.cpus[cpu].node);
        out.send(message::VISIT, cpu, &[rip, cs, node, u64::from(shadow.window.is_open)]);
    }
}
