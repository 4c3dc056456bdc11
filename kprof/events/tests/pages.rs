//! The code that the documents show compiles, and does what they say.
//!
//! In: a kernel of arrays, and what a kernel has around the code that is shown. The lint group compares the Rust blocks
//! of the documents with these files and with the ports, paragraph by paragraph: whoever changes one changes both.
#![cfg(all(feature = "profiling", feature = "locks"))]

mod array_kernel;
#[path = "pages/block_io.rs"]
mod block_io;
#[path = "pages/first_port.rs"]
mod first_port;
#[path = "pages/locks.rs"]
mod locks;
#[path = "pages/memory.rs"]
mod memory;
#[path = "pages/points.rs"]
mod points;
#[path = "pages/porting.rs"]
mod porting;

use array_kernel::{ArrayKernel as Port, CPU, alone, control, machine, registers, set_up};
use kprof::{Config, CpuSlot, Kernel, Profiler, Published};
use kprof_events::{EventSlot, Events};
use spin::Once;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const MAX_CPUS: usize = 2;

static PROFILER: Profiler<Port> = Profiler::new(Port);
static EVENTS: Events<Port> = Events::new(&PROFILER);
static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];
static EVENT_SLOTS: [EventSlot; MAX_CPUS] = [const { EventSlot::new() }; MAX_CPUS];

fn now_ns() -> u64 {
    static START: Once<Instant> = Once::new();
    START.call_once(Instant::now).elapsed().as_nanos() as u64
}

fn ring_memory(_cpu: usize) -> &'static mut [MaybeUninit<u64>] {
    array_kernel::memory(1024)
}

#[test]
fn the_first_port_knows_its_stack_and_its_stubs() {
    let port = first_port::Port;
    assert_eq!(port.stack_range(0x1800), Some(0x1000..0x2000));
    assert_eq!(port.stack_range(0x2000), None);
    assert!(port.is_entry_code(0x8000) && !port.is_entry_code(0x8100));
}

#[test]
fn a_switch_declares_the_new_stack_before_it_uses_it() {
    static STACKS: porting::Cpu = porting::Cpu { current: AtomicUsize::new(1), next: AtomicUsize::new(1) };
    let declared = || [&STACKS.current, &STACKS.next].map(|stack| stack.load(Ordering::Relaxed));
    porting::switch_to(&STACKS, 1, 2, |old, new| {
        let declared = [&STACKS.current, &STACKS.next].map(|stack| stack.load(Ordering::Relaxed));
        assert_eq!(declared, [old, new]);
    });
    assert_eq!(declared(), [2, 2]);
}

#[test]
fn a_check_that_fails_says_on_which_cpu() {
    let said = std::panic::catch_unwind(|| porting::check(1)).unwrap_err();
    assert!(said.downcast_ref::<String>().is_some_and(|text| text.starts_with("kprof: cpu 1: ")), "{said:?}");
}

#[test]
fn an_entry_publishes_its_frame_and_at_its_end_what_goes_on() {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config::new());
    let publisher = profiler.publisher(1).unwrap();
    porting::entry(publisher, 0x1000, true);
    assert_eq!(publisher.publish(Published::THREAD), Published::user(0x1000));
    porting::entry(publisher, 0x1000, false);
    assert_eq!(publisher.publish(Published::THREAD), Published::THREAD);
}

#[test]
fn points_and_the_heap_are_in_the_status_and_locks_work_after_the_steps_of_the_documents() {
    let _alone = alone();
    CPU.store(1, Ordering::Relaxed);
    porting::init();
    let said = std::panic::catch_unwind(|| porting::begin(|| unreachable!("it is set up"))).unwrap_err();
    assert!(
        said.downcast_ref::<String>().is_some_and(|text| text.starts_with("kprof: nothing is sampled: ")),
        "{said:?}"
    );
    (0..MAX_CPUS).for_each(|cpu| points::register(cpu).unwrap());
    memory::register().unwrap();
    porting::register_probes().unwrap();
    points::read_done(5, 1, 2);
    assert_eq!(points::system_call(1, [2, 3], |number, registers| number as u64 + registers[0] + registers[1]), 6);
    block_io::read_block(8, 4096);
    EVENTS.hit(block_io::write_point(), 1);
    assert!(!block_io::write_point().is_on(), "the first hit makes a point known, and nobody has asked for its counts");
    locks::QUEUE.lock().push(1);
    *locks::Mutex::new(0).lock() += 1;
    assert_eq!(*locks::RwLock::new(7).read(), 7);
    let status = control(&PROFILER);
    for point in ["block.read", "block.write", "heap.alloc", "syscall.write"] {
        assert!(status.contains_key(&format!("point.{point}")), "{point} is not in {status:#?}");
    }
    let mut next_ns = None;
    porting::on_timer(registers(), |next| next_ns = Some(next));
    assert!(next_ns.is_some());
    let log = porting::export(String::new());
    assert!(log.lines().count() > 3 && log.lines().all(|line| line.starts_with("~kprof ")), "{log}");
    porting::export_bytes(|byte| assert!(byte.is_ascii())).unwrap();
}
