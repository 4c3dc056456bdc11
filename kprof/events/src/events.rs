//! The type that a kernel puts into a second `static`. Its methods are in `api.rs`, and in the part that each belongs
//! to.
//!
//! In: the kernel's profiler. Out: the kernel, and the state of its events. Runs in: any.
#![cfg_attr(not(feature = "profiling"), allow(unused_variables))]

use crate::kernel::EventKernel;
#[cfg(feature = "profiling")]
use crate::slot::EventSlot;
#[cfg(feature = "profiling")]
use crate::state::State;
use kprof::Profiler;
#[cfg(feature = "profiling")]
use kprof::internals::Instance;

/// The events of a kernel, beside its [`Profiler`]. Make it in a `static`.
pub struct Events<K: EventKernel> {
    #[cfg(feature = "profiling")]
    pub(crate) instance: &'static Instance<K>,
    #[cfg(feature = "profiling")]
    pub(crate) state: State,
    #[cfg(not(feature = "profiling"))]
    profiler: core::marker::PhantomData<&'static Profiler<K>>,
}

impl<K: EventKernel> Events<K> {
    /// Makes the events of a profiler, for a `static`.
    pub const fn new(profiler: &'static Profiler<K>) -> Self {
        Self {
            #[cfg(feature = "profiling")]
            instance: &profiler.instance,
            #[cfg(feature = "profiling")]
            state: State::new(&profiler.instance.shared),
            #[cfg(not(feature = "profiling"))]
            profiler: core::marker::PhantomData,
        }
    }
}

#[cfg(feature = "profiling")]
impl<K: EventKernel> Events<K> {
    #[inline(always)]
    pub(crate) fn kernel(&self) -> &'static K {
        &self.instance.kernel
    }

    /// The slot of this CPU. Not before [`Events::init`], when the kernel may not know its CPUs yet.
    #[inline(always)]
    pub(crate) fn slot(&self) -> Option<&'static EventSlot> {
        self.state.slot(self.kernel().cpu())
    }
}
