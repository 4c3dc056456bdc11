//! A probe, and the state of all probes.
//!
//! In: the kernel's memory and code, once. Out: both by reference. Runs in: any but NMI.

use super::asked::Asked;
use super::memory::Memory;
use crate::points::point::Point;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use kprof::clock::ticks_to_ns;

/// The state of all probes.
pub(crate) struct Probes {
    pub(super) memory: spin::Once<Installed>,
    /// Nanoseconds in a TSC tick, as a number of 2^-32; set before the first probe is planted. A division takes a third
    /// of the time of a hit.
    ns_per_tick: AtomicU64,
    /// Counts the uses of probes, so that the room of the one is given away that was not used for the longest time.
    uses: AtomicU64,
}

/// The memory of the probes, and what they need of the kernel.
#[derive(Clone, Copy)]
pub(super) struct Installed {
    pub(super) memory: Memory,
    pub(super) text: &'static dyn KernelText,
}

impl Probes {
    pub(crate) const fn new() -> Self {
        Self { memory: spin::Once::new(), ns_per_tick: AtomicU64::new(0), uses: AtomicU64::new(0) }
    }

    /// A number for the next use of a probe.
    pub(super) fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn set_clock(&self, tsc_hz: u64) {
        self.ns_per_tick.store(ticks_to_ns(1 << 32, tsc_hz), Ordering::Relaxed);
    }

    /// The nanoseconds between two readings of the TSC; 0 if the second one, on another CPU, is the lower one.
    #[inline(always)]
    pub(super) fn ns_between(&self, begun_tsc: u64, now_tsc: u64) -> u64 {
        let ticks = u128::from(now_tsc.saturating_sub(begun_tsc));
        ((ticks * u128::from(self.ns_per_tick.load(Ordering::Relaxed))) >> 32) as u64
    }

    /// How many functions have a probe.
    pub(crate) fn planted(&self) -> usize {
        let probes = self.memory.get().map_or(&[][..], |installed| installed.memory.probes);
        probes.iter().filter(|probe| probe.is_planted()).count()
    }
}

/// The kernel's code, for probes. A trait object, because the control file does not know the kernel's type.
pub(super) trait KernelText: Sync {
    /// Writes a byte of code. `false`: the kernel cannot.
    ///
    /// # Safety
    /// As [`crate::EventKernel::patch`].
    unsafe fn patch(&self, address: u64, byte: u8) -> bool;

    fn is_stub(&self, address: u64) -> bool;
}

/// A probe, and its point, whose name is the address of the function.
pub(super) struct Probe {
    /// Its function is 0 while this is not used. A probe that was removed keeps its function until another one needs
    /// the room.
    pub(super) point: Point,
    /// Greater than that of a probe that was removed or asked for before.
    pub(super) last_used: AtomicU64,
    /// It is planted: by the holder of the lease, until it ends; by somebody else. Or by both.
    pub(super) by_lease: AtomicBool,
    pub(super) by_others: AtomicBool,
    /// Changes each time that the probe is removed, so that a call that began before is not taken for one since.
    pub(super) generation: AtomicU32,
    /// Whether the end of a call is seen. If not, a call is counted when it begins.
    pub(super) has_exits: AtomicBool,
    pub(super) asked: Asked,
}

impl Probe {
    pub(super) const fn new() -> Self {
        Self {
            point: Point::of_probe(),
            last_used: AtomicU64::new(0),
            by_lease: AtomicBool::new(false),
            by_others: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            has_exits: AtomicBool::new(false),
            asked: Asked::new(),
        }
    }

    /// Whether its `int3`s are in place.
    pub(super) fn is_planted(&self) -> bool {
        self.by_lease.load(Ordering::Relaxed) || self.by_others.load(Ordering::Relaxed)
    }

    /// Whether somebody who has no lease has put it there.
    pub(super) fn is_of_others(&self) -> bool {
        self.by_others.load(Ordering::Relaxed)
    }

    /// The number of the probe, from 1, and its generation: a word that is not 0.
    pub(super) fn owner(&self, number: usize) -> u64 {
        (number as u64 + 1) << 32 | u64::from(self.generation.load(Ordering::Relaxed))
    }

    /// Whether this is its owner now, and not that of an earlier time.
    pub(super) fn is_of_generation(&self, owner: u64) -> bool {
        owner as u32 == self.generation.load(Ordering::Relaxed)
    }
}
