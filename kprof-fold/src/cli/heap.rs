//! `--event heap.live`: the kernel's heap. Stage: command line.
//!
//! In: a profile with recorded allocations and frees. Out: what is known of what was not freed, in words. Lost records
//! are said: an allocation whose free was lost counts as not freed.

use crate::heap::HeapTally;
use crate::points::Point;
use crate::profile::Profile;
use kprof_format::memory::{FREE, LIVE};
use kprof_format::point::PointCounter;

/// The unit of what was not freed.
pub(super) fn unit(of_allocations: bool) -> &'static str {
    if of_allocations { "allocations" } else { "bytes" }
}

/// Whether records were lost, so that it is not certain what was not freed.
pub(super) fn is_doubtful(allocs: &Point, frees: &Point) -> bool {
    [allocs, frees].iter().any(|point| point.count(PointCounter::Lost) > 0)
}

/// Whether there is a free in the file, or was one.
pub(super) fn has_frees(frees: &Point) -> bool {
    frees.count(PointCounter::Recorded) + frees.count(PointCounter::Lost) > 0
}

/// The sums of the frees over all boots.
pub(super) fn frees(profile: &Profile) -> Point {
    let mut frees = Point::default();
    profile.boots.iter().filter_map(|boot| boot.points.get(FREE)).for_each(|point| frees.add(point));
    frees
}

/// What is known of the allocations that were not freed, in one line.
pub(super) fn account_of_live(tally: &HeapTally, allocs: &Point, frees: &Point) -> String {
    let estimate = tally.live_estimate();
    let lost = |point: &Point| point.count(PointCounter::Lost);
    let mut text = format!(
        "{LIVE}: {} recorded allocations were not freed: {:.0} allocations, {:.0} bytes. Exact counts: {} bytes were \
         allocated, {} freed",
        tally.live(),
        estimate.allocations,
        estimate.bytes,
        allocs.weight(),
        frees.weight(),
    );
    if !has_frees(frees) {
        text += "; no free is recorded: either there was none, or heap.free was not recorded";
    }
    if tally.unknown() > 0 {
        text += &format!(
            "; {} recorded allocations are not known to be freed or not, and not shown: heap.free was off after them",
            tally.unknown()
        );
    }
    if is_doubtful(allocs, frees) {
        text += &format!(
            "; {} allocations and {} frees were lost (an allocation whose free was lost counts as not freed)",
            lost(allocs),
            lost(frees)
        );
    }
    text
}
