//! The witness: the sampler reports a CPU that takes no tick, and one that shows nothing but kernel code of one task,
//! once each, to the kernel and in the meta stream.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::format::lockup::Kind as LockupKind;
use kprof::format::record::{Kind, NO_TASK};
use kprof::{
    CommandError, Config, CpuSet, CpuSlot, InitError, Kernel, Outcome, Profiler, Registers, Setup, Task, Trigger,
};
use kprof_events::{EventKernel, EventSlot, Events, Lockup};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the kernel was told.
struct Told {
    cpu: usize,
    kind: LockupKind,
    ms: u64,
    sentence: String,
    report: String,
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

/// A kernel with two CPUs besides the sampler: CPU 1 answers ticks, CPU 2 does not.
struct Witness;

// SAFETY: as `ArrayKernel`; the only CPU that calls the handler is 1.
unsafe impl Kernel for Witness {
    fn cpu(&self) -> usize {
        1
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        ArrayKernel.stack_range(address)
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 7, idle: false }
    }
    fn sleep_ns(&self, ns: u64) {
        ArrayKernel.sleep_ns(ns);
    }
}

impl EventKernel for Witness {
    fn locked_up(&self, lockup: &Lockup<'_>) {
        let mut report = String::new();
        lockup.export(&mut report).unwrap();
        let (cpu, kind, ms, sentence) = (lockup.cpu(), lockup.kind(), lockup.ms(), lockup.to_string());
        TOLD.lock().unwrap().push(Told { cpu, kind, ms, sentence, report });
    }
}

/// The meta records of lockups: kind, values, text.
fn lockups(profiler: &'static Profiler<Witness>) -> Vec<(Kind, [u64; 3], String)> {
    let daemon = Daemon::claim(profiler, 1);
    let mut buffer = vec![0; 64 * 1024];
    let bytes = daemon.meta.read(&mut buffer).unwrap();
    let mut records = records(&buffer[..bytes]);
    records.retain(|record| matches!(record.kind, Kind::Lockup | Kind::LockupStack));
    records.iter().map(|record| (record.kind, record.meta().values(), record.text())).collect()
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn a_cpu_that_does_not_answer_and_one_that_is_stuck_are_reported_once_each() {
    static PROFILER: Profiler<Witness> = Profiler::new(Witness);
    static EVENTS: Events<Witness> = Events::new(&PROFILER);
    static EVENT_SLOTS: [EventSlot; 3] = [const { EventSlot::new() }; 3];
    static SLOTS: [CpuSlot; 3] = [const { CpuSlot::new() }; 3];
    static END: AtomicBool = AtomicBool::new(false);
    // So long that a busy host does not keep the thread of CPU 1 from answering for as long.
    let config = Config { tsc_hz: 2_000_000_000, text: (text(0), text(256)), lockup_ms: 1500, ..Config::new() };
    EVENTS.init(|| &EVENT_SLOTS, || Setup { slots: &SLOTS, meta: memory(4096), config }).unwrap();
    (1..3).for_each(|cpu| PROFILER.register(cpu, || memory(1 << 16)).unwrap());
    std::thread::spawn(|| PROFILER.run_sampler(0));
    std::thread::scope(|scope| {
        let _ends = EndsOthers(&END);
        scope.spawn(|| {
            let at = Registers { interrupts_on: false, ..registers() };
            while !END.load(Ordering::SeqCst) {
                if PROFILER.on_nmi(&token(), &at) != Outcome::Sampled {
                    std::thread::yield_now();
                }
            }
        });
        PROFILER.start().unwrap();
        while TOLD.lock().unwrap().len() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        // The lockups go on for longer than the threshold, and are not reported again.
        std::thread::sleep(Duration::from_millis(2500));
    });
    let mut told = std::mem::take(&mut *TOLD.lock().unwrap());
    let headers: Vec<usize> = told.iter().map(|told| told.report.matches("# kprof-profile ").count()).collect();
    told.sort_by_key(|told| told.cpu);
    let [soft, hard] = &told[..] else { panic!("{} reports", told.len()) };
    assert_eq!((soft.cpu, soft.kind, hard.cpu, hard.kind), (1, LockupKind::Soft, 2, LockupKind::Hard));
    assert!(soft.sentence.starts_with("soft lockup: CPU 1 has had interrupts off for "), "{}", soft.sentence);
    assert!(hard.sentence.starts_with("hard lockup: CPU 2 has not answered for "), "{}", hard.sentence);
    assert!(soft.ms > 0 && hard.ms > 0);
    let (records, pc) = (lockups(&PROFILER), registers().pc);
    let of = |cpu: u64| records.iter().find(|record| record.0 == Kind::Lockup && record.1[1] == cpu).expect("a record");
    assert_eq!(records.iter().filter(|record| record.0 == Kind::Lockup).count(), 2);
    assert_eq!((of(1).1[0], of(2).1[0]), (7, NO_TASK));
    assert!(of(1).2.starts_with("interrupts-off ticks=") && of(1).2.contains(&format!(" at-{pc:x}=")), "{}", of(1).2);
    assert!(of(2).2.starts_with("no-answer ticks="), "{}", of(2).2);
    // Of CPU 2 there never was a stack.
    let stacks = || records.iter().filter(|record| record.0 == Kind::LockupStack);
    assert!(stacks().count() > 0 && stacks().all(|stack| stack.1[1] == 1 && stack.2.contains(&format!(" {pc:x},"))));
    // The stack ends where the record ends: after the address, the marker of interrupts that are off, and two callers.
    assert!(stacks().all(|stack| stack.2.matches(',').count() == 3), "{records:?}");
    assert!(soft.report.contains("# lockup tsc=") && soft.report.contains("kind=soft reason=interrupts-off"));
    assert!(hard.report.contains("kind=hard reason=no-answer"), "{}", hard.report);
    // A CPU without a sample has no task.
    let has_task = |told: &Told| told.report.lines().any(|line| line.contains("# lockup ") && line.contains(" task="));
    assert!(has_task(soft) && !has_task(hard), "{}{}", soft.report, hard.report);
    assert_eq!(headers, [1, 0], "the header comes once, before the first report");
}

#[test]
fn without_a_sampler_cpu_lockups_cannot_be_found_and_the_wish_is_refused() {
    let (profiler, slots) = machine();
    let config = Config { sampler_cpu: None, trigger: Trigger::Timer, lockup_ms: 100, ..Config::new() };
    let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..config };
    let refused = profiler.init(slots.len(), || Setup { slots, meta: memory(1024), config });
    assert_eq!(refused, Err(InitError::Lockup));
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config { lockup_ms: 0, ..config });
    let refused = profiler.open_control(1).write(b"hz 77\nlockup 100").unwrap_err();
    assert_eq!((refused.line, matches!(refused.reason, CommandError::State(_))), (2, true));
    profiler.open_control(1).write(b"lockup off").expect("what is off may be turned off");
}

#[test]
fn the_time_is_a_setting_that_a_lease_undoes() {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config::new());
    assert_eq!(control(profiler).get("lockup-ms"), None);
    profiler.open_control(1).write(b"lockup 5000").unwrap();
    assert_eq!(control(profiler)["lockup-ms"], "5000");
    let file = profiler.open_control(2);
    file.write(b"lease\nlockup 100").unwrap();
    assert_eq!(control(profiler)["lockup-ms"], "100");
    drop(file);
    assert_eq!(control(profiler)["lockup-ms"], "5000");
}
