//! `copy 1` and `copy 0`: the reading of copies begins and ends.
//!
//! In: the control file that the command came through. Out: in each stream, the position of the reader of copies. Runs
//! in: ordinary code, under the writer's lock. No stream's owner word is taken, so the handlers and the reader that has
//! claimed the streams are not delayed. Each CPU's copies begin with its next sample and its next event, and those of
//! the meta stream with the oldest record there.

use crate::errors::{CommandError, StateError, StreamName};
use crate::patience::Patience;
use crate::state::Shared;
use crate::state::owner::{Activity, ClaimId};
use crate::state::stream::{OWNER_WAIT_US, take_within};
use core::sync::atomic::Ordering;

/// The positions of the reader of copies in all streams. The owner words that protect these positions are taken until
/// this value is dropped.
pub(super) struct Copying<'a>(&'a Shared);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        let words = self.0.copiers().map(|(_, copier)| copier.owner());
        words.filter(|word| word.is_taken_for(Activity::Transition)).for_each(|word| word.leave());
    }
}

/// Takes the owner words of the copying reader's positions in all streams. If `begins`, sets these positions.
pub(super) fn reserve(shared: &Shared, begins: bool) -> Result<Copying<'_>, CommandError> {
    let copying = Copying(shared);
    let mut patience = Patience::us(OWNER_WAIT_US, shared.tsc_hz());
    for (name, copier) in shared.copiers() {
        let busy = CommandError::Change(StateError::StreamBusy(name));
        take_within(&mut patience, || copier.owner().take_any(Activity::Transition)).map_err(|_| busy)?;
        if !begins || shared.stream(name).is_none() {
            continue;
        }
        let begin = || match name {
            StreamName::Meta => shared.oldest(name),
            StreamName::Cpu(_) | StreamName::Event(_) => shared.newest(name),
        };
        let begin = loop {
            match begin() {
                Some(begin) => break begin,
                None if patience.go_on() => {}
                None => return Err(busy),
            }
        };
        copier.begin(begin);
    }
    Ok(copying)
}

impl Copying<'_> {
    /// Sets the file whose process reads copies; 0: none does.
    pub(super) fn set_claim(&self, claim: ClaimId, process: u64) {
        self.0.copy_process.store(process, Ordering::Release);
        self.0.copiers().for_each(|(_, copier)| copier.owner().set_claim(claim));
    }
}
