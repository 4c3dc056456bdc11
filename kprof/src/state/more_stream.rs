//! A stream beside those of the samples: the ring of an extension, and its readers.
//!
//! In: memory, once; the extension's records. Out: the ring as a stream that is read, acknowledged and copied like any
//! other. Runs in: any but NMI; the extension keeps the ring to one producer.

use super::copier::{Border, Copier};
use super::stream::{Reader, Stream};
use crate::ring::Ring;
use core::sync::atomic::AtomicBool;

/// The ring and its readers.
pub struct MoreStream {
    /// The ring; without memory at first.
    pub ring: Ring,
    pub(crate) reader: Reader,
    pub(crate) copier: Copier,
    /// Half of the ring is unread and the reader has been told. Written by the sampler.
    pub(crate) woken: AtomicBool,
}

impl Default for MoreStream {
    fn default() -> Self {
        Self::new()
    }
}

impl MoreStream {
    /// A stream without memory.
    pub const fn new() -> Self {
        Self { ring: Ring::none(), reader: Reader::new(), copier: Copier::new(), woken: AtomicBool::new(false) }
    }

    /// The ring with its reader, once there is memory.
    pub(crate) fn stream(&self) -> Option<Stream<'_>> {
        Some(Stream { ring: self.ring.get()?, reader: &self.reader })
    }

    /// Where the oldest record begins that was not freed. `None` if it moves at every attempt.
    pub(crate) fn oldest(&self) -> Option<Border> {
        let ((_, index, position), is_exact) = self.reader.between_frees(self.ring.get()?);
        is_exact.then_some(Border { position, index })
    }

    /// Where the next record will begin. `None` if records are freed meanwhile.
    pub(crate) fn newest(&self) -> Option<Border> {
        let Border { position: from, index } = self.oldest()?;
        let position = self.ring.head();
        Some(Border { position, index: index + self.ring.count(from, position)? })
    }
}
