//! The raw memory of the ring: the words that the kernel passed in.
//!
//! In: memory that lives for ever, a power of two of words. Out: atomic words by position. Runs in: any. Words are
//! atomics because a reader of a running recorder may read a word while it is overwritten. It discards such a copy, but
//! the read itself must be defined behavior. On x86_64 a relaxed atomic store is a plain `mov`.

#[cfg(not(kprof_loom))]
use crate::errors::BadMemory;
use crate::sync::AtomicU64;
#[cfg(not(kprof_loom))]
use core::mem::MaybeUninit;
// The address of the words is set once and is not part of any loom model.
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The words of a ring: their address and their number. Both are atomics, because they are set when the CPU registers.
pub(crate) struct Words {
    start: AtomicPtr<AtomicU64>,
    /// The number of words, a power of two, minus 1.
    mask: AtomicUsize,
}

impl Words {
    /// No memory yet: one static word that all rings share, so that every position has a word. No record fits into it.
    #[cfg(not(kprof_loom))]
    pub(crate) const fn none() -> Self {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        Self { start: AtomicPtr::new((&raw const NOWHERE).cast_mut()), mask: AtomicUsize::new(0) }
    }

    /// Takes the memory and writes every word once, so that all its pages are mapped and the handler cannot fault. Can
    /// be done only once, and before anything else uses the ring: the ring's CPU registers itself.
    #[cfg(not(kprof_loom))]
    pub(crate) fn install(&self, memory: &'static mut [MaybeUninit<u64>]) -> Result<(), BadMemory> {
        if self.mask.load(Ordering::Relaxed) != 0 {
            return Err(BadMemory::Twice);
        }
        if !memory.len().is_power_of_two() {
            return Err(BadMemory::NotPowerOfTwo(memory.len()));
        }
        if memory.len() < crate::format::record::MAX_WORDS {
            return Err(BadMemory::TooSmall(memory.len()));
        }
        // SAFETY: the borrow is exclusive and has as many words. One operation also for Miri, unlike `fill`.
        unsafe { memory.as_mut_ptr().write_bytes(0, memory.len()) };
        // An initialised u64 is an AtomicU64 (see the assertions below), and the exclusive borrow never ends.
        self.start.store(memory.as_mut_ptr().cast::<AtomicU64>(), Ordering::Relaxed);
        // Release: whoever sees the number sees the address.
        self.mask.store(memory.len().wrapping_sub(1), Ordering::Release);
        Ok(())
    }

    /// The number of words; 1 while there is no memory.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u64 {
        (self.mask.load(Ordering::Acquire) as u64).wrapping_add(1)
    }

    /// The word of this position.
    #[inline(always)]
    pub(crate) fn at(&self, position: u64) -> &'static AtomicU64 {
        let (mask, start) = (self.mask.load(Ordering::Acquire), self.start.load(Ordering::Relaxed));
        // SAFETY: `start` points to `mask + 1` words that live for ever: those of `install`, which stores the address
        // before the number, or the one static word. Their number is a power of two, so the mask keeps the index below
        // it.
        unsafe { &*start.add(position as usize & mask) }
    }

    /// The words from `position` to the physical end.
    #[inline(always)]
    pub(crate) fn from(&self, position: u64) -> &'static [AtomicU64] {
        let mask = self.mask.load(Ordering::Acquire);
        let index = position as usize & mask;
        // SAFETY: as in `at`; from the index on there are `mask + 1 - index` words.
        unsafe {
            core::slice::from_raw_parts(
                self.start.load(Ordering::Relaxed).add(index),
                mask.wrapping_add(1).wrapping_sub(index),
            )
        }
    }

    /// So many words from `position` on as bytes, little endian: those before the physical end, and those from the
    /// physical start on.
    ///
    /// # Safety
    /// Nobody writes these words as long as the result is used.
    #[cfg(not(kprof_loom))]
    pub(crate) unsafe fn bytes(&self, position: u64, words: usize) -> [&[u8]; 2] {
        const { assert!(cfg!(target_endian = "little")) };
        let straight = self.from(position);
        let before_the_end = words.min(straight.len());
        let after_it = words.wrapping_sub(before_the_end).min(self.all().len());
        [(straight, before_the_end), (self.all(), after_it)].map(|(from, count)| {
            // SAFETY: `from` has at least `count` words, which live for ever. An atomic word is a word in memory, and
            // the caller promises that nobody writes it meanwhile.
            unsafe { core::slice::from_raw_parts(from.as_ptr().cast::<u8>(), count.wrapping_mul(size_of::<u64>())) }
        })
    }

    /// Base pointer of the lap that `position` is in: word `p` of that lap is at the result plus `p`. It may point
    /// outside the memory and must only be added to.
    pub(crate) fn before(&self, position: u64) -> *mut AtomicU64 {
        let lap = position & !self.capacity().wrapping_sub(1);
        self.start.load(Ordering::Relaxed).wrapping_sub(lap as usize)
    }

    /// All words, in their physical order.
    pub(crate) fn all(&self) -> &'static [AtomicU64] {
        self.from(0)
    }
}

#[cfg(kprof_loom)]
impl Words {
    /// Words for a loom model. They are leaked; they are few, and a model makes few of them.
    pub(crate) fn for_model(count: usize) -> Self {
        assert!(count.is_power_of_two());
        let words: std::vec::Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let words = std::boxed::Box::leak(words.into_boxed_slice());
        Self { start: AtomicPtr::new(words.as_mut_ptr()), mask: AtomicUsize::new(count - 1) }
    }
}

#[cfg(not(kprof_loom))]
static_assertions::assert_eq_size!(AtomicU64, u64);
#[cfg(not(kprof_loom))]
static_assertions::assert_eq_align!(AtomicU64, u64);
