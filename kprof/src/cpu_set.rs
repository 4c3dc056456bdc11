//! The set of CPUs to signal. It asks the sampler about each CPU, so it needs no memory of its own and has no limit on
//! CPU numbers.
//!
//! In: the number of CPUs, and which are due. Out: CPU numbers. Runs in: the sampler CPU, inside
//! [`crate::Kernel::signal`].

/// The CPUs to be signalled now.
#[derive(Clone, Copy)]
pub struct CpuSet<'a> {
    cpus: usize,
    is_due: &'a dyn Fn(usize) -> bool,
    all_others: bool,
}

impl<'a> CpuSet<'a> {
    /// Those of the first `cpus` CPUs that are due.
    #[cfg(feature = "profiling")]
    pub(crate) fn due(cpus: usize, is_due: &'a dyn Fn(usize) -> bool, all_others: bool) -> Self {
        Self { cpus, is_due, all_others }
    }

    /// Whether the set contains every CPU that has a slot, except the calling one.
    pub fn all_others(&self) -> bool {
        self.all_others
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < self.cpus && (self.is_due)(cpu)
    }

    /// The CPU numbers, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<'a> {
        let set = *self;
        (0..set.cpus).filter(move |cpu| set.contains(*cpu))
    }
}
