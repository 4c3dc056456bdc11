//! Puts counts back that were written as the account of a point and that nobody has read.
//!
//! In: the record that is replaced. Out: its counts, in the memory that they were taken from: the next account has
//! them. Runs in: ordinary code, with the lock of the meta stream held and interrupts off. No lock, no allocation.

use super::asked::Outcomes;
use super::counts::{PointCounts, Taken};
use super::list::POINTS;
use super::memory::Offset;
use kprof::format::line::PointAccount;
use kprof::format::point::{BUCKETS, PointCounter, PointPart, bucket_of_name};
use kprof::format::record::NO_CPU;

/// Puts the counts of a record with these values (the number of the point, the CPU, the weight) and this text back.
/// `place` finds where a CPU counts a point.
pub(crate) fn put_account_back(
    place: impl Fn(usize, Offset) -> Option<&'static PointCounts>,
    [number, cpu, weight]: [u64; 3],
    text: &str,
) {
    // A probe's point that has another name now has another number: these counts are lost with their record.
    let Some(point) = POINTS.numbered(number) else { return };
    let taken = counts(&PointAccount::of_record(0, cpu, weight, text));
    if cpu == NO_CPU {
        return point.put_back_lost((taken.outcomes.lost, weight));
    }
    if let Some(place) = usize::try_from(cpu).ok().and_then(|cpu| place(cpu, point.offset())) {
        place.put_back(&taken);
    }
}

/// The counts in an account, as they were taken.
fn counts(account: &PointAccount<'_>) -> Taken {
    let (mut buckets, mut outcomes, mut hits) = ([0_u64; BUCKETS], Outcomes::default(), 0_u64);
    for (name, count) in account.counters.in_text() {
        if let Some(counter) = PointCounter::of(name) {
            hits = hits.wrapping_add(count);
            match counter {
                PointCounter::Recorded => outcomes.recorded = count,
                PointCounter::Lost => outcomes.lost = count,
                PointCounter::Filtered => {}
            }
        }
        match PointPart::of(name) {
            Some(PointPart::Unsampled) => outcomes.unsampled = count,
            Some(PointPart::AskedWeight) => outcomes.asked_weight = count,
            Some(PointPart::LostWeight) => outcomes.lost_weight = count,
            None => {}
        }
        if let Some(place) = bucket_of_name(name).and_then(|bucket| buckets.get_mut(bucket)) {
            *place = count;
        }
    }
    // A point without a histogram counts all hits in the first bucket.
    if buckets.iter().all(|count| *count == 0) {
        buckets[0] = hits;
    }
    Taken { weight: account.weight, outcomes, buckets }
}
