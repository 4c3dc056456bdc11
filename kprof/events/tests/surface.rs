//! Names every public item once. This file compiles with the feature on and off, so a kernel can keep its calls in both
//! cases.
//!
//! `cargo test -p kprof-events --test surface` and the same with `--features profiling`. An item that is missing here
//! is found by `every_public_item_is_named`.

use core::alloc::{GlobalAlloc, Layout};
use core::fmt::Write;
use core::ops::Range;
use kprof::clock::{Calibration, CalibrationError, Moment, Reference, ticks_to_ns};
use kprof::{
    BadMemory, Breakpoint, Bytes, CallerEntryFrame, CheckError, Clock, CommandError, Config, ControlDone, ControlError,
    ControlFile, CountedEvent, CpuSet, CpuSlot, DEFAULT_RING_WORDS, ENABLED, EntryFrame, ExportError, ForeignStacks,
    Image, InitError, Interrupted, Kernel, Mode, NmiToken, Outcome, OverflowTick, Precision, Profiler, Published,
    Publisher, ReadError, RegisterError, Registers, Setup, StateError, StreamFile, StreamName, Task, TimerTick,
    Trigger, Unit,
};
use kprof_events::{
    Alloc, AllocSample, Event, EventKernel, EventSlot, Events, Lockup, Point, PointCounts, ProbeMemory, Profiled,
    RawLock, TaskState, TaskTimes,
};
use std::alloc::System;

struct Port;

// SAFETY: this kernel declares no stack and no text, and has one CPU.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, cpus: &CpuSet<'_>) {
        let _ = (cpus.all_others(), cpus.contains(1), cpus.iter().count());
    }
    fn is_halted(&self, _: usize) -> bool {
        false
    }
    fn stack_range(&self, _: u64) -> Option<Range<u64>> {
        None
    }
    fn is_text(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 1, idle: false }
    }
    fn read_user(&self, _: u64) -> Option<u64> {
        None
    }
    fn read_user_frame(&self, _: u64) -> Option<[u64; 2]> {
        None
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn entry_frame(&self, _: &Registers) -> Option<EntryFrame> {
        None
    }
    fn caller_entry_frame(&self, _: u64, _: u64) -> Option<CallerEntryFrame> {
        None
    }
    fn foreign_stacks(&self) -> Option<&impl ForeignStacks> {
        Some(self)
    }
    fn sleep_ns(&self, _: u64) {}
    fn wake_reader(&self) {}
}

// SAFETY: no range is declared, so nothing is read.
unsafe impl ForeignStacks for Port {
    fn foreign_stack_range(&self, _: usize, _: u64) -> Option<Range<u64>> {
        None
    }
    unsafe fn read_foreign(&self, _: usize, _: u64) -> Option<u64> {
        None
    }
}

impl EventKernel for Port {
    const WAIT_REASONS: &'static [&'static str] = &["pipe"];
    fn locked_up(&self, lockup: &Lockup<'_>) {
        let _ = (lockup.cpu(), lockup.kind(), lockup.ms(), lockup.to_string(), lockup.export(&mut String::new()));
    }
}

impl Profiled for Port {
    fn events() -> &'static Events<Self> {
        &EVENTS
    }
}

static PROFILER: Profiler<Port> = Profiler::new(Port);
static EVENTS: Events<Port> = Events::new(&PROFILER);
static POINT: Point = Point::new("surface.point", Unit::Count);
static COUNTS: [PointCounts; 1] = [const { PointCounts::new() }; 1];
static PROBES: ProbeMemory<1, 4, 1> = ProbeMemory::new();
static HEAP: Alloc<System, Port> = Alloc::new(System, &EVENTS);
static ALLOC_SAMPLES: [AllocSample; 64] = [const { AllocSample::new() }; 64];
static LOCK: lock_api::Mutex<RawLock<spin::Mutex<()>, Port>, u64> = lock_api::Mutex::new(0);
static SLOTS: [CpuSlot; 1] = [const { CpuSlot::new() }];
static EVENT_SLOTS: [EventSlot; 1] = [const { EventSlot::new() }];

