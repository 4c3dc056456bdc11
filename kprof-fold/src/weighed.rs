//! Weighed: gives each sample the weight of its period. Stage: read; a consumer that passes samples on to another one.
//!
//! In: samples, and the rates in force when they were taken. Out: to the inner consumer each sample as often as there
//! would have been samples at the highest rate. So every view and export weighs samples without knowing of rates. It is
//! used only for a profile with several rates, on a second pass: a setting may be later in the file than the samples
//! that it concerns. If the ratio of the rates is no whole number, a fixed sequence of random numbers rounds it up or
//! down, so that no stack gains or loses by its place in the file.

use crate::profile::rates::{Unequal, Weights};
use crate::read::consumer::{Consumer, Recorded, Sample};

/// A consumer, and the weights of what it receives.
pub struct Weighed<C> {
    /// The consumer that gets every sample, some of them several times.
    pub inner: C,
    weights: Weights,
    random: u64,
    /// How much the weights differ.
    pub unequal: Unequal,
}

impl<C> Weighed<C> {
    /// A consumer before the first sample.
    pub fn new(inner: C, weights: Weights) -> Self {
        Self { inner, weights, random: 0, unequal: Unequal::default() }
    }

    /// A number from 0 up to 1 (SplitMix64: Steele, Lea and Flood, OOPSLA 2014).
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl<C: Consumer> Consumer for Weighed<C> {
    fn sample(&mut self, sample: &Sample<'_>) {
        let weight = self.weights.at(sample.boot, sample.tsc);
        let times = (weight + if weight.fract() > 0.0 { self.fraction() } else { 0.0 }) as u64;
        self.unequal.add(times);
        (0..times).for_each(|_| self.inner.sample(sample));
    }

    fn takes_events(&self) -> bool {
        self.inner.takes_events()
    }

    fn event(&mut self, event: &Recorded<'_>) {
        self.inner.event(event);
    }

    fn commit(&mut self) {
        self.inner.commit();
    }

    fn discard(&mut self) {
        self.inner.discard();
    }
}
