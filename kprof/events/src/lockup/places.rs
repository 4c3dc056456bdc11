//! A histogram of addresses that has room for a few of them.
//!
//! In: the interrupted instruction of each sample. Out: addresses, each with its count; the counts add up to the number
//! of samples. Runs in: the sampler CPU. Full: the address with the smallest count gives its place, and its count, to
//! the new one (the algorithm Space-Saving). So an address that has more than one sample of [`PLACES`] is in the list,
//! and its count is too high by at most that part.

/// The number of addresses.
pub(crate) const PLACES: usize = 16;

/// The histogram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places([Place; PLACES]);

#[derive(Clone, Copy, Debug)]
struct Place {
    address: u64,
    count: u64,
}

impl Places {
    pub(crate) const fn new() -> Self {
        Self([Place { address: 0, count: 0 }; PLACES])
    }

    /// Counts one sample.
    pub(crate) fn add(&mut self, address: u64) {
        let known = self.0.iter().position(|place| place.count > 0 && place.address == address);
        let rarest = || (0..PLACES).min_by_key(|place| self.0[*place].count).unwrap_or(0);
        let place = &mut self.0[known.unwrap_or_else(rarest)];
        *place = Place { address, count: place.count + 1 };
    }

    /// The addresses and their counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().filter(|place| place.count > 0).map(|place| (place.address, place.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_add_up_and_a_frequent_address_is_never_pushed_out() {
        const SAMPLES: u64 = if cfg!(miri) { 800 } else { 10_000 };
        let mut places = Places::new();
        for sample in 0..SAMPLES {
            places.add(if sample.is_multiple_of(8) { 7 } else { 1000 + sample });
        }
        assert_eq!(places.iter().map(|(_, count)| count).sum::<u64>(), SAMPLES);
        let frequent = places.iter().find(|(address, _)| *address == 7).expect("one sample of eight").1;
        assert!((SAMPLES / 8..=SAMPLES / 8 + SAMPLES / PLACES as u64).contains(&frequent), "{frequent}");
    }

    #[test]
    fn a_few_addresses_are_counted_exactly() {
        let mut places = Places::new();
        (0..48).for_each(|sample| places.add(sample % 16));
        assert!(places.iter().all(|(_, count)| count == 3) && places.iter().count() == 16);
    }
}
