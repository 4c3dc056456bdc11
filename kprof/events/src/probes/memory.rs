//! The memory of the probes, which the kernel provides.
//!
//! In: a static. Out: the same memory as slices. Runs in: ordinary code, once.

use super::calls::CallSet;
use super::places::Place;
use super::probe::Probe;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Memory for dynamic probes: on `FUNCTIONS` functions with `PLACES` instructions in all (the first one of each
/// function and its exits; at most three quarters are used), and for `4 * CALLS` calls at the same time. `PLACES` and
/// `CALLS` are powers of two. Other functions use the room of a probe that was removed.
///
/// ```
/// use kprof_events::ProbeMemory;
///
/// static PROBES: ProbeMemory<64, 512, 256> = ProbeMemory::new();
/// ```
pub struct ProbeMemory<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize> {
    probes: [Probe; FUNCTIONS],
    places: [Place; PLACES],
    calls: [CallSet; CALLS],
    changes: AtomicU64,
    is_taken: AtomicBool,
}

/// The same memory, whatever its size.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) probes: &'static [Probe],
    pub(super) places: &'static [Place],
    pub(super) calls: &'static [CallSet],
    /// Counts the changes of places.
    pub(super) changes: &'static AtomicU64,
}

impl Memory {
    /// The probe of a place with this owner ([`Probe::owner`]); `None` for 0.
    #[inline(always)]
    pub(super) fn probe_of(&self, owner: u64) -> Option<&'static Probe> {
        self.probes.get(((owner >> 32) as usize).wrapping_sub(1))
    }
}

impl<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize> ProbeMemory<FUNCTIONS, PLACES, CALLS> {
    /// No probes.
    #[allow(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        const {
            assert!(PLACES.is_power_of_two() && CALLS.is_power_of_two(), "PLACES and CALLS are powers of two");
            assert!(FUNCTIONS <= 1 << 16, "at most 65536 functions");
        };
        Self {
            probes: [const { Probe::new() }; FUNCTIONS],
            places: [const { Place::new() }; PLACES],
            calls: [const { CallSet::new() }; CALLS],
            changes: AtomicU64::new(0),
            is_taken: AtomicBool::new(false),
        }
    }

    /// The memory, if no profiler has it yet.
    pub(super) fn take(&'static self) -> Option<Memory> {
        let Self { probes, places, calls, changes, .. } = self;
        let memory = Memory { probes, places, calls, changes };
        (!self.is_taken.swap(true, Ordering::AcqRel)).then_some(memory)
    }
}

impl<const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize> fmt::Debug
    for ProbeMemory<FUNCTIONS, PLACES, CALLS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeMemory").finish_non_exhaustive()
    }
}
