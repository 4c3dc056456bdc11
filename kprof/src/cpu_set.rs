//! The set of CPUs to signal. It is a view of the slots, so it needs no memory of its own and has no limit on CPU
//! numbers.
//!
//! In: slots with their `due` flags. Out: CPU numbers. Runs in: the sampler CPU, inside [`crate::Kernel::signal`].

use crate::CpuSlot;

/// The CPUs to be signalled now.
#[derive(Clone, Copy)]
pub struct CpuSet<'a> {
    slots: &'a [CpuSlot],
    all_others: bool,
}

impl<'a> CpuSet<'a> {
    /// The CPUs whose `due` flag is set.
    #[cfg(feature = "profiling")]
    pub(crate) fn due(slots: &'a [CpuSlot], all_others: bool) -> Self {
        Self { slots, all_others }
    }

    /// Whether the set contains every CPU that has a slot, except the calling one.
    pub fn all_others(&self) -> bool {
        self.all_others
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.slots.get(cpu).is_some_and(CpuSlot::is_due)
    }

    /// The CPU numbers, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<'a> {
        let set = *self;
        (0..set.slots.len()).filter(move |cpu| set.contains(*cpu))
    }
}
