//! One CPU's ring for records of hits, and who writes into it.
//!
//! In: the kernel's memory, once; hits. Out: the ring as a stream. Runs in: hits in any but NMI, on this CPU, with
//! interrupts off: so the ring has one producer. A hit inside a hit (of an exception's handler) does not get in.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kprof::BadMemory;
use kprof::internals::{Intervals, Ring, Stream};

/// The ring with its readers, and its writer.
pub(crate) struct Records {
    stream: Stream,
    writer: Writer,
}

/// Written by this CPU.
#[repr(align(128))]
struct Writer {
    /// A hit is being handled on this CPU.
    is_at_work: AtomicBool,
    is_registered: AtomicBool,
    /// The state of the random numbers for hits that are drawn by weight.
    random: AtomicU64,
}

/// The right to write a record, until it is dropped.
pub(crate) struct Writing<'a>(&'a Records);

impl Drop for Writing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.writer.is_at_work.store(false, Ordering::Release);
    }
}

impl Writing<'_> {
    /// The ring, if it has memory.
    #[inline(always)]
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.0.stream.ring.get()
    }

    /// The next 64 random bits.
    pub(crate) fn random(&self) -> u64 {
        let mut numbers = Intervals::new(self.0.writer.random.load(Ordering::Relaxed));
        let word = numbers.word();
        self.0.writer.random.store(numbers.state(), Ordering::Relaxed);
        word
    }
}

impl Records {
    pub(crate) const fn new() -> Self {
        Self {
            stream: Stream::new(),
            writer: Writer {
                is_at_work: AtomicBool::new(false),
                is_registered: AtomicBool::new(false),
                random: AtomicU64::new(0),
            },
        }
    }

    /// Gives the ring its memory; `seed` begins the random numbers. `None` if it has memory already.
    pub(crate) fn install(
        &self,
        seed: u64,
        memory: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
    ) -> Option<Result<(), BadMemory>> {
        if self.writer.is_registered.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.writer.random.store(seed, Ordering::Relaxed);
        let installed = self.stream.ring.install(memory());
        if installed.is_err() {
            self.writer.is_registered.store(false, Ordering::Release);
        }
        Some(installed)
    }

    /// Begins a hit. `None`: this hit is inside another one.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Option<Writing<'_>> {
        let is_inside = self.writer.is_at_work.swap(true, Ordering::Acquire);
        // Made only if it is needed, because dropping it ends the hit.
        if is_inside { None } else { Some(Writing(self)) }
    }

    /// The ring as a stream.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }
}
