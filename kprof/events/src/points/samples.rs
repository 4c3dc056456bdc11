//! The allocations that have a record and were not freed yet: found by their address when they are freed.
//!
//! In: the address of an allocation that is about to be recorded; each address that is freed. Out: the number of the
//! allocation and how it was chosen, once. Runs in: any but NMI, on all CPUs at the same time, without a lock.
//!
//! A free must find out with few instructions that its allocation has no record. A filter answers that: a byte for each
//! hash of an address counts the recorded allocations with this hash, and has a bit that says that frees are not
//! counted. So the usual free needs one load and one branch for both. Only if the count is not 0, the table is
//! searched: a few places from where the hash says. Each address is freed by one caller only, after it was allocated
//! and before it is allocated again, so nobody changes the place of an address while its allocation is being freed. (A
//! kernel that frees an address twice at the same time has one free recorded.) If all these places are taken, or the
//! byte of the filter is at its end, the allocation is not added: its record is lost, and counted as lost.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The hashes of addresses, as bits. Miri takes minutes for the tests of a filter of thousands of atomic bytes.
const HASH_BITS: u32 = if cfg!(miri) { 6 } else { 13 };
/// An address may be in this many places of the table.
const SEARCHED: usize = 8;
/// The least number of places.
const MIN_PLACES: usize = 64;
/// Not an address: the place is being filled or emptied.
const BUSY: u64 = 1;
/// The bit in each byte of the filter that says that frees are not counted.
const OFF: u8 = 0x80;

/// Memory for one allocation that has a record and was not freed yet: 24 bytes.
#[derive(Debug, Default)]
pub struct AllocSample {
    /// 0 if the place is free, or [`BUSY`].
    address: AtomicU64,
    number: AtomicU64,
    state: AtomicU64,
}

impl AllocSample {
    /// A free place.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const fn new() -> Self {
        Self { address: AtomicU64::new(0), number: AtomicU64::new(0), state: AtomicU64::new(0) }
    }
}

/// What is known of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its number.
    pub(crate) number: u64,
    /// The state of the point when it was chosen, as a word.
    pub(crate) state: u64,
}

/// An allocation that may be freed at this moment, and its place.
pub(crate) struct Held {
    place: &'static AllocSample,
    address: u64,
    sample: Sample,
}

/// What the filter says of a free: its byte. An enum of the three cases costs five instructions more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed(u8);

impl Freed {
    /// It is counted, and its allocation has no record.
    #[inline(always)]
    pub(crate) fn is_only_counted(self) -> bool {
        self.0 == 0
    }

    /// It is counted, and its allocation may have a record.
    #[inline(always)]
    pub(crate) fn may_have_record(self) -> bool {
        self.0 != 0 && self.0 & OFF == 0
    }
}

/// The table and its filter.
pub(crate) struct Samples {
    filter: [AtomicU8; 1 << HASH_BITS],
    /// The kernel's memory, set once.
    places: spin::Once<&'static [AllocSample]>,
    /// Allocations with a smaller number are forgotten: frees were not watched for some time since.
    first: AtomicU64,
}

