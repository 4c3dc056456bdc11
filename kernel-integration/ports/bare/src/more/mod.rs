//! Optional parts of the example, each with a cargo feature: `heap` profiles the allocator, `lockup` reports a CPU that
//! is locked up, `probes` puts a probe on a function. Without them this file does nothing. In: the steps of the boot,
//! the rounds of the work. Out: more in the same profile.

#[cfg(feature = "heap")]
mod heap;
#[cfg(feature = "probes")]
mod pages;
#[cfg(feature = "probes")]
pub mod probes;
#[cfg(feature = "lockup")]
pub mod stuck;

#[cfg(any(feature = "heap", feature = "lockup", feature = "probes"))]
use crate::machine::MAX_CPUS;
use crate::profiling::PROFILER;
use kprof::{InitError, Setup};

/// The events of this kernel, which all of these parts need.
#[cfg(any(feature = "heap", feature = "lockup", feature = "probes"))]
pub static EVENTS: kprof_events::Events<crate::profiling::Port> = kprof_events::Events::new(&PROFILER);

#[cfg(any(feature = "heap", feature = "lockup", feature = "probes"))]
impl kprof_events::EventKernel for crate::profiling::Port {
    #[cfg(feature = "lockup")]
    fn locked_up(&self, lockup: &kprof_events::Lockup<'_>) {
        stuck::report(lockup); // sampler CPU, while another CPU is locked up; must wait for nobody
    }

    #[cfg(feature = "probes")]
    unsafe fn patch(&self, address: u64, byte: u8) -> bool {
        // SAFETY: the caller's promise.
        unsafe { probes::patch(address, byte) } // ordinary code, with locks of the profiler held
    }
}

/// The function of the port that only these parts need.
macro_rules! hooks {
    () => {
        #[cfg(feature = "probes")]
        fn entry_frame(&self, at: &kprof::Registers) -> Option<kprof::EntryFrame> {
            crate::more::probes::entry_frame(at) // NMI; without it a sample in a stub is truncated
        }
    };
}
pub(crate) use hooks;

/// Sets the profiler up, with events if one of these parts is there.
pub fn init(setup: impl FnOnce() -> Setup) -> Result<(), InitError> {
    #[cfg(any(feature = "heap", feature = "lockup", feature = "probes"))]
    {
        use kprof_events::EventSlot;
        static SLOTS: [EventSlot; MAX_CPUS] = [const { EventSlot::new() }; MAX_CPUS];
        EVENTS.init(|| &SLOTS, setup)
    }
    #[cfg(not(any(feature = "heap", feature = "lockup", feature = "probes")))]
    PROFILER.init(setup)
}

/// Whether an address is in an entry stub of these parts. NMI.
pub fn is_entry_code(address: u64) -> bool {
    let _ = address;
    #[cfg(feature = "probes")]
    return probes::is_entry_code(address);
    #[cfg(not(feature = "probes"))]
    false
}

/// On each CPU, after its tables are loaded; on CPU 0 before it starts the others.
pub fn set_up(cpu: usize) {
    let _ = cpu;
    #[cfg(feature = "probes")]
    if cpu == 0 {
        pages::set_up();
    }
}

/// On the CPU that works and exports, after the profiler was set up.
pub fn begin(cpu: usize) {
    let _ = cpu;
    #[cfg(any(feature = "heap", feature = "probes"))]
    counts(cpu);
    #[cfg(feature = "heap")]
    heap::begin(cpu);
    #[cfg(feature = "lockup")]
    stuck::begin();
    #[cfg(feature = "probes")]
    probes::begin();
}

/// Memory for the counts of these parts' points: one for each.
#[cfg(any(feature = "heap", feature = "probes"))]
fn counts(cpu: usize) {
    use kprof_events::PointCounts;
    // Two of the heap, one of a probe.
    static COUNTS: [PointCounts; 3] = [const { PointCounts::new() }; 3];
    crate::tell(EVENTS.register_points(cpu, || &COUNTS));
}

/// In each round of the work.
pub fn work(round: u64) {
    let _ = round;
    #[cfg(feature = "heap")]
    heap::work();
    #[cfg(feature = "lockup")]
    stuck::work(round);
    #[cfg(feature = "probes")]
    probes::work(round);
}
