//! Records on stacks that are arrays: both paths write the same words, and no frame pointer makes a walk leave the
//! stack.

use super::*;
use crate::EventSlot;
use crate::kernel::EventKernel;
use crate::points::{POINTS, PointCounts};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use kprof::config::{Config, Setup};
use kprof::format::marker::{Marker, TruncationReason};
use kprof::internals::Direct;
use kprof::{CpuSet, CpuSlot, Kernel, Profiler, Task, Unit};

const TEXT: (u64, u64) = (0x1000, 0x2000);
static STACK: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

fn stack(word: u64) -> u64 {
    STACK.as_ptr().expose_provenance() as u64 + 8 * word
}

struct Array;

// SAFETY: the only CPU is 0; the only stack is a static.
unsafe impl Kernel for Array {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        (stack(0)..stack(64)).contains(&address).then(|| stack(0)..stack(64))
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    const MARKED_ENTRIES: bool = true;
    fn task(&self) -> Task {
        Task { id: 7, idle: false }
    }
    fn sleep_ns(&self, _: u64) {}
}

impl EventKernel for Array {}

struct Machine {
    profiler: &'static Profiler<Array>,
    events: &'static Events<Array>,
    point: &'static Point,
}

fn machine() -> Machine {
    let profiler: &'static Profiler<Array> = Box::leak(Box::new(Profiler::new(Array)));
    let events: &'static Events<Array> = Box::leak(Box::new(Events::new(profiler)));
    let memory = || -> &'static mut [MaybeUninit<u64>] { vec![MaybeUninit::uninit(); 1024].leak() };
    let slots: &'static [CpuSlot] = vec![CpuSlot::new()].leak();
    let config = Config { tsc_hz: 1, text: TEXT, sampler_cpu: None, trigger: kprof::Trigger::Timer, ..Config::new() };
    let event_slots: &'static [EventSlot] = vec![EventSlot::new()].leak();
    events.init(|| event_slots, || Setup { slots, meta: memory(), config }).unwrap();
    let places: &'static [PointCounts] = (0..64).map(|_| PointCounts::new()).collect::<Vec<_>>().leak();
    events.register_points(0, || places).unwrap();
    register(&events.state, 0, memory).unwrap();
    let point: &'static Point = Box::leak(Box::new(Point::new("records.test", Unit::Count)));
    POINTS.list(point);
    Machine { profiler, events, point }
}

impl Machine {
    /// Records a hit with this frame pointer; returns the words after the TSC.
    fn record<const N: usize>(&self, frame: u64, arguments: &[u64; N]) -> Vec<u64> {
        let ring = self.events.state.slots()[0].records.stream().ring.get().unwrap();
        let from = ring.head();
        self.events.record(self.point, 5, arguments, RECORD, frame, Direct);
        assert!(ring.head() > from, "no record of the frame {frame:x}");
        (from + 4..ring.head()).map(|at| ring.word(at)).collect()
    }
}

/// One test, because the stack is shared.
#[test]
fn both_paths_write_the_same_words_and_no_frame_leaves_the_stack() {
    let machine = machine();
    let put = |word: u64, values: &[u64]| {
        STACK[word as usize..].iter().zip(values).for_each(|(place, value)| place.store(*value, Ordering::Relaxed));
    };
    let (user, syscall) = (Marker::User.encode(), Marker::Syscall.encode());
    let truncated = |reason| Marker::Truncated(Ok(reason)).encode();
    let head = [7, 5, RECORD];
    // Frames at 4, 8 and 20; the last one is the root.
    put(4, &[stack(8), 0x1010]);
    put(8, &[stack(20), 0x1020]);
    put(20, &[0, 0x1030]);
    // A frame at 30, then the frame of an entry stub that was entered from user code.
    put(30, &[stack(34), 0x1040]);
    put(34, &[0x1234, syscall, 0x40_1000, 0x33, 0x202, 0x7fff_0000, 0x2b]);
    for round in 0..3 {
        // The first record of a ring takes the slow path, the later ones the fast path.
        for arguments in [&[][..], &[1], &[1, 2]] {
            let record = |frame| match *arguments {
                [] => machine.record(frame, &[]),
                [first] => machine.record(frame, &[first]),
                [first, second, ..] => machine.record(frame, &[first, second]),
            };
            let expect = |stack: &[u64]| [&head, arguments, stack].concat();
            assert_eq!(record(stack(4)), expect(&[0x1010, 0x1020, 0x1030]), "round {round}");
            let entered = expect(&[0x1040, syscall, user, 0x40_1000]);
            assert_eq!(record(stack(30)), entered, "round {round}");
        }
    }
    let only = |reason| [&head[..], &[truncated(reason)]].concat();
    for frame in [1, stack(64), stack(63), 8, u64::MAX, u64::MAX - 7, stack(0).wrapping_sub(8)] {
        assert_eq!(machine.record(frame, &[]), only(TruncationReason::Range), "{frame:x}");
    }
    assert_eq!(machine.record(stack(4) + 4, &[]), only(TruncationReason::Alignment));
    // A frame that leads to itself, and one that leads to no code.
    put(40, &[stack(40), 0x1050]);
    let looped = [&head[..], &[0x1050, truncated(TruncationReason::Loop)]].concat();
    assert_eq!(machine.record(stack(40), &[]), looped);
    put(44, &[stack(50), 0x5000]);
    assert_eq!(machine.record(stack(44), &[]), only(TruncationReason::NotText));
}

#[test]
fn the_end_of_an_exported_batch_of_events_says_how_many_there_are() {
    let machine = machine();
    (0..3).for_each(|_| drop(machine.record(0, &[])));
    let mut text = String::new();
    machine.profiler.export_last(&mut text, 8).unwrap();
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("# batch cpu=event-0 ")).collect();
    assert!(lines.len() > 4 && lines[4].ends_with(" samples=3"), "{lines:#?}");
}
