//! Replaces the port by empty functions, for one comparison: a kernel built without the feature `profiling` must be
//! exactly as large as one without any call of kprof. Selected by the feature `no-calls`. The names are those of
//! `profiling`.

use crate::cpu::entry::TrapFrame;
use crate::memory::heap;
use crate::wait::Doing;

macro_rules! nothing {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(#[doc = "Nothing."] #[inline(always)] pub fn $name($(_: $kind),*) {})*
    };
}

nothing! {
    init(); register(cpu: usize); run_sampler(cpu: usize); on_nmi(frame: &TrapFrame);
    name_boot(id: u64); mark_phase(name: &str); name_task(id: u64, name: &str); forget_task(id: u64); tell_of_module();
    count_context_switch(); count_page_fault(); count_interrupt(); on_panic();
    task_created(times: &TaskTimes); task_switched(from: &TaskTimes, to: &TaskTimes, becomes: Doing);
    task_resumed(times: &TaskTimes); task_woken(times: &TaskTimes);
    register_heap(); task_times(task: u64, times: &TaskTimes, doing: Doing);
    null_written(bytes: usize);
    block_read(device: u16, place: (u64, usize), ns: u64); block_written(device: u16, place: (u64, usize), ns: u64);
    page_fault_ends(begun_ns: Option<u64>); syscall_ends(begun: ());
    on_timer(frame: &TrapFrame); on_boot_timer(frame: &TrapFrame);
    leave(frame: &TrapFrame, before: Published); publish_again(place: Published);
}

/// A spin lock.
pub type RawKernelLock = spin::Mutex<()>;

/// The global allocator, with nothing around it.
#[global_allocator]
static HEAP: heap::Heap = heap::new();

/// The global allocator, which needs its memory.
#[inline]
pub fn inner_heap() -> &'static heap::Heap {
    &HEAP
}

/// Nothing.
pub struct TaskTimes;

impl TaskTimes {
    /// Nothing.
    pub const fn new() -> Self {
        Self
    }

    /// Nothing.
    pub const fn idle() -> Self {
        Self
    }
}

/// Nothing.
#[derive(Clone, Copy)]
pub struct Published;

impl Published {
    /// Nothing.
    pub const THREAD: Self = Self;
}

/// Nothing.
#[inline(always)]
pub fn page_fault_begins() -> Option<u64> {
    None
}

/// No probe has caused it.
#[inline(always)]
pub fn on_breakpoint(_: &mut TrapFrame) -> bool {
    false
}

/// Nothing.
#[inline(always)]
pub fn syscall_begins(_: u64) {}

/// There is no sampler.
pub fn wants_sampler() -> bool {
    false
}

/// The boot is not sampled.
pub fn samples_boot() -> bool {
    false
}

/// Nothing.
#[inline(always)]
pub fn enter(_: &TrapFrame) -> Published {
    Published
}

/// Nothing.
#[inline(always)]
pub fn switch_to(_: u64, _: bool) -> Published {
    Published
}

/// The device files, of which there are none.
pub mod device {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use crate::fs::Node;
    use crate::fs::device::FixedFolder;

    /// An empty folder.
    pub fn folder() -> Arc<dyn Node> {
        FixedFolder::new(Vec::new())
    }
}
