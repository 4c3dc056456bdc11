//! Copies records for a second reader, beside the one that has claimed the streams.
//!
//! In: a stream, the second reader's place in it, a buffer. Out: whole framed records without a gap between them; the
//! place after them. Runs in: ordinary code, in the process whose control file has said `copy 1`. Nothing is freed, and
//! no other reader and no handler waits. The producer may overwrite a record while it is copied: every piece of the
//! copy is checked afterwards. Records that were overwritten first are counted, and the next read begins after them.

use super::MAX_OVERTAKEN;
use crate::errors::{ReadError, StreamName};
use crate::format::record::MAX_WORDS;
use crate::patience::Patience;
use crate::ring::{Copy, NoCopy, Ring};
use crate::shared::Shared;
use crate::stream::copier::Copier;
use crate::stream::meta::ClaimId;
use crate::stream::{OWNER_WAIT_US, Stream};

/// The most bytes that are copied before a check whether the producer has overwritten them. The longest record fits. If
/// the check fails, no more than these bytes were copied in vain.
const PIECE_BYTES: usize = 4 * 8 * MAX_WORDS;
const _: () = assert!(PIECE_BYTES >= 8 * MAX_WORDS, "the longest record could never be copied");

/// Copies records into `buffer` for the reader that the control file `claim` has begun; returns the number of bytes.
pub(super) fn read(shared: &Shared, name: StreamName, claim: ClaimId, buffer: &mut [u8]) -> Result<usize, ReadError> {
    let Stream { ring, copier, .. } = shared.stream(name).ok_or(ReadError::NoStream)?;
    let _lock = Patience::us(OWNER_WAIT_US, shared.tsc_hz()).lock(&copier.lock).ok_or(ReadError::Busy)?;
    // Another file may have begun to read copies before the lock was taken. It cannot begin from now on.
    if shared.copy_claim() != claim {
        return Err(ReadError::Claimed);
    }
    for _ in 0..MAX_OVERTAKEN {
        let commit = |at: u64, copy: &Copy| {
            let has_copied = || copier.has_copied(at + copy.words, copy.records);
            if name == StreamName::Meta {
                return shared.meta.commit_copies(at, has_copied);
            }
            has_copied();
            true
        };
        match pieces(ring, copier, buffer, commit) {
            Err(NoCopy::TooSmall(words)) => return Err(ReadError::TooSmall(words as usize * 8)),
            Ok(bytes) => return Ok(bytes),
            Err(NoCopy::Overwritten) => {
                let oldest = shared.oldest(name).ok_or(ReadError::Busy)?;
                copier.was_overtaken(oldest);
            }
        }
    }
    Err(ReadError::Busy)
}

/// Copies pieces of at most [`PIECE_BYTES`] until the buffer is full or no record is left. Returns the number of bytes,
/// or an error if nothing was copied. `commit` moves the reader's place after a piece, unless the piece does not count.
fn pieces(
    ring: &Ring,
    copier: &Copier,
    buffer: &mut [u8],
    commit: impl Fn(u64, &Copy) -> bool,
) -> Result<usize, NoCopy> {
    let mut bytes = 0;
    loop {
        let piece = (bytes + PIECE_BYTES).min(buffer.len());
        let at = copier.position();
        match ring.copy_records(at, &mut buffer[bytes..piece]) {
            Ok(copy) => {
                if copy.records == 0 {
                    return Ok(bytes);
                }
                if !commit(at, &copy) {
                    return if bytes > 0 { Ok(bytes) } else { Err(NoCopy::Overwritten) };
                }
                bytes += copy.words as usize * 8;
            }
            Err(_) if bytes > 0 => return Ok(bytes),
            Err(reason) => return Err(reason),
        }
    }
}
