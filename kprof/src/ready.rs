//! What `init` has set up. The handler needs one comparison to find the slot of its CPU, or that `init` has not run.
//!
//! In: slots and choices, once. Out: the slot of a CPU, the text range, the choices. Runs in: set in ordinary code on
//! the boot CPU; read in any, NMI included. Before `init` the number of CPUs is 0, so no other check is needed.

use crate::config::{Config, Trigger};
use crate::slot::CpuSlot;
use crate::unwind::{Text, TextCell};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Slots and choices.
pub struct Ready {
    slots: AtomicPtr<CpuSlot>,
    count: AtomicUsize,
    /// How many CPUs take NMIs. 0 if the sampler fills the rings ([`Trigger::Published`]), so that no NMI becomes a
    /// second producer.
    nmi_count: AtomicUsize,
    /// The main text range. Empty before `once` is called.
    pub(crate) text: TextCell,
    config: spin::Once<Config>,
}

impl Ready {
    pub(crate) const fn new() -> Self {
        Self {
            slots: AtomicPtr::new(ptr::dangling_mut()),
            count: AtomicUsize::new(0),
            nmi_count: AtomicUsize::new(0),
            text: TextCell::new(),
            config: spin::Once::new(),
        }
    }

    /// Sets everything up, the first time that it is called.
    pub(crate) fn once(&self, set_up: impl FnOnce() -> (&'static [CpuSlot], Config)) {
        self.config.call_once(|| {
            let (slots, config) = set_up();
            self.text.set(Text::new(config.text));
            self.slots.store(slots.as_ptr().cast_mut(), Ordering::Relaxed);
            // Release: whoever sees the number sees all of the above, and what `set_up` has done.
            self.nmi_count.store(if config.trigger == Trigger::Published { 0 } else { slots.len() }, Ordering::Release);
            self.count.store(slots.len(), Ordering::Release);
            config
        });
    }

    /// The slot of this CPU; `None` before `once`.
    #[inline(always)]
    pub fn slot(&self, cpu: usize) -> Option<&'static CpuSlot> {
        self.slot_of(cpu, &self.count)
    }

    /// The slot of this CPU, for an NMI. `None` before `once`, and if the profiler uses no NMIs.
    #[inline(always)]
    pub(crate) fn nmi_slot(&self, cpu: usize) -> Option<&'static CpuSlot> {
        self.slot_of(cpu, &self.nmi_count)
    }

    #[inline(always)]
    fn slot_of(&self, cpu: usize, count: &AtomicUsize) -> Option<&'static CpuSlot> {
        if cpu >= count.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `once` stores the slots before either count, and neither count is greater than the number of slots.
        // The slots live for ever and are only shared.
        Some(unsafe { &*self.slots.load(Ordering::Relaxed).add(cpu) })
    }

    /// All slots; none before `once`.
    pub(crate) fn slots(&self) -> &'static [CpuSlot] {
        let count = self.count.load(Ordering::Acquire);
        // SAFETY: as in `slot`. With no slots, the pointer is dangling but not null and aligned, which is enough for an
        // empty slice.
        unsafe { core::slice::from_raw_parts(self.slots.load(Ordering::Relaxed), count) }
    }

    /// The choices.
    #[inline(always)]
    pub(crate) fn config(&self) -> Option<&Config> {
        self.config.get()
    }
}
