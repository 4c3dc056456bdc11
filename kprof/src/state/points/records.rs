//! One CPU's ring for records of hits, its readers, and who writes into it. With the cargo feature `records` off it is
//! empty, and takes no memory.
//!
//! In: the kernel's memory, once; hits. Out: the ring as a stream. Runs in: hits in any but NMI, on this CPU, with
//! interrupts off: so the ring has one producer. A hit inside a hit (of an exception's handler) does not get in.

#[cfg(not(feature = "records"))]
pub(crate) use off::Records;
#[cfg(feature = "records")]
pub(crate) use on::{Records, Writing};

#[cfg(feature = "records")]
mod on {
    use crate::errors::BadMemory;
    use crate::intervals::Intervals;
    use crate::ring::Ring;
    use crate::state::copier::{Border, Copier};
    use crate::state::owner::OwnerWord;
    use crate::state::stream::{Reader, Stream};
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// The ring and its readers.
    pub(crate) struct Records {
        ring: Ring,
        reader: Reader,
        copier: Copier,
        writer: Writer,
    }

    /// Written by this CPU; `woken` by the sampler.
    #[repr(align(128))]
    struct Writer {
        /// A hit is being handled on this CPU.
        is_at_work: AtomicBool,
        is_registered: AtomicBool,
        /// The state of the random numbers for hits that are drawn by weight.
        random: AtomicU64,
        /// Half of the ring is unread and the reader has been told.
        woken: AtomicBool,
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
            self.0.ring.get()
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
                ring: Ring::none(),
                reader: Reader::new(),
                copier: Copier::new(),
                writer: Writer {
                    is_at_work: AtomicBool::new(false),
                    is_registered: AtomicBool::new(false),
                    random: AtomicU64::new(0),
                    woken: AtomicBool::new(false),
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
            let installed = self.ring.install(memory());
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

        /// The ring with its reader, once there is memory.
        pub(crate) fn stream(&self) -> Option<Stream<'_>> {
            Some(Stream { ring: self.ring.get()?, reader: &self.reader })
        }

        pub(crate) fn owner(&self) -> Option<&OwnerWord> {
            Some(self.reader.owner())
        }

        pub(crate) fn copier(&self) -> Option<&Copier> {
            Some(&self.copier)
        }

        pub(crate) fn woken(&self) -> Option<&AtomicBool> {
            Some(&self.writer.woken)
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
}

#[cfg(not(feature = "records"))]
mod off {
    use crate::state::copier::{Border, Copier};
    use crate::state::owner::OwnerWord;
    use crate::state::stream::Stream;
    use core::sync::atomic::AtomicBool;

    /// Nothing.
    pub(crate) struct Records;

    impl Records {
        pub(crate) const fn new() -> Self {
            Self
        }

        pub(crate) fn stream(&self) -> Option<Stream<'_>> {
            None
        }

        pub(crate) fn owner(&self) -> Option<&OwnerWord> {
            None
        }

        pub(crate) fn copier(&self) -> Option<&Copier> {
            None
        }

        pub(crate) fn woken(&self) -> Option<&AtomicBool> {
            None
        }

        pub(crate) fn oldest(&self) -> Option<Border> {
            None
        }

        pub(crate) fn newest(&self) -> Option<Border> {
            None
        }
    }
}
