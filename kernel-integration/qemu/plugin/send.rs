//! What was counted, as messages. Stage: capture.
//!
//! In: probes, translated blocks. Out: messages. Runs in: QEMU's process, when QEMU ends.

use super::describe::Translated;
use super::output::{Output, message};
use super::probes::Times;
use super::shadow::Shadow;
use std::sync::atomic::Ordering::Relaxed;

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
    let ends = known.runs.iter().skip(1).map(|(first, _)| *first as usize).chain([known.block.lengths.len()]);
    for ((first, counter), end) in known.runs.iter().zip(ends) {
        let (count, lengths) = (counter.load(Relaxed), &known.block.lengths[*first as usize..end]);
        if count > 0 {
            let mut words = vec![count, known.block.address(*first), u64::from(known.is_user), lengths.len() as u64];
            let packed = |some: &[u8]| some.iter().rev().fold(0, |all, length| all << 4 | u64::from(*length));
            words.extend(lengths.chunks(16).map(packed));
            out.send(message::RUN, 0, &words);
        }
    }
}
