//! The address range of kernel code. In: the range that the kernel declared. Out: a test by one comparison. Runs in:
//! any, NMI included.

use core::sync::atomic::{AtomicU64, Ordering};

/// The main range of kernel code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Text {
    /// From the first address and the one after the last. If the end is below the start, the range is empty.
    pub(crate) const fn new((start, end): (u64, u64)) -> Self {
        Self { start, bytes: end.saturating_sub(start) }
    }

    #[inline(always)]
    pub(crate) const fn contains(self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }

    pub(crate) const fn end(self) -> u64 {
        self.start.wrapping_add(self.bytes)
    }
}

/// The same range in atomics: set once, read by all CPUs.
pub(crate) struct TextCell {
    start: AtomicU64,
    bytes: AtomicU64,
}

impl TextCell {
    pub(crate) const fn new() -> Self {
        Self { start: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, text: Text) {
        self.start.store(text.start, Ordering::Relaxed);
        self.bytes.store(text.bytes, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Text {
        Text { start: self.start(), bytes: self.bytes() }
    }

    #[inline(always)]
    pub(crate) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