/// Makes every call that a kernel can make.
#[test]
fn every_call_may_stay_with_the_feature_off() {
    let memory = |words: usize| Box::leak(vec![core::mem::MaybeUninit::uninit(); words].into_boxed_slice());
    let config = Config {
        sampler_cpu: None,
        trigger: Trigger::Timer,
        mode: Mode::Drop,
        clock: Clock::Tsc,
        precision: Precision::Instruction,
        tsc_hz: 1_000_000,
        text: (1, 2),
        ..Config::default()
    };
    let done: Result<(), InitError> =
        EVENTS.init(|| &EVENT_SLOTS, || Setup { slots: &SLOTS, meta: memory(1024), config });
    assert_eq!(done, Ok(()));
    let done: Result<(), RegisterError> = PROFILER.register(0, || memory(DEFAULT_RING_WORDS.max(1024)));
    assert_eq!(done, Ok(()));
    // A user program has no descriptor tables to check, and its clock is not plausible.
    let checked: Result<(), CheckError> = PROFILER.check();
    assert_eq!(checked, if ENABLED { Err(CheckError::Clock(1_000_000)) } else { Ok(()) });
    let twice = PROFILER.init(|| unreachable!("`init` was called"));
    assert_eq!(twice.is_err(), ENABLED);
    PROFILER.run_sampler(1);
    let started: Result<(), StateError> = PROFILER.start();
    assert_eq!(started, Ok(()));
    // SAFETY: nothing is interrupted, and no stack is declared.
    let token = unsafe { NmiToken::new() };
    let at = Registers::default().registers();
    let outcome: Outcome = PROFILER.on_nmi(&token, &at);
    assert_eq!(outcome, Outcome::Foreign);
    let TimerTick { outcome, next_ns } = PROFILER.on_timer(&token, &at);
    assert!(outcome == Outcome::Foreign && next_ns > 0);
    let event: Option<CountedEvent> = config.event;
    assert_eq!(event, None);
    let OverflowTick { outcome, next_events } = PROFILER.on_overflow(&token, &at);
    assert!(outcome == Outcome::Foreign && next_events > 0);
    EVENTS.count(Event::PageFault);
    let done: Result<(), RegisterError> = EVENTS.register_points(0, || &COUNTS);
    assert_eq!(done, Ok(()));
    let done: Result<(), RegisterError> = EVENTS.register_events(0, || memory(1024));
    assert_eq!(done, Ok(()));
    let done: Result<(), RegisterError> = HEAP.register(|| &ALLOC_SAMPLES);
    assert_eq!(done, Ok(()));
    let (layout, _): (Layout, &System) = (Layout::new::<u64>(), HEAP.inner());
    // SAFETY: the layout is not empty, and the block is freed once, with the same layout.
    unsafe { HEAP.dealloc(HEAP.alloc(layout), layout) };
    *LOCK.lock() += 1;
    let is_inner = size_of::<RawLock<spin::Mutex<()>, Port>>() == size_of::<spin::Mutex<()>>();
    assert_eq!(is_inner, !cfg!(all(feature = "profiling", feature = "locks")));
    let done: Result<(), RegisterError> = EVENTS.register_probes(&PROBES);
    assert_eq!(done, Ok(()));
    let mut breakpoint = Breakpoint { pc: 1, sp: 8, fp: 8 };
    // SAFETY: no probe is planted, so nothing is read or changed.
    assert!(!unsafe { EVENTS.on_breakpoint(&mut breakpoint, || [0; 6]) });
    EVENTS.hit(&POINT, 1);
    EVENTS.hit_with(&POINT, 1, [2, 3]);
    assert!(!POINT.is_on(), "no point is on before a command");
    let (one, idle) = (TaskTimes::new(), TaskTimes::idle());
    EVENTS.created(&one);
    EVENTS.switched(&one, &idle, TaskState::Blocked(0));
    EVENTS.woken(&one);
    EVENTS.switched(&idle, &one, TaskState::Preempted);
    EVENTS.resumed(&one);
    EVENTS.task_times(1, &one, TaskState::Running);
    PROFILER.task_name(1, "one");
    PROFILER.image(&Image { name: "kernel", load: 0, text: (1, 2), build_id: &[] });
    PROFILER.mark("here");
    let publisher: Option<&'static Publisher> = PROFILER.publisher(0);
    if let Some(publisher) = publisher {
        publisher.publish_task(Task { id: 1, idle: false });
        publisher.publish(Published::entry(8));
    }
    assert_eq!(publisher.is_some(), ENABLED);
    assert_eq!(PROFILER.stop(), Ok(()));
    let file: ControlFile = PROFILER.open_control(1);
    let written: Result<ControlDone, ControlError> = file.write(b"hz 5");
    match written {
        Ok(ControlDone { wait_ms, wants_names, wants_times }) => {
            assert!(ENABLED && wait_ms.is_none() && !wants_names && !wants_times);
        }
        Err(error) => assert!(!ENABLED && error.line == 1 && error.reason == CommandError::Off && !error.is_busy()),
    }
    let mut text = String::new();
    file.read(&mut text).unwrap();
    PROFILER.write_status(&mut text).unwrap();
    assert_eq!(text.contains("hz 5"), ENABLED);
    let stream: Result<StreamFile, ReadError> = PROFILER.open_stream(0, 1);
    assert_eq!(stream.map(|stream| stream.read(&mut [0; 64])).is_ok(), ENABLED);
    let stream: Result<StreamFile, ReadError> = PROFILER.open_stream(0, 1);
    assert_eq!(stream.map(|stream| stream.read_to(64, &mut [0; 64], &mut |_, _| true)).is_ok(), ENABLED);
    let events: Result<StreamFile, ReadError> = PROFILER.open_events(0, 1);
    assert_eq!(events.is_ok(), ENABLED);
    assert!(PROFILER.open_meta(1).read(&mut [0; 64]).is_err());
    assert!(!PROFILER.is_claimed() && !PROFILER.reader_due());
    let exported: Result<(), ExportError> = PROFILER.export(&mut Bytes(|byte| text.push(char::from(byte))));
    assert_eq!(exported, Ok(()));
    PROFILER.export_last(&mut String::new(), 1).unwrap();
    PROFILER.offline(0);
    let mut errors = String::new();
    write!(errors, "{} {} {}", BadMemory::Twice, StreamName::Meta, StateError::Busy).unwrap();
    assert!(errors.contains("profiling-meta"));
    let moment = Moment { tsc: 0, reference: 0 };
    let found = Calibration::of(moment, moment, Reference { hz: 1, bits: 64 }, 1);
    assert_eq!((found, ticks_to_ns(5, 1_000_000_000)), (Err(CalibrationError::Reference(0)), 5));
    let registers = EntryFrame::InRegisters { marker: kprof::format::marker::Marker::Syscall, interrupted: at };
    assert_ne!(registers, EntryFrame::OnStack { marker: kprof::format::marker::Marker::Syscall, saved_at: 8 });
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn every_public_item_is_named() {
    let here = include_str!("surface.rs");
    let source = |file: &str| std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut names = Vec::new();
    for file in [
        "../src/profiler.rs",
        "../src/files.rs",
        "../src/cpu_set.rs",
        "../src/publisher.rs",
        "../src/errors.rs",
        "../src/clock.rs",
        "../src/config.rs",
        "../src/check/mod.rs",
        "src/api.rs",
        "src/event.rs",
        "src/events.rs",
        "src/kernel.rs",
        "src/lockup/mod.rs",
        "src/off.rs",
        "src/profiled.rs",
    ] {
        let text = source(file);
        // Items for tests and benches only have a feature of their own and are skipped.
        let public = text.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix("pub ")?.trim_start_matches("const ").trim_start_matches("unsafe ");
            let rest = ["fn ", "struct ", "enum ", "trait "].iter().find_map(|word| rest.strip_prefix(word))?;
            Some(rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?.to_owned())
        });
        names.extend(public);
    }
    assert!(names.len() > 40, "{names:?}");
    names.retain(|name| name != "raise_tick" && name != "name");
    let missing: Vec<_> = names.iter().filter(|name| !here.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "public, and not in this file: {missing:?}");
}
