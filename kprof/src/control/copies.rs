//! `copy 1`: the reading of copies begins.
//!
//! In: the streams as they are. Out: in each stream, where the reader of copies begins. Runs in: ordinary code, under
//! the lock of changes. The handlers and the reader that has claimed the streams are not delayed. Each CPU's copies
//! begin with its next sample and its next event, and those of the meta stream with the oldest record there.

use crate::errors::{CommandError, StateError, StreamName};
use crate::patience::Patience;
use crate::shared::Shared;
use crate::stream::OWNER_WAIT_US;

/// Sets where copies begin, in every stream that has memory.
pub(super) fn begin(shared: &Shared) -> Result<(), CommandError> {
    let mut patience = Patience::us(OWNER_WAIT_US, shared.tsc_hz());
    for (name, stream) in shared.streams().filter(|(_, stream)| stream.ring.get().is_some()) {
        let busy = CommandError::Change(StateError::StreamBusy(name));
        let _lock = patience.lock(&stream.copier.lock).ok_or(busy)?;
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
        stream.copier.begin(begin);
    }
    Ok(())
}
