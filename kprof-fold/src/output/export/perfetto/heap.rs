//! The kernel's heap in Perfetto's trace: a heap profile. Stage: output.
//!
//! In: for each stack what was allocated, and what of it was not freed, as estimates. Out: packets. Perfetto draws a
//! flame graph of each of four numbers: bytes and allocations, all of them or those that were not freed. The profile is
//! at the time of the last allocation that was not freed. A heap has no boots there: its allocations are added up.

use super::proto::{ClockSnapshot, ClockTime, HeapDump, HeapProfile, HeapSample, Packet, Timebase};
use super::{PIECE, Trace};
use crate::heap::Estimate;
use crate::output::export::Input;
use crate::output::export::hits::Hits;
use crate::stacks::StackId;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the trace. `mean_bytes` is the mean distance of two samples.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    input: &Input<'_>,
    hits: &Hits,
    (rows, mean_bytes): (&BTreeMap<StackId, (Estimate, Estimate)>, Option<u64>),
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut trace = Trace { input, out, bytes: Vec::new(), tracks: 0, boots: 1 };
    // Times of heap profiles are those of another clock than all others; here they are the same.
    let clocks = [4, 6].map(|clock_id| ClockTime { clock_id, timestamp: Some(0) }).to_vec();
    trace.packet(Packet { clock_snapshot: Some(ClockSnapshot { clocks }), ..Packet::default() })?;
    trace.begin(Timebase { period: 1, name: hits.name.clone(), ..Timebase::default() })?;
    let timestamp = hits.hits.last().map_or(0, |hit| input.clock.nanos(hit.boot, hit.tsc));
    let samples: Vec<HeapSample> = rows.iter().map(sample).collect();
    let pieces = samples.chunks(PIECE).count();
    for (piece, index) in samples.chunks(PIECE).zip(0..) {
        let dump = HeapDump {
            pid: 1,
            samples: piece.to_vec(),
            timestamp,
            heap_name: "kernel".to_owned(),
            sampling_interval_bytes: mean_bytes.unwrap_or(1),
        };
        let (process_dumps, continued) = (vec![dump], (index as usize) + 1 < pieces);
        let profile_packet = Some(HeapProfile { process_dumps, continued, index: Some(index) });
        trace.packet(Packet { timestamp: Some(timestamp), profile_packet, ..Packet::default() })?;
    }
    Ok(())
}

/// What is freed is the difference of the rounded numbers, so that what is not freed is as elsewhere.
fn sample((stack, (all, live)): (&StackId, &(Estimate, Estimate))) -> HeapSample {
    let [allocated, bytes] = [all.bytes, live.bytes].map(|bytes| bytes.round() as u64);
    let [count, live] = [all.allocations, live.allocations].map(|number| number.round() as u64);
    HeapSample {
        callstack_id: u64::from(*stack) + 1,
        self_allocated: allocated,
        self_freed: allocated.saturating_sub(bytes),
        alloc_count: count,
        free_count: count.saturating_sub(live),
    }
}
