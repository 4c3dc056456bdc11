//! Watch: notes which stacks the samples of some tasks have. Stage: read; a consumer that passes all samples on to
//! another one.
//!
//! In: samples. Out: the same samples to the inner consumer, and the distinct stacks of each watched task. It is used
//! only if the symbols of programs were given, because the symbols must then be compared with the addresses of their
//! task. Samples of a batch that does not count are watched too, because their addresses are just as valid.

use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::read::escape::unescape;
use crate::stacks::StackId;
use std::collections::{BTreeSet, HashMap};

/// The distinct stacks of each watched task.
pub type Watch = HashMap<Vec<u8>, BTreeSet<StackId>>;

/// A consumer, and what was watched.
pub struct Watched<C> {
    /// The consumer that gets every sample.
    pub inner: C,
    /// The tasks, each with its stacks.
    pub watch: Watch,
}

impl<C: Consumer> Consumer for Watched<C> {
    fn sample(&mut self, sample: &Sample<'_>) {
        if let Some(stacks) = self.watch.get_mut(&*unescape(sample.task)) {
            stacks.insert(sample.stack);
        }
        self.inner.sample(sample);
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
