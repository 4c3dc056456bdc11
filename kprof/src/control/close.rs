//! Closes a control file: its claim, its reading of copies and its lease end with it.
//!
//! In: the file that is dropped. The kernel drops it also when the file's process is killed. Out: streams that any file
//! may claim, and choices as they were before the lease. Runs in: ordinary code. If another change is in progress and
//! takes too long, the lease is undone later: by the sampler, which tries once a second, or by the next change.

use super::OpenControl;
use crate::errors::StateError;
use crate::state::Shared;
use crate::state::points::POINTS;
use crate::state::transition::Writer;
use core::sync::atomic::Ordering;

impl Drop for OpenControl {
    fn drop(&mut self) {
        let shared = self.shared;
        shared.drop_claim(self.id);
        let expires = shared.with_lease(|lease| {
            let mine = lease.as_mut().filter(|lease| lease.holder == self.id);
            mine.map(|lease| lease.has_expired = true).is_some()
        });
        if expires {
            // If another change takes too long, the sampler undoes the lease later.
            let _ = shared.writer().and_then(|writer| undo_expired_lease(shared, &writer));
        }
    }
}

/// Undoes the changes of a lease whose holder has closed its file.
pub(crate) fn undo_expired_lease(shared: &Shared, writer: &Writer<'_>) -> Result<(), StateError> {
    let Some(lease) = shared.with_lease(|lease| lease.filter(|lease| lease.has_expired)) else { return Ok(()) };
    let now = shared.live.choices();
    let (choices, target) = (lease.restored(&now), lease.restored_state(shared.state()));
    let change = writer.prepare(&choices, target, false)?;
    let before = change.before;
    if lease.has_set_cpus() {
        for sampler in shared.slots().iter().map(|slot| &slot.sampler) {
            sampler.enabled.store(sampler.enabled_before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    #[cfg(feature = "probes")]
    shared.end_lease_of_probes();
    if lease.has_set_points() {
        // What was counted under the lease is written before the counts of others follow.
        shared.write_points();
        POINTS.restore();
    }
    // From here on the change is in force, even if some ticks stay pending.
    shared.with_lease(|lease| *lease = None);
    let committed = change.commit(&choices, target, false);
    // The streams are free again, so that a full meta ring can take these records.
    if lease.has_set_cpus() {
        shared.note_cpus();
    }
    if lease.has_set_points() {
        shared.note_points(None);
    }
    shared.note_choices(now.differences(&choices), &choices);
    if before != target {
        shared.write_counts();
    }
    committed
}
