//! Before `init` the kernel may not know its CPUs yet: nothing that it calls asks for one.
#![cfg(feature = "profiling")]

use kprof::{Breakpoint, CpuSet, Kernel, Profiler, RegisterError, Task, Unit};
use kprof_events::{Alloc, Event, EventKernel, Events, Point, ProbeMemory, TaskState, TaskTimes};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;

/// A kernel that cannot say anything yet.
struct Early;

static PROFILER: Profiler<Early> = Profiler::new(Early);
static EVENTS: Events<Early> = Events::new(&PROFILER);
static HEAP: Alloc<System, Early> = Alloc::new(System, &EVENTS);
static PROBES: ProbeMemory<2, 8, 2> = ProbeMemory::new();

// SAFETY: there is no CPU, no stack, and no text.
unsafe impl Kernel for Early {
    fn cpu(&self) -> usize {
        panic!("nobody knows which CPU this is");
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, _: u64) -> Option<Range<u64>> {
        panic!("nobody knows which stack this is");
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        panic!("there are no tasks");
    }
    fn sleep_ns(&self, _: u64) {}
}

impl EventKernel for Early {}

#[test]
fn nothing_that_a_kernel_calls_before_init_asks_for_its_cpu() {
    static READ: Point = Point::new("early.read", Unit::Bytes);
    static WRITE: Point = Point::new("early.write", Unit::Bytes);
    for _ in 0..3 {
        EVENTS.hit(&READ, 5);
        EVENTS.hit_with(&WRITE, 7, [1, 2]);
        EVENTS.count(Event::Interrupt);
    }
    let (one, other) = (TaskTimes::new(), TaskTimes::new());
    EVENTS.created(&one);
    EVENTS.woken(&one);
    EVENTS.switched(&other, &one, TaskState::Preempted);
    EVENTS.resumed(&one);
    EVENTS.task_times(1, &one, TaskState::Running);
    let layout = Layout::new::<[u64; 4]>();
    // SAFETY: the layout is not empty, and the block is freed once, with it.
    unsafe { HEAP.dealloc(HEAP.alloc(layout), layout) };
    assert_eq!(EVENTS.register_probes(&PROBES), Err(RegisterError::NoSlot(0)));
    let mut stack = [0_u64; 4];
    let mut at = Breakpoint { pc: 0x1000, sp: (&raw mut stack[2]).addr() as u64, fp: 0 };
    // SAFETY: the stack is an array, and the registers are those of no code.
    assert!(!unsafe { EVENTS.on_breakpoint(&mut at, || [0; 6]) });
}

#[test]
#[cfg(feature = "locks")]
fn a_wait_for_a_lock_before_init_asks_for_no_cpu() {
    use lock_api::{Mutex, RawMutex};
    use std::sync::atomic::{AtomicBool, Ordering};
    type Lock = kprof_events::RawLock<spin::Mutex<()>, Early>;
    static LOCK: Mutex<Lock, u64> = Mutex::const_new(Lock::INIT, 0);
    static WAITS: AtomicBool = AtomicBool::new(false);
    let held = LOCK.lock();
    let waiter = std::thread::spawn(|| {
        WAITS.store(true, Ordering::Relaxed);
        *LOCK.lock() += 1;
    });
    while !WAITS.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(LOCK.try_lock().is_none());
    drop(held);
    waiter.join().unwrap();
    assert_eq!(*LOCK.lock(), 1);
}

#[cfg(feature = "locks")]
impl kprof_events::Profiled for Early {
    fn events() -> &'static Events<Self> {
        &EVENTS
    }
}
