//! The trigger `ipi`: the sampler's interrupt waits while a CPU has interrupts off, and is taken when they are on
//! again. So no sample has interrupts off, ticks that came in the meantime are coalesced, and the file names the
//! trigger.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::format::record::Kind;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Outcome, Profiler, Registers, Setup, StateError, Task, Trigger};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Two CPUs besides the sampler's, each with one bit for the pending interrupt, as a local APIC has.
struct Interruptible;

static REQUESTED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
static SIGNALS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

// SAFETY: handlers run one after the other on the test's thread, each with the CPU number that was set for it. Stack
// and text are `ArrayKernel`'s statics.
unsafe impl Kernel for Interruptible {
    fn cpu(&self) -> usize {
        ArrayKernel.cpu()
    }
    fn signal(&self, cpus: &CpuSet<'_>) {
        assert!(!cpus.contains(0), "the sampler interrupts itself");
        for cpu in cpus.iter() {
            REQUESTED[cpu].store(true, Ordering::Release);
            SIGNALS[cpu].fetch_add(1, Ordering::Release);
        }
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        ArrayKernel.stack_range(address)
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        ArrayKernel.task()
    }
    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns.min(1_000_000)));
    }
}

static PROFILER: Profiler<Interruptible> = Profiler::new(Interruptible);
static SLOTS: [CpuSlot; 3] = [const { CpuSlot::new() }; 3];

fn control_text() -> String {
    let mut text = String::new();
    PROFILER.write_status(&mut text).unwrap();
    text
}

fn counter(cpu: usize, name: &str) -> u64 {
    let key = format!("cpu.{cpu}.{name} ");
    control_text().lines().find_map(|line| line.strip_prefix(&key)).expect("a counter").parse().unwrap()
}

/// Enables interrupts of a CPU at the registers `at`. A pending interrupt is taken once.
fn interrupts_on(cpu: usize, at: &Registers) -> Option<Outcome> {
    CPU.store(cpu, Ordering::Relaxed);
    REQUESTED[cpu].swap(false, Ordering::AcqRel).then(|| PROFILER.on_nmi(&token(), at))
}

/// Waits with interrupts off until this many more signals have been sent to CPU 1.
fn until_signalled(more: u64) {
    let end = SIGNALS[1].load(Ordering::Acquire) + more;
    let start = Instant::now();
    while SIGNALS[1].load(Ordering::Acquire) < end {
        assert!(start.elapsed() < Duration::from_secs(60), "the sampler sends nothing");
        std::thread::yield_now();
    }
}

/// The stacks of all samples in the ring of CPU 1. Acknowledges the samples.
fn stacks() -> Vec<Vec<u64>> {
    let mut buffer = vec![0; 64 * 1024];
    let daemon = Daemon::claim(&PROFILER, 1);
    let bytes = daemon.stream.read(&mut buffer).unwrap();
    daemon.acknowledge(counter(1, "position-in")).unwrap();
    let records = records(&buffer[..bytes]);
    assert!(records.iter().all(|record| record.kind == Kind::Sample));
    records.iter().map(Record::stack).collect()
}

#[test]
#[cfg_attr(miri, ignore = "plays an interrupt controller in real time; the sanitizers see it")]
fn interrupts_wait_while_they_are_off_and_no_tick_is_forgotten() {
    PROFILER
        .init(|| Setup {
            slots: &SLOTS,
            meta: memory(1024),
            config: Config {
                sampler_cpu: Some(0),
                trigger: Trigger::Ipi,
                hz: 2000,
                tsc_hz: 2_000_000_000,
                text: (text(0), text(256)),
                backoff: false,
                ..Config::new()
            },
        })
        .unwrap();
    PROFILER.register(1, || memory(8192)).unwrap();
    PROFILER.register(2, || memory(8192)).unwrap();
    let at = registers();
    // Before the first tick an interrupt is foreign.
    CPU.store(1, Ordering::Relaxed);
    assert_eq!(PROFILER.on_nmi(&token(), &at), Outcome::Foreign);
    std::thread::spawn(|| PROFILER.run_sampler(0));
    PROFILER.start().unwrap();

    // While interrupts are off nothing is taken. When they are on, there is one interrupt and one sample; the other
    // ticks are coalesced.
    until_signalled(5);
    assert_eq!((counter(1, "taken"), counter(1, "coalesced")), (0, 0));
    assert_eq!(interrupts_on(1, &at), Some(Outcome::Sampled));
    assert!(counter(1, "coalesced") >= 4, "{} coalesced", counter(1, "coalesced"));
    assert_eq!(counter(1, "taken"), 1);
    assert_eq!(stacks(), [[text(30), text(20), text(40)]], "the instruction that turns them on, its callers, no facts");
    // If interrupts are always on, each tick is taken separately, except those for which this thread was too slow.
    let (taken, signals) = (counter(1, "taken"), SIGNALS[1].load(Ordering::Acquire));
    while counter(1, "taken") < taken + 20 {
        interrupts_on(1, &at);
        interrupts_on(2, &at);
    }
    // One signal may already have been pending when the number was read first.
    assert!(SIGNALS[1].load(Ordering::Acquire) >= signals + 19);
    assert!(stacks().iter().all(|stack| *stack == [text(30), text(20), text(40)]));

    // With interrupts off `stop` waits for ticks that are not taken, and then names their CPU.
    until_signalled(1);
    let error = PROFILER.stop().expect_err("ticks are on their way");
    assert!(matches!(error, StateError::Pending { cpu: 1 | 2, ticks: 1.. }), "{error}");
    // A request that was lost is repeated as long as a tick is pending.
    REQUESTED.iter().for_each(|requested| requested.store(false, Ordering::Release));
    for cpu in [1, 2] {
        while counter(cpu, "sent") != counter(cpu, "taken") + counter(cpu, "coalesced") {
            interrupts_on(cpu, &at);
        }
    }
    stop(&PROFILER);
    for cpu in [1, 2] {
        let of = |name: &str| counter(cpu, name);
        assert_eq!(of("sent"), of("taken") + of("coalesced"), "cpu {cpu}");
        assert_eq!(of("taken"), of("recorded") + of("lost-full"), "cpu {cpu}");
        assert_eq!(of("irq-off"), 0, "cpu {cpu}");
        assert_eq!(of("irq-on"), of("recorded"), "cpu {cpu}");
        assert_eq!(of("recorded"), of("delivered") + of("in-ring"), "cpu {cpu}");
    }
    assert!(control_text().lines().any(|line| line == "trigger ipi"));
    let mut meta = vec![0; 8192];
    let bytes = Daemon::claim(&PROFILER, 1).meta.read(&mut meta).unwrap();
    assert!(String::from_utf8_lossy(&meta[..bytes]).contains("trigger ipi"), "the file says the way");
}