/// The hash of an address, of [`HASH_BITS`] bits: two instructions (Fibonacci hashing; Knuth, volume 3).
#[inline(always)]
const fn hash(address: u64) -> usize {
    ((address as u32).wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

impl Samples {
    pub(crate) const fn new() -> Self {
        Self {
            filter: [const { AtomicU8::new(OFF) }; 1 << HASH_BITS],
            places: spin::Once::new(),
            first: AtomicU64::new(0),
        }
    }

    /// Whether memory of this length can be used: a power of two of at least 64.
    pub(crate) fn is_usable(places: &[AllocSample]) -> bool {
        places.len().is_power_of_two() && places.len() >= MIN_PLACES
    }

    /// Sets the memory, which is usable. Only the first call does anything: recorded allocations are found in the table
    /// in which they were put.
    pub(crate) fn set(&self, places: &'static [AllocSample]) {
        self.places.call_once(|| places);
    }

    /// Forgets all allocations with a smaller number than this.
    pub(crate) fn forget_before(&self, first: u64) {
        self.first.store(first, Ordering::Release);
    }

    /// Says whether frees are counted from now on.
    pub(crate) fn set_counted(&self, is_counted: bool) {
        for byte in &self.filter {
            match is_counted {
                true => byte.fetch_and(!OFF, Ordering::Relaxed),
                false => byte.fetch_or(OFF, Ordering::Relaxed),
            };
        }
    }

    /// Lets every free ask for more than a count: for a machine with many CPUs. Called once.
    pub(crate) fn ask_for_each(&self) {
        self.filter.iter().for_each(|byte| _ = byte.fetch_add(1, Ordering::Relaxed));
    }

    /// What must be done for a free. Never `is_only_counted` if the allocation has a record.
    #[inline(always)]
    pub(crate) fn ask(&self, address: u64) -> Freed {
        // The index is below the length, whatever the address is.
        Freed(self.filter[hash(address)].load(Ordering::Relaxed))
    }

    /// The places in which an address may be.
    fn places_of(&self, address: u64) -> impl Iterator<Item = &'static AllocSample> {
        let places = self.places.get().copied().unwrap_or(&[]);
        let count = places.len();
        let first = hash(address).wrapping_mul(count) >> HASH_BITS;
        (0..SEARCHED).filter_map(move |step| places.get(first.wrapping_add(step) & count.wrapping_sub(1)))
    }

    /// Adds an allocation that nobody can free yet. `false` if there is no room for it.
    pub(crate) fn insert(&self, address: u64, sample: Sample) -> bool {
        let Some(filter) = self.filter.get(hash(address)) else { return false };
        // Before the place, so that whoever frees the address looks for it.
        let mut byte = filter.load(Ordering::Relaxed);
        loop {
            if byte & !OFF == !OFF {
                return false;
            }
            match filter.compare_exchange_weak(byte, byte.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => byte = now,
            }
        }
        let place = self.places_of(address).find(|place| self.reserve(place));
        match place {
            Some(place) => {
                place.number.store(sample.number, Ordering::Relaxed);
                place.state.store(sample.state, Ordering::Relaxed);
                place.address.store(address, Ordering::Release);
            }
            None => {
                filter.fetch_sub(1, Ordering::AcqRel);
            }
        }
        place.is_some()
    }

    /// Takes a place that is free, or whose allocation is forgotten.
    fn reserve(&self, place: &AllocSample) -> bool {
        let address = place.address.load(Ordering::Acquire);
        let is_free = match address {
            0 => true,
            BUSY => false,
            _ => place.number.load(Ordering::Relaxed) < self.first.load(Ordering::Acquire),
        };
        let is_taken =
            is_free && place.address.compare_exchange(address, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_taken && address != 0 {
            self.leave_filter(address);
        }
        is_taken
    }

    /// Removes the allocation at an address that is about to be freed. `None` if it has no record.
    pub(crate) fn take(&self, address: u64) -> Option<Sample> {
        self.hold(address).map(|held| self.end(held, true))
    }

    /// Holds the allocation at an address that may be freed: nobody else finds it, and its place stays its own, until
    /// [`Samples::end`]. `None` if it has no record.
    pub(crate) fn hold(&self, address: u64) -> Option<Held> {
        let mut found = None;
        for place in self.places_of(address) {
            let is_here = place.address.load(Ordering::Acquire) == address
                && place.address.compare_exchange(address, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if is_here {
                let number = place.number.load(Ordering::Relaxed);
                let sample = Sample { number, state: place.state.load(Ordering::Relaxed) };
                let held = Held { place, address, sample };
                // A forgotten one of this address may be in another place, too.
                match number >= self.first.load(Ordering::Acquire) && found.is_none() {
                    true => found = Some(held),
                    false => _ = self.end(held, true),
                }
            }
        }
        found
    }

    /// Ends the holding: the allocation was freed, or it still exists.
    pub(crate) fn end(&self, Held { place, address, sample }: Held, is_freed: bool) -> Sample {
        place.address.store(if is_freed { 0 } else { address }, Ordering::Release);
        if is_freed {
            self.leave_filter(address);
        }
        sample
    }

    fn leave_filter(&self, address: u64) {
        if let Some(filter) = self.filter.get(hash(address)) {
            filter.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

const _: () = assert!(size_of::<AllocSample>() == 24, "the documentation says so");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Mutex;

    fn samples(places: usize) -> Samples {
        let samples = Samples::new();
        samples.set(Vec::leak((0..places).map(|_| AllocSample::new()).collect()));
        samples.set_counted(true);
        samples
    }

    fn sample(number: u64) -> Sample {
        Sample { number, state: 7 }
    }

    fn may_have(samples: &Samples, address: u64) -> bool {
        samples.ask(address).may_have_record()
    }

    #[test]
    fn while_frees_are_not_counted_the_filter_says_so_and_forgets_nothing() {
        let samples = samples(64);
        assert!(samples.insert(0x1000, sample(1)));
        samples.set_counted(false);
        let asked = [0x1000, 0x2000].map(|address| samples.ask(address));
        assert!(asked.iter().all(|asked| !asked.may_have_record() && !asked.is_only_counted()));
        assert!(samples.insert(0x2000, sample(2)));
        samples.set_counted(true);
        assert!(may_have(&samples, 0x1000) && may_have(&samples, 0x2000));
        assert!(samples.ask(0x3000).is_only_counted());
    }

    #[test]
    fn a_byte_of_the_filter_that_is_full_refuses_more() {
        let samples = samples(64);
        samples.filter[hash(0x1000)].store(!OFF, Ordering::Relaxed);
        assert!(!samples.insert(0x1000, sample(1)) && may_have(&samples, 0x1000));
        assert_eq!(samples.filter[hash(0x1000)].load(Ordering::Relaxed), !OFF);
        assert!(samples.insert(0x2000, sample(2)));
    }

    #[test]
    fn each_allocation_is_found_once() {
        let samples = samples(64);
        assert!(samples.insert(0x1000, sample(1)) && samples.insert(0x2000, sample(2)));
        assert!(may_have(&samples, 0x1000) && may_have(&samples, 0x2000));
        assert_eq!((samples.take(0x1000), samples.take(0x1000)), (Some(sample(1)), None), "a second free finds none");
        assert_eq!((samples.take(0x3000), samples.take(0x2000)), (None, Some(sample(2))));
        assert!(!may_have(&samples, 0x1000) && !may_have(&samples, 0x2000), "the filter is empty again");
    }

    #[test]
    fn an_allocation_whose_free_is_given_up_is_still_there_however_full_the_table_is() {
        let samples = samples(64);
        assert!(samples.insert(0x1000, sample(1)));
        let held = samples.hold(0x1000).expect("it was inserted");
        assert_eq!(samples.take(0x1000), None, "nobody else finds it meanwhile");
        // Others fill every place that is left for this address, and its byte of the filter.
        samples.places_of(0x1000).filter(|place| samples.reserve(place)).for_each(drop);
        samples.filter[hash(0x1000)].store(!OFF, Ordering::Relaxed);
        samples.end(held, false);
        assert_eq!(samples.take(0x1000), Some(sample(1)));
    }

    #[test]
    fn memory_that_is_no_power_of_two_is_refused_and_without_memory_there_is_no_room() {
        let is_usable = |places| Samples::is_usable(&(0..places).map(|_| AllocSample::new()).collect::<Vec<_>>());
        assert_eq!([0, 32, 65, 100, 64, 256].map(is_usable), [false, false, false, false, true, true]);
        let without = Samples::new();
        assert!(!without.insert(0x1000, sample(1)) && !may_have(&without, 0x1000));
        assert_eq!(without.take(0x1000), None);
    }

    #[test]
    fn memory_is_set_once_and_a_second_call_changes_nothing() {
        let samples = samples(64);
        assert!(samples.insert(0x1000, sample(1)));
        samples.set(Vec::leak((0..128).map(|_| AllocSample::new()).collect()));
        assert_eq!(samples.take(0x1000), Some(sample(1)));
    }

    #[test]
    fn what_finds_no_room_is_refused_and_all_others_stay() {
        let samples = samples(64);
        let addresses = || (1..=200_u64).map(|number| (number, 0xffff_9000_0000_0000 + number * 48));
        let added: Vec<_> = addresses().filter(|(number, address)| samples.insert(*address, sample(*number))).collect();
        assert!(added.len() < 200 && added.len() >= 32, "{} of 200 in 64 places", added.len());
        for (number, address) in addresses() {
            let expected = added.contains(&(number, address)).then_some(sample(number));
            assert_eq!(samples.take(address), expected);
        }
        assert!(addresses().all(|(_, address)| !may_have(&samples, address)));
    }

    #[test]
    fn each_address_has_all_its_places_and_none_of_them_is_taken_from_whoever_fills_it() {
        let samples = samples(64);
        // Those of the last place and of the first ones.
        let mut addresses = (1..).map(|number| number * 16).filter(|address| (hash(*address) * 64) >> HASH_BITS == 63);
        let mut next = || addresses.next().expect("there are many");
        assert!((0..SEARCHED).all(|_| samples.insert(next(), sample(1))) && !samples.insert(next(), sample(1)));
        samples.places_of(next()).for_each(|place| place.address.store(BUSY, Ordering::Relaxed));
        samples.forget_before(100);
        assert!(!samples.insert(next(), sample(100)));
    }

    #[test]
    fn forgotten_allocations_are_not_found_and_make_room() {
        let samples = samples(64);
        let addresses = || (1..=32_u64).map(|number| (number, number * 64));
        let added: Vec<_> = addresses().filter(|(number, address)| samples.insert(*address, sample(*number))).collect();
        samples.forget_before(100);
        // The address of a forgotten one is used again.
        let (_, again) = added[0];
        assert!(samples.insert(again, sample(100)));
        assert_eq!(samples.take(again), Some(sample(100)));
        assert!(added.iter().all(|(_, address)| samples.take(*address).is_none()));
        assert!(addresses().all(|(_, address)| !may_have(&samples, address)));
    }

    #[test]
    fn threads_that_allocate_and_free_find_each_of_their_own_once() {
        const ROUNDS: u64 = if cfg!(miri) { 10 } else { 20_000 };
        let (samples, found) = (samples(128), Mutex::new(HashSet::new()));
        let refused = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (samples, found, refused) = (&samples, &found, &refused);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // Four at a time, at addresses that other rounds use too, but no other thread.
                        let blocks = (0..4).map(|block| {
                            (
                                thread * ROUNDS * 4 + round * 4 + block + 1,
                                (round % 50 * 4 + block) * 48 + thread * 16 + 16,
                            )
                        });
                        let added: Vec<_> =
                            blocks.filter(|(number, address)| samples.insert(*address, sample(*number))).collect();
                        refused.fetch_add(4 - added.len() as u64, Ordering::Relaxed);
                        for (number, address) in added {
                            assert!(may_have(samples, address));
                            assert_eq!(samples.take(address), Some(sample(number)));
                            assert!(found.lock().unwrap().insert(number));
                        }
                    }
                });
            }
        });
        let found = found.into_inner().unwrap().len() as u64;
        assert_eq!(found + refused.load(Ordering::Relaxed), 3 * 4 * ROUNDS);
        assert!(samples.filter.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }
}
