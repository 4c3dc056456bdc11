//! Watch: notes which stacks the samples of some tasks have, and in which state all samples are. Stage: read; a
//! consumer that passes all samples on to another one.
//!
//! In: samples. Out: the same samples to the inner consumer, the distinct stacks of each watched task, and a count of
//! states. It is used only if the symbols of programs were given, because the symbols must then be compared with the
//! addresses of their task, and if only some CPUs or times were chosen, or samples have weights ([`crate::spent`]).
//! Samples of a batch that does not count are watched too, because their addresses are just as valid.

use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::read::escape::unescape;
use crate::spent::Counter;
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
    /// The states of the samples.
    pub states: Counter,
}

impl<C: Consumer> Consumer for Watched<C> {
    fn sample(&mut self, sample: &Sample<'_>) {
        if !self.watch.is_empty()
            && let Some(stacks) = self.watch.get_mut(&*unescape(sample.task))
        {
            stacks.insert(sample.stack);
        }
        self.states.add(sample);
        self.inner.sample(sample);
    }

    fn takes_events(&self) -> bool {
        self.inner.takes_events()
    }

    fn event(&mut self, event: &Recorded<'_>) {
        self.inner.event(event);
    }

    fn commit(&mut self) {
        self.states.commit();
        self.inner.commit();
    }

    fn discard(&mut self) {
        self.states.discard();
        self.inner.discard();
    }
}
