//! The table `hits`: recorded hits of a point, or what the heap has not freed. Stage: output.
//!
//! In: hits by weight and by number. Out: a row for each recorded hit, and one for each sum of which neither a time nor
//! a stack is known: what was lost, and what was counted while no record was asked for. The weights of all rows add up
//! to the exact total of the point. What is not known of a row is null, never 0: the time, the task's own weight and,
//! for some lost hits, the CPU. The boot of a sum is null if the file has several boots, because the sums are those of
//! the whole file.

use super::table::{NULL, Table};
use super::{signed, stack_beside, stack_ids, text};
use crate::output::export::Input;
use crate::output::export::hits::Hits;
use crate::output::folded::NOT_RECORDED;
use crate::profile::Profile;
use crate::state::State;
use crate::symbols::name::visible;
use parquet::data_type::ByteArray;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The point.
#[derive(Clone, Copy, Debug)]
pub struct OfPoint<'a> {
    /// The hits with the weights for which they stand.
    pub weights: &'a Hits,
    /// The same hits with the numbers of hits for which they stand.
    pub counts: &'a Hits,
}

const HITS: &str = "message hits {
    required binary boot (STRING);
    required binary point (STRING);
    required binary unit (STRING);
    required binary task (STRING);
    required binary state (STRING);
    optional int32 cpu;
    optional int64 time_ns;
    required int64 weight;
    required int64 hits;
    optional int64 own_weight;
    required int64 stack;
}";

/// Writes the table.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, profile: &Profile, of: &OfPoint<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(HITS, out)?;
    let ids = stack_ids(input);
    let [weights, counts] = [of.weights, of.counts];
    let [point, unit] = [&weights.name, &weights.unit].map(|name| text(name));
    let boots: Vec<ByteArray> = profile.boots.iter().map(|boot| text(&visible(boot.id()))).collect();
    let tasks: Vec<ByteArray> = weights.tasks.iter().map(|task| text(task)).collect();
    let (states, nothing) = (State::NAMES.map(text), text(""));
    let mut row = |[boot, task, state]: [&ByteArray; 3], numbers: [i64; 6]| {
        table.row([boot, &point, &unit, task, state].map(ByteArray::clone), numbers)
    };
    for (hit, count) in weights.hits.iter().zip(&counts.hits) {
        let state = &states[input.places.state(hit.stack) as usize];
        let boot = boots.get(hit.boot as usize).unwrap_or(&nothing);
        let (cpu, nanos) = (hit.cpu.map_or(NULL, i64::from), input.clock.nanos(hit.boot, hit.tsc));
        let [nanos, weight, hits, own] = [nanos, hit.stands_for, count.stands_for, hit.weight].map(signed);
        row([boot, &tasks[hit.task as usize], state], [cpu, nanos, weight, hits, own, ids[hit.stack as usize]])?;
    }
    let mut beside = BTreeMap::<(Option<u64>, &str), [u64; 2]>::new();
    for (hits, at) in [(weights, 0), (counts, 1)] {
        hits.beside.iter().for_each(|(cpu, name, sum)| beside.entry((*cpu, name)).or_default()[at] = *sum);
    }
    let boot = if let [only] = &boots[..] { only } else { &nothing };
    for ((cpu, name), sums) in beside {
        let state = text(if name == NOT_RECORDED { "not recorded" } else { "lost" });
        let [weight, hits] = sums.map(signed);
        row([boot, &nothing, &state], [cpu.map_or(NULL, signed), NULL, weight, hits, NULL, stack_beside(name)])?;
    }
    table.finish()
}
