//! What the parts of events share: the slots of the CPUs, the probes, who takes counts at the moment. Nothing here
//! depends on the type of the kernel.
//!
//! In: the kernel's memory, once. Out: each part by reference. Runs in: any but NMI. Only ordinary code takes the locks
//! here.

use super::slot::EventSlot;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use core::{hint, ptr};
use kprof::InitError;
use kprof::config::{Config, Trigger};
use kprof::internals::{Meta, Shared};

/// How many are in a few instructions that somebody must wait for, on all CPUs.
pub(crate) struct Guests(AtomicUsize);

impl Guests {
    pub(crate) fn with<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.0.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub(crate) fn are_gone(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// The state of events, without the kernel itself.
pub(crate) struct State {
    /// The profiler that this is an extension of.
    pub(crate) shared: &'static Shared,
    slots: AtomicPtr<EventSlot>,
    /// The number of slots; 0 before `install`.
    count: AtomicUsize,
    /// Lockups were looked for before the last tick.
    pub(crate) is_watching: AtomicBool,
    /// Those who count for a point, without a flag of their CPU that says so.
    pub(crate) guests: Guests,
    /// Held while the counts of points are taken.
    pub(crate) points_taker: spin::Mutex<()>,
    /// Held while the counts of events by task are taken.
    pub(crate) events_taker: spin::Mutex<()>,
    /// Why the kernel's tasks are blocked, by number; known from the first call of its scheduler on.
    pub(crate) wait_reasons: spin::Once<&'static [&'static str]>,
    /// The dynamic probes.
    pub(crate) probes: super::probes::probe::Probes,
}

impl State {
    pub(crate) const fn new(shared: &'static Shared) -> Self {
        Self {
            shared,
            slots: AtomicPtr::new(ptr::dangling_mut()),
            count: AtomicUsize::new(0),
            is_watching: AtomicBool::new(false),
            guests: Guests(AtomicUsize::new(0)),
            points_taker: spin::Mutex::new(()),
            events_taker: spin::Mutex::new(()),
            wait_reasons: spin::Once::new(),
            probes: super::probes::probe::Probes::new(),
        }
    }

    /// Checks the choices, and takes the slots, one for each CPU of the profiler. Called once, while the profiler is
    /// set up.
    pub(crate) fn install(&self, slots: &'static [EventSlot], cpus: usize, config: &Config) -> Result<(), InitError> {
        match config {
            Config { lockup_ms: 1.., trigger: Trigger::Timer, .. } => return Err(InitError::Lockup),
            _ if slots.len() < cpus => return Err(InitError::FewEventSlots { cpus, slots: slots.len() }),
            _ => {}
        }
        let taken = slots.iter().take_while(|slot| slot.take()).count();
        if taken < slots.len() {
            slots.iter().take(taken).for_each(EventSlot::give_back);
            return Err(InitError::SlotTaken(taken));
        }
        self.slots.store(slots.as_ptr().cast_mut(), Ordering::Relaxed);
        // Release: whoever sees the number sees the slots.
        self.count.store(slots.len(), Ordering::Release);
        Ok(())
    }

    /// The slot of a CPU; `None` before `install`.
    #[inline(always)]
    pub(crate) fn slot(&self, cpu: usize) -> Option<&'static EventSlot> {
        if cpu >= self.count.load(Ordering::Acquire) {
            return None;
        }
        let slot = self.slots.load(Ordering::Relaxed).wrapping_add(cpu);
        // SAFETY: `install` stores the slots before their number, so this is one of them, and not at address 0. They
        // live for ever and are only shared. Saying that the address is not null saves the caller a check.
        unsafe {
            hint::assert_unchecked(!slot.is_null());
            Some(&*slot)
        }
    }

    /// All slots; none before `install`.
    pub(crate) fn slots(&self) -> &'static [EventSlot] {
        let count = self.count.load(Ordering::Acquire);
        // SAFETY: as in `slot`. With no slots, the pointer is dangling but not null and aligned, which is enough for an
        // empty slice.
        unsafe { core::slice::from_raw_parts(self.slots.load(Ordering::Relaxed), count) }
    }

    /// Whether there are slots. If not, the kernel may not know its CPUs yet.
    pub(crate) fn is_installed(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    pub(crate) fn meta(&self) -> &'static Meta {
        &self.shared.meta
    }

    pub(crate) fn config(&self) -> Option<&'static Config> {
        self.shared.config()
    }

    pub(crate) fn tsc_hz(&self) -> u64 {
        self.shared.tsc_hz()
    }
}
