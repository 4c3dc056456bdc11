//! Parts of time with losses or filtered ticks, for the lanes and the sums of the page. Stage: output, part of the
//! page.
//!
//! In: the gaps of a profile. Out: the same gaps for the script, each with its CPU, its time in microseconds, and its
//! counts. If only a range of time was selected, each gap is clipped to this range and has its part of the counts, as
//! in `report --between`.

use super::Input;
use super::facts::Clock;
use serde_json::{Value, json};

/// Time stamps as two ends, either of which may be unknown.
type Ends = (Option<u64>, Option<u64>);

/// The ends within the chosen time; `None` if no part is in it.
fn clipped(input: &Input<'_>, (from, to): Ends) -> Option<Ends> {
    let Some((first, end)) = input.timeline.select().between else { return Some((from, to)) };
    let is_inside = from.or(to)? < end && to.or(from)? >= first;
    is_inside.then(|| (from.map(|tsc| tsc.max(first)), to.map(|tsc| tsc.min(end - 1))))
}

/// Losses: CPU, from, to, lost samples, and both ends again in TSC ticks since the boot's first
/// sample, as texts. With these the part of a loss in a range is exactly what `report --between` computes.
pub fn losses(input: &Input<'_>, clock: &Clock) -> Vec<Value> {
    let select = input.timeline.select();
    let chosen = input.profile.gaps.iter().filter(|gap| select.admits_cpu(gap.cpu));
    chosen
        .filter_map(|gap| {
            let (from, to) = clipped(input, (gap.from, gap.to))?;
            let at = |tsc: Option<u64>| tsc.map(|tsc| clock.micros(gap.boot as u32, tsc));
            let ticks = |tsc: Option<u64>| tsc.map(|tsc| tsc.saturating_sub(clock.first(gap.boot)).to_string());
            let lost = select.share(gap.samples(), gap.from, gap.to);
            (lost > 0).then(|| json!([gap.cpu, at(from), at(to), lost, ticks(from), ticks(to)]))
        })
        .collect()
}

/// Filtered ticks: CPU, from, to, ticks in user code, idle ticks, ticks in the kernel. Ticks before the first sample of
/// their CPU are drawn from the first sample of the boot on.
pub fn filtered(input: &Input<'_>, clock: &Clock) -> Vec<Value> {
    let select = input.timeline.select();
    let found = input.profile.gaps.iter().filter(|gap| select.admits_cpu(gap.cpu)).filter_map(|gap| {
        let ends = (gap.from.or(gap.to.map(|to| to.min(clock.first(gap.boot)))), gap.to);
        let (from, to) = clipped(input, ends)?;
        let share = |count| select.share(count, ends.0, ends.1);
        let at = |tsc: Option<u64>| tsc.map(|tsc| clock.micros(gap.boot as u32, tsc));
        let [user, idle, kernel] = [gap.ticks.user, gap.ticks.idle, gap.ticks.kernel].map(share);
        (user.max(idle).max(kernel) > 0).then(|| json!([gap.cpu, at(from), at(to), user, idle, kernel]))
    });
    found.collect()
}
