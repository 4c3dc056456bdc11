//! The memory in which one CPU counts: its places, found with few instructions.
//!
//! In: the kernel's memory, once. Out: the place of a point. Runs in: any but NMI.

use super::counts::PointCounts;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use core::{hint, ptr};

/// One CPU's places.
pub(crate) struct PointMemory {
    first: AtomicPtr<PointCounts>,
    /// The length in bytes; 0 until there is memory.
    bytes: AtomicUsize,
    /// Somebody installs the memory, or it is installed.
    is_begun: AtomicBool,
}

/// The right to install a CPU's memory, once. Dropped without [`Installing::set`], it can be begun again.
pub(crate) struct Installing<'a>(&'a PointMemory);

impl Drop for Installing<'_> {
    fn drop(&mut self) {
        if !self.0.is_set() {
            self.0.is_begun.store(false, Ordering::Release);
        }
    }
}

impl Installing<'_> {
    /// Sets the memory.
    pub(crate) fn set(self, places: &'static [PointCounts]) {
        self.0.first.store(places.as_ptr().cast_mut(), Ordering::Relaxed);
        // Release: whoever sees the length sees the memory.
        self.0.bytes.store(size_of_val(places), Ordering::Release);
    }
}

impl PointMemory {
    pub(crate) const fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::dangling_mut()),
            bytes: AtomicUsize::new(0),
            is_begun: AtomicBool::new(false),
        }
    }

    /// Begins to install the memory. `None` if there is memory, or somebody else installs it.
    pub(crate) fn begin(&self) -> Option<Installing<'_>> {
        (!self.is_begun.swap(true, Ordering::AcqRel)).then(|| Installing(self))
    }

    /// Whether there is memory.
    pub(crate) fn is_set(&self) -> bool {
        self.bytes.load(Ordering::Acquire) > 0
    }

    /// The place at this offset from the first one, in bytes; `None` without memory for it.
    #[inline(always)]
    pub(crate) fn get(&self, offset: Offset) -> Option<&'static PointCounts> {
        if offset.0 >= self.bytes.load(Ordering::Acquire) {
            return None;
        }
        let place = self.first.load(Ordering::Relaxed).wrapping_byte_add(offset.0);
        // SAFETY: `set` stores the address of a `'static` slice before its length in bytes. `offset` is a multiple of
        // the size of a place and below this length (`NOWHERE` is not), so the place is whole, and not at address 0. It
        // is only shared. Saying that the address is not null saves the caller a check.
        unsafe {
            hint::assert_unchecked(!place.is_null());
            Some(&*place)
        }
    }
}

/// Where the counts of a point are in the memory of each CPU, in bytes: a multiple of the size of a place, or
/// [`NOWHERE`]. So a hit needs no multiplication.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset(usize);

/// The offset of a point that was not hit.
const NOWHERE: usize = usize::MAX;

impl Offset {
    /// No place.
    pub(crate) const NOWHERE: Self = Self(NOWHERE);
}

/// The offset of a point, which is set at its first hit.
pub(crate) struct OffsetCell(AtomicUsize);

impl OffsetCell {
    pub(super) const fn new() -> Self {
        Self(AtomicUsize::new(NOWHERE))
    }

    /// Sets the number of the point, from 0.
    pub(crate) fn set_number(&self, number: usize) {
        self.0.store(number.checked_mul(size_of::<PointCounts>()).unwrap_or(NOWHERE), Ordering::Relaxed);
    }

    /// Sets an offset that another cell has.
    pub(crate) fn store(&self, offset: Offset) {
        self.0.store(offset.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Offset {
        Offset(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_place_of_its_number_and_those_beyond_the_memory_have_none() {
        let places: &'static [PointCounts] = Vec::leak((0..3).map(|_| PointCounts::new()).collect());
        let (memory, cell) = (PointMemory::new(), OffsetCell::new());
        assert!(!memory.is_set() && memory.get(cell.get()).is_none());
        drop(memory.begin());
        let installing = memory.begin().expect("the first one has given up");
        assert!(memory.begin().is_none());
        installing.set(places);
        assert!(memory.is_set() && memory.get(cell.get()).is_none());
        for (number, place) in places.iter().enumerate() {
            cell.set_number(number);
            assert!(memory.get(cell.get()).is_some_and(|found| ptr::eq(found, place)));
        }
        [3, usize::MAX / 2, usize::MAX].into_iter().for_each(|number| {
            cell.set_number(number);
            assert!(memory.get(cell.get()).is_none());
        });
        assert!(memory.begin().is_none(), "it is set once");
    }
}
