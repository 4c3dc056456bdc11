//! Dynamic probes: calls of any function of the running kernel are counted, timed and recorded, without a new build.
//!
//! In: the ctl commands `probe` and `unprobe`; the kernel's breakpoint exceptions. Out: hits of a point for each
//! function, named by its address: one hit for each call, when the call ends, weighted with its time. Runs in: `plant`
//! in ordinary code, under the writer's lock; `hit` in the breakpoint handler, with interrupts off, never in an NMI.
//!
//! ```text
//! plant: int3 in place of `push rbp`, `ret` and tail `jmp` ─► hit: places ─► calls (when it began) ─► point
//!                                                                └► emulates the instruction that int3 replaces
//! ```
//!
//! A CPU may have executed an `int3` that was removed before its handler looks for the place. If it still finds the
//! place, it only emulates the instruction; otherwise it executes the instruction that is there again. Probes and places
//! are used again for other functions once no CPU handles a hit that has begun before the removal.

mod asked;
mod calls;
mod hit;
mod memory;
mod places;
mod plant;
#[cfg(test)]
mod tests;

use crate::api::Events;
use crate::kernel::EventKernel;
use asked::Asked;
use calls::CallSet;
pub(crate) use hit::on_breakpoint;
use kprof::clock::ticks_to_ns;
use memory::Memory;
pub use memory::ProbeMemory;
use places::Place;
pub(crate) use plant::{Planned, register};

use crate::points::Point;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The state of all probes.
pub(crate) struct Probes {
    memory: spin::Once<Installed>,
    /// Nanoseconds in a TSC tick, as a number of 2^-32; set before the first probe is planted. A division takes a third
    /// of the time of a hit.
    ns_per_tick: AtomicU64,
    /// Counts the uses of probes, so that the room of the one is given away that was not used for the longest time.
    uses: AtomicU64,
}

/// The memory of the probes, and what they need of the kernel.
#[derive(Clone, Copy)]
struct Installed {
    memory: Memory,
    text: &'static dyn KernelText,
}

impl Probes {
    pub(crate) const fn new() -> Self {
        Self { memory: spin::Once::new(), ns_per_tick: AtomicU64::new(0), uses: AtomicU64::new(0) }
    }

    /// A number for the next use of a probe.
    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    fn set_clock(&self, tsc_hz: u64) {
        self.ns_per_tick.store(ticks_to_ns(1 << 32, tsc_hz), Ordering::Relaxed);
    }

    /// The nanoseconds between two readings of the TSC; 0 if the second one, on another CPU, is the lower one.
    #[inline(always)]
    fn ns_between(&self, begun_tsc: u64, now_tsc: u64) -> u64 {
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
trait KernelText: Sync {
    /// Writes a byte of code. `false`: the kernel cannot.
    ///
    /// # Safety
    /// As [`EventKernel::patch`].
    unsafe fn patch(&self, address: u64, byte: u8) -> bool;

    fn is_stub(&self, address: u64) -> bool;
}

impl<K: EventKernel> KernelText for Events<K> {
    unsafe fn patch(&self, address: u64, byte: u8) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.kernel().patch(address, byte) }
    }

    fn is_stub(&self, address: u64) -> bool {
        self.kernel().is_entry_code(address)
    }
}

/// A probe, and its point, whose name is the address of the function.
struct Probe {
    /// Its function is 0 while this is not used. A probe that was removed keeps its function until another one needs
    /// the room.
    point: Point,
    /// Greater than that of a probe that was removed or asked for before.
    last_used: AtomicU64,
    /// It is planted: by the holder of the lease, until it ends; by somebody else. Or by both.
    by_lease: AtomicBool,
    by_others: AtomicBool,
    /// Changes each time that the probe is removed, so that a call that began before is not taken for one since.
    generation: AtomicU32,
    /// Whether the end of a call is seen. If not, a call is counted when it begins.
    has_exits: AtomicBool,
    asked: Asked,
}

impl Probe {
    const fn new() -> Self {
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
    fn is_planted(&self) -> bool {
        self.by_lease.load(Ordering::Relaxed) || self.by_others.load(Ordering::Relaxed)
    }

    /// Whether somebody who has no lease has put it there.
    fn is_of_others(&self) -> bool {
        self.by_others.load(Ordering::Relaxed)
    }

    /// The number of the probe, from 1, and its generation: a word that is not 0.
    fn owner(&self, number: usize) -> u64 {
        (number as u64 + 1) << 32 | u64::from(self.generation.load(Ordering::Relaxed))
    }

    /// Whether this is its owner now, and not that of an earlier time.
    fn is_of_generation(&self, owner: u64) -> bool {
        owner as u32 == self.generation.load(Ordering::Relaxed)
    }
}
