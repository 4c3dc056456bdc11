//! Where kernel code lies. In: the kernel's choice. Out: one comparison. Context: any, NMI included.

/// The main range of kernel code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Text {
    /// From the first address and the one behind the last; a crooked range is empty.
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
