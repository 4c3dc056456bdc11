//! What was counted, as messages. Stage: capture.
//!
//! In: probes, translated blocks. Out: messages. Runs in: QEMU's process, when QEMU ends.

use super::functions::UNKNOWN;
use super::output::{Output, message};
use super::probes::Times;
use super::shadow::Shadow;
use super::translate::Translated;

/// What probes have found.
pub fn probes(out: &Output, shadow: &Shadow) {
    for (number, probe) in (0..).zip(&shadow.probes.list) {
        let Times { returned, sum, min, max, by_range } = &probe.times;
        out.send(message::PROBE, 0, &[number, probe.calls, *returned, *sum, *min, *max]);
        for (range, calls) in (0..).zip(by_range).filter(|(_, calls)| **calls > 0) {
            out.send(message::TIMES, 0, &[number, range, *calls]);
        }
        probe.keys.iter().for_each(|(key, calls)| out.send(message::KEY, 0, &[number, *key, *calls]));
    }
}

/// A block's runs of instructions with their counts.
pub fn runs(out: &Output, known: &Translated) {
    let block = &known.of.block;
    let is_unknown = block.function == UNKNOWN && block.pieces.is_empty();
    let whose = if known.of.is_user { 1 } else { 2 * u64::from(is_unknown) };
    for run in &known.runs {
        let count = run.count.get();
        if count > 0 {
            let lengths = &block.lengths[run.first as usize..][..run.length as usize];
            let mut words = vec![count, block.address(run.first), whose, u64::from(run.length)];
            let packed = |some: &[u8]| some.iter().rev().fold(0, |all, length| all << 4 | u64::from(*length));
            words.extend(lengths.chunks(16).map(packed));
            out.send(message::RUN, 0, &words);
        }
    }
}
