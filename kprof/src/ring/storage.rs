//! The only raw memory of the ring: the words that the kernel handed in.
//!
//! In: memory for ever, a power of two of words. Out: atomic words by position. Context: any. Words are atomics because a
//! reader of a running recorder may look at a word while it is overwritten; it throws such a copy away, but the look
//! itself must be defined. On x86_64 a relaxed atomic store is a plain `mov`.

use crate::sync::AtomicU64;
#[cfg(not(kprof_loom))]
use core::mem::MaybeUninit;

/// The least capacity: a record of the greatest length fits.
pub(crate) const MIN_WORDS: usize = crate::format::record::MAX_WORDS;

/// Why memory cannot be a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadMemory {
    /// The number of words is not a power of two.
    NotPowerOfTwo(usize),
    /// Fewer than 1024 words.
    TooSmall(usize),
}

/// The words of a ring.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    words: &'static [AtomicU64],
}

impl Words {
    /// Takes the memory over and writes every word once: afterwards all pages are there, and the handler cannot fault.
    #[cfg(not(kprof_loom))]
    pub(crate) fn new(memory: &'static mut [MaybeUninit<u64>]) -> Result<Self, BadMemory> {
        if !memory.len().is_power_of_two() {
            return Err(BadMemory::NotPowerOfTwo(memory.len()));
        }
        if memory.len() < MIN_WORDS {
            return Err(BadMemory::TooSmall(memory.len()));
        }
        memory.fill(MaybeUninit::new(0));
        // SAFETY: the exclusive borrow lasts for ever and ends here, so nobody else has the memory; every word was just
        // initialised; AtomicU64 has the size and, on x86_64, the alignment of u64.
        let words = unsafe { core::slice::from_raw_parts(memory.as_mut_ptr().cast::<AtomicU64>(), memory.len()) };
        Ok(Self { words })
    }

    /// The number of words.
    #[inline(always)]
    pub(crate) fn capacity(self) -> u64 {
        self.words.len() as u64
    }

    /// The word of this position.
    #[inline(always)]
    pub(crate) fn at(self, position: u64) -> &'static AtomicU64 {
        let index = position & (self.capacity() - 1);
        // SAFETY: the length is a power of two (checked in `new`), so the mask keeps the index below it.
        unsafe { self.words.get_unchecked(index as usize) }
    }

    /// The words from `position` to the physical end.
    #[inline(always)]
    pub(crate) fn from(self, position: u64) -> &'static [AtomicU64] {
        let index = position & (self.capacity() - 1);
        // SAFETY: as in `at`.
        unsafe { self.words.get_unchecked(index as usize..) }
    }

    /// All words, in their physical order.
    pub(crate) fn all(self) -> &'static [AtomicU64] {
        self.words
    }
}

#[cfg(kprof_loom)]
impl Words {
    /// Words for a model; small, and leaked: a model makes few.
    pub(crate) fn for_model(count: usize) -> Self {
        assert!(count.is_power_of_two());
        let words: std::vec::Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { words: std::boxed::Box::leak(words.into_boxed_slice()) }
    }
}

#[cfg(not(kprof_loom))]
static_assertions::assert_eq_size!(AtomicU64, u64);
#[cfg(not(kprof_loom))]
static_assertions::assert_eq_align!(AtomicU64, u64);
