//! Closes a control file: its claim, its reading of copies and its lease end with it.
//!
//! In: the file that is dropped. The kernel drops it also when the file's process is killed. Out: streams that any file
//! may claim, and the settings without the lease's layer. Runs in: ordinary code. If another change is in progress and
//! takes too long, the lease is undone later: by the sampler, which tries once a second, or by the next change.

use super::OpenControl;
use crate::errors::StateError;
use crate::format::settings::Keys;
use crate::shared::Shared;
use crate::transition::ChangeLock;
use core::sync::atomic::Ordering;

impl Drop for OpenControl {
    fn drop(&mut self) {
        let shared = self.shared;
        shared.drop_claim(self.id);
        if shared.layers().holder() == Some(self.id) {
            shared.expired_lease.store(self.id, Ordering::Release);
            // If another change takes too long, the sampler undoes the lease later.
            let _ = shared.change_lock().and_then(|lock| lock.undo_expired_lease());
        }
    }
}

/// Undoes the changes of a lease whose holder has closed its file.
pub(super) fn undo_expired_lease(shared: &Shared, lock: &ChangeLock<'_>) -> Result<(), StateError> {
    let (now, mut layers) = (shared.live.choices(), shared.layers());
    let expired = shared.expired_lease.load(Ordering::Acquire);
    if expired == 0 || layers.holder() != Some(expired) {
        return Ok(());
    }
    let keys = layers.end_lease();
    let change = lock.prepare(layers, false)?;
    let (choices, changes_state) = (change.wanted, change.before != change.target);
    if keys.contains(Keys::CPUS) {
        for sampler in shared.slots().iter().map(|slot| &slot.sampler) {
            sampler.enabled.store(sampler.enabled_base.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    // From here on the change is in force, even if some ticks stay pending.
    shared.expired_lease.store(0, Ordering::Relaxed);
    let committed = change.commit(false);
    // The streams are free again, so that a full meta ring can take these records.
    if keys.contains(Keys::CPUS) {
        shared.note_cpus();
    }
    shared.extension().end_lease();
    shared.note_choices(now.differences(&choices), &choices);
    if changes_state {
        shared.extension().write_counts();
    }
    committed
}
