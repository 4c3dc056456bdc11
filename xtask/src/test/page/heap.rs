//! A profile of the kernel's heap, for the tests of the page.
//!
//! In: how many bytes an allocation has on average, and how many frees were lost on each CPU. Out: a profile whose
//! other allocations and frees are all recorded, of three CPUs in two tasks, where a block may be freed on another CPU;
//! and each allocation that was not freed with its time, so that a range can be computed. The functions are those of
//! `events.rs`.

use std::fmt::Write as _;

use anyhow::Result;

use super::events::{CPUS, Made, TEXT, sealed};
use crate::bench::fold::Random;

const ALLOCATIONS: u64 = 900;

/// Makes the profile.
///
/// # Errors
/// Never: writing to memory does not fail.
pub fn profile(mean_bytes: u64, lost_frees: u64) -> Result<Made> {
    let mut random = Random(mean_bytes);
    let mut batches = vec![(String::new(), 0u64); CPUS as usize + 1];
    let (mut allocs, mut frees) = (vec![(0, 0); CPUS as usize + 1], vec![(0, 0); CPUS as usize + 1]);
    let (mut live, mut tsc) = (Vec::new(), 1_000_000_000);
    for number in 1..=ALLOCATIONS {
        tsc += 1 + random.below(10_000_000);
        let (cpu, other) = (1 + random.below(CPUS), 1 + random.below(CPUS));
        let (bytes, function) = (1 + random.below(2 * mean_bytes), 2 + random.below(6));
        let task = ["copy", "sh"][number as usize % 2];
        let [leaf, root] = [function, function % 2].map(|at| TEXT + at * 0x1000 + 0x20);
        let (batch, events) = &mut batches[cpu as usize];
        writeln!(batch, "!heap.alloc {task} {cpu} {tsc:x} {bytes} {number:x},{number:x}000 {leaf:x} {root:x}")?;
        *events += 1;
        allocs[cpu as usize].0 += 1;
        allocs[cpu as usize].1 += bytes;
        if random.below(3) == 0 {
            live.push((tsc, cpu, bytes));
            continue;
        }
        let (freed, (batch, events)) = (tsc + random.below(20_000_000), &mut batches[other as usize]);
        writeln!(batch, "!heap.free {task} {other} {freed:x} {bytes} {number:x},{number:x}000 {root:x}")?;
        *events += 1;
        frees[other as usize].0 += 1;
        frees[other as usize].1 += bytes;
    }
    let mut meta = "# batch cpu=meta from=0 to=60\n".to_owned();
    for (name, sums, lost) in [("heap.alloc", &allocs, 0), ("heap.free", &frees, lost_frees)] {
        for (cpu, (hits, bytes)) in sums.iter().enumerate().skip(1) {
            writeln!(
                meta,
                "# point-account tsc=9 cpu={cpu} weight={bytes} recorded={hits} lost={lost} asked-weight={bytes} \
                 unit=bytes point={name}"
            )?;
        }
    }
    let mut text = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# cpus 4\n# sampler 0\n".to_owned();
    text += &sealed(&meta, "cpu=meta to=60");
    for (cpu, (lines, events)) in batches.iter().enumerate().skip(1) {
        let batch = format!("# batch cpu=event-{cpu} from=0 to=60\n{lines}");
        text += &sealed(&batch, &format!("cpu=event-{cpu} to=60 samples={events}"));
    }
    let first = live.first().map_or(0, |(tsc, ..)| *tsc);
    let live = live.iter().map(|(tsc, cpu, bytes)| format!("[{},{cpu},{bytes}]", (tsc - first) / 1000));
    Ok(Made { text, truth: format!("[{}]\n", live.collect::<Vec<_>>().join(",")) })
}
