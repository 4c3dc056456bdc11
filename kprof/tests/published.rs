//! The way `published`: a sampler thread looks at what a CPU says of itself, finds its entry, and what that interrupted.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::format::marker::{Facts, MARKER_PAGE, Marker, PUBLISHED_LEAF};
use kprof::format::record::{Header, SAMPLE_HEADER_WORDS};
use kprof::{Config, Context, CpuSet, CpuSlot, Kernel, Profiler, Published, Registers, Setup, Way};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

struct Publishing;

static READABLE: AtomicBool = AtomicBool::new(true);

impl Kernel for Publishing {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {
        panic!("nobody is interrupted");
    }
    fn stack_range(&self, _address: u64) -> Option<Range<u64>> {
        None
    }
    fn context(&self) -> Context {
        Context { id: 0, idle: false }
    }
    fn foreign_stack_range(&self, cpu: usize, address: u64) -> Option<Range<u64>> {
        assert_eq!(cpu, 1);
        ArrayKernel.stack_range(address)
    }
    fn read_foreign(&self, _cpu: usize, address: u64) -> Option<u64> {
        READABLE.load(Ordering::Relaxed).then(|| get((address - stack(0)) / 8))
    }
    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

static PROFILER: Profiler<Publishing> = Profiler::new(Publishing);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

fn counter(name: &str) -> u64 {
    let mut text = String::new();
    PROFILER.write_control(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu.1.{name} ")));
    line.expect("a counter").parse().unwrap()
}

/// Samples for a while, then gives the stack of the last sample.
fn sample(now: &Published) -> Option<Vec<u64>> {
    PROFILER.publish(1, now);
    PROFILER.start();
    std::thread::sleep(Duration::from_millis(60));
    PROFILER.stop().unwrap();
    let mut buffer = vec![0; 8 * 8192];
    PROFILER.control(1, b"protocol 1").unwrap();
    let bytes = PROFILER.read_stream(1, &mut buffer).unwrap();
    PROFILER.control(1, format!("ack 1 {}", counter("position-in")).as_bytes()).unwrap();
    PROFILER.close_control(1);
    let (words, mut at, mut last) = (words(&buffer[..bytes]), 0, None);
    while at < words.len() {
        let length = Header::decode(words[at]).unwrap().words as usize;
        last = Some(words[at + SAMPLE_HEADER_WORDS..at + length].to_vec());
        at += length;
    }
    last
}

#[test]
fn a_core_is_read_without_being_interrupted() {
    PROFILER.init(|| Setup {
        slots: &SLOTS,
        meta: memory(1024),
        config: Config {
            way: Way::Published,
            tsc_hz: 2_000_000_000,
            hz: 2000,
            text: (text(0), text(256)),
            ..Config::new()
        },
    });
    PROFILER.register(1, || memory(8192));
    std::thread::spawn(|| PROFILER.run_sampler(0));

    let facts = MARKER_PAGE | u64::from(Facts::PUBLISHED);
    let context = Context { id: 7, idle: false };
    let user = Registers { rip: 0x40_0000, cs: 0x33, ..Registers::default() };
    let in_syscall = Published { entry: Some(Marker::Syscall), user: false, context, interrupted: user };
    let syscall = [PUBLISHED_LEAF, facts, Marker::Syscall.encode(), Marker::User.encode(), 0x40_0000];
    assert_eq!(sample(&in_syscall).unwrap(), syscall);

    let interrupt = Marker::Interrupt(33);
    let interrupted = Published { entry: Some(interrupt), user: false, context, interrupted: registers() };
    let stack = [PUBLISHED_LEAF, facts, interrupt.encode(), text(30), text(20), text(40)];
    assert_eq!(sample(&interrupted).unwrap(), stack);
    assert!(counter("interrupt") > 0);

    // The stack goes away under the look.
    READABLE.store(false, Ordering::Relaxed);
    assert_eq!(sample(&interrupted), None);
    assert!(counter("lost-torn") > 0);

    let in_user = Published { entry: None, user: true, context, interrupted: user };
    assert_eq!(sample(&in_user), None);
    let idle = Published { entry: None, user: false, context: Context { id: 1, idle: true }, interrupted: user };
    assert_eq!(sample(&idle), None);
    assert!(counter("user") > 0 && counter("idle") > 0);
    let lost = counter("lost-torn") + counter("lost-full");
    assert_eq!(counter("sent"), counter("taken") + counter("merged"));
    assert_eq!(counter("taken"), counter("user") + counter("idle") + lost + counter("recorded"));
}
