//! The memory in which one CPU counts: its places, found with few instructions.
//!
//! In: the kernel's memory, once. Out: the place of a point. Runs in: any but NMI.

use super::counts::PointCounts;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use core::{hint, ptr};

/// One CPU's places.
pub(crate) struct PointMemory {
    /// Where a place before the first one would be: offsets are those of the ends of places.
    before: AtomicPtr<PointCounts>,
    /// What is no offset of a place here any more; 0 until there is memory.
    limit: AtomicUsize,
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
        self.0.before.store(places.as_ptr().wrapping_sub(1).cast_mut(), Ordering::Relaxed);
        let limit = if places.is_empty() { 0 } else { size_of_val(places) + size_of::<PointCounts>() };
        // Release: whoever sees the limit sees the memory.
        self.0.limit.store(limit, Ordering::Release);
    }
}

impl PointMemory {
    pub(crate) const fn new() -> Self {
        Self {
            before: AtomicPtr::new(ptr::dangling_mut()),
            limit: AtomicUsize::new(0),
            is_begun: AtomicBool::new(false),
        }
    }

    /// Begins to install the memory. `None` if there is memory, or somebody else installs it.
    pub(crate) fn begin(&self) -> Option<Installing<'_>> {
        (!self.is_begun.swap(true, Ordering::AcqRel)).then(|| Installing(self))
    }

    /// Whether there is memory.
    pub(crate) fn is_set(&self) -> bool {
        self.limit.load(Ordering::Acquire) > 0
    }

    /// The place at this offset; `None` without memory for it.
    #[inline(always)]
    pub(crate) fn get(&self, offset: Offset) -> Option<&'static PointCounts> {
        let offset = offset.0.get();
        if offset >= self.limit.load(Ordering::Acquire) {
            return None;
        }
        let place = self.before.load(Ordering::Relaxed).wrapping_byte_add(offset);
        // SAFETY: `set` stores the address of a `'static` slice, less one place, before its limit. `offset` is a
        // multiple of the size of a place, not 0, and below the limit (`NOWHERE` is not), so the place is whole, and
        // not at address 0. It is only shared. Saying that the address is not null saves the caller a check.
        unsafe {
            hint::assert_unchecked(!place.is_null());
            Some(&*place)
        }
    }
}

/// Where the counts of a point are in the memory of each CPU: at which byte its place ends, or [`Offset::NOWHERE`]. So
/// a hit needs no multiplication, and one word has this and whether a hit is to be counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset(NonZeroUsize);

impl Offset {
    /// No place.
    pub(crate) const NOWHERE: Self = Self(NonZeroUsize::MAX);

    /// The offset of the place with this number, from 0.
    pub(crate) fn of(number: usize) -> Self {
        let end = number.checked_add(1).and_then(|count| count.checked_mul(size_of::<PointCounts>()));
        let end = end.filter(|end| isize::try_from(*end).is_ok());
        end.and_then(NonZeroUsize::new).map_or(Self::NOWHERE, Self)
    }

    /// Whether it is no place. Not a comparison with `NOWHERE`, because this uses the flags of a test for 0.
    #[inline(always)]
    pub(crate) fn is_nowhere(self) -> bool {
        (self.0.get() as isize) < 0
    }
}

/// An offset, or none.
pub(crate) struct OffsetCell(AtomicUsize);

impl OffsetCell {
    pub(super) const fn nowhere() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    pub(super) fn set(&self, offset: Option<Offset>) {
        self.0.store(offset.map_or(0, |offset| offset.0.get()), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn get(&self) -> Option<Offset> {
        NonZeroUsize::new(self.0.load(Ordering::Relaxed)).map(Offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_place_of_its_number_and_those_beyond_the_memory_have_none() {
        let places: &'static [PointCounts] = Vec::leak((0..3).map(|_| PointCounts::new()).collect());
        let memory = PointMemory::new();
        assert!(!memory.is_set() && memory.get(Offset::of(0)).is_none());
        drop(memory.begin());
        let installing = memory.begin().expect("the first one has given up");
        assert!(memory.begin().is_none());
        installing.set(places);
        assert!(memory.is_set() && memory.get(Offset::NOWHERE).is_none());
        for (number, place) in places.iter().enumerate() {
            assert!(memory.get(Offset::of(number)).is_some_and(|found| ptr::eq(found, place)));
        }
        for number in [3, usize::MAX / 640 / 2, usize::MAX / 640, usize::MAX / 2, usize::MAX] {
            assert!(memory.get(Offset::of(number)).is_none());
        }
        let ends = [0, usize::MAX / 640 / 2 - 1, usize::MAX / 640 - 1, usize::MAX]
            .map(|number| Offset::of(number).is_nowhere());
        assert_eq!((ends, Offset::NOWHERE.is_nowhere()), ([false, false, true, true], true));
        assert!(memory.begin().is_none(), "it is set once");
    }
}
