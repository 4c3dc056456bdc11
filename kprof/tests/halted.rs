//! A halted CPU is not woken for a tick; the sampler counts the tick as idle. A CPU that is not halted is signalled,
//! and with `include idle` every CPU is.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Profiler, Setup, StreamFile, Task};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Two CPUs whose handler runs at once when they are signalled; the second may be halted.
struct Halting;

static HALTED: AtomicBool = AtomicBool::new(true);
static SIGNALLED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

// SAFETY: handlers run one after the other on the sampler thread, each with the CPU number that was set for it. Stack
// and text are `ArrayKernel`'s statics.
unsafe impl Kernel for Halting {
    fn cpu(&self) -> usize {
        ArrayKernel.cpu()
    }
    fn signal(&self, cpus: &CpuSet<'_>) {
        for cpu in cpus.iter() {
            SIGNALLED[cpu].fetch_add(1, Ordering::Relaxed);
            CPU.store(cpu, Ordering::Relaxed);
            PROFILER.on_nmi(&token(), &registers());
        }
    }
    fn is_halted(&self, cpu: usize) -> bool {
        cpu == 2 && HALTED.load(Ordering::Relaxed)
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        ArrayKernel.stack_range(address)
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 7, idle: CPU.load(Ordering::Relaxed) == 2 }
    }
    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns.min(1_000_000)));
    }
}

static PROFILER: Profiler<Halting> = Profiler::new(Halting);
static SLOTS: [CpuSlot; 3] = [const { CpuSlot::new() }; 3];

/// Runs the sampler until CPU 1 has been signalled a few more times.
fn sample() {
    let before = SIGNALLED[1].load(Ordering::Relaxed);
    PROFILER.start().unwrap();
    while SIGNALLED[1].load(Ordering::Relaxed) < before + 5 {
        std::thread::sleep(Duration::from_millis(1));
    }
    stop(&PROFILER);
}

/// The numbers of sent, taken, idle, and recorded idle ticks of the second CPU. Also checks that every tick of both
/// CPUs is accounted for.
fn second() -> [u64; 4] {
    let status = control(&PROFILER);
    let counter = |cpu: usize, name: &str| status[&format!("cpu.{cpu}.{name}")].parse::<u64>().unwrap();
    for cpu in [1, 2] {
        assert_eq!(counter(cpu, "sent"), counter(cpu, "taken"));
        assert_eq!(counter(cpu, "taken"), counter(cpu, "idle") + counter(cpu, "recorded") + counter(cpu, "lost-full"));
    }
    assert_eq!(counter(1, "sent"), counter(2, "sent"), "both get every tick");
    ["sent", "taken", "idle", "recorded-idle"].map(|name| counter(2, name))
}

#[test]
fn a_halted_cpu_sleeps_on_and_its_ticks_are_idle() {
    PROFILER
        .init(|| Setup {
            slots: &SLOTS,
            meta: memory(1024),
            config: Config { sampler_cpu: Some(0), tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..Config::new() },
        })
        .unwrap();
    for cpu in [1, 2] {
        PROFILER.register(cpu, || memory(1024)).unwrap();
    }
    std::thread::spawn(|| PROFILER.run_sampler(0));

    sample();
    let [sent, taken, idle, kept] = second();
    assert!(sent > 0 && sent == taken && taken == idle && kept == 0);
    assert_eq!(SIGNALLED[2].load(Ordering::Relaxed), 0);

    // If it is not halted it is signalled. The ticks that its handler filters are added to those that were never sent.
    HALTED.store(false, Ordering::Relaxed);
    sample();
    let [sent_awake, _, idle_awake, _] = second();
    assert_eq!(idle_awake - idle, SIGNALLED[2].load(Ordering::Relaxed));
    assert_eq!(sent_awake, idle_awake);

    // With `include idle` a halted CPU is woken, because its stack is wanted.
    HALTED.store(true, Ordering::Relaxed);
    PROFILER.open_control(1).write(b"include idle").unwrap();
    sample();
    let [.., idle_kept, kept] = second();
    assert_eq!(idle_kept, idle_awake);
    assert!(kept > 0);

    // Both CPUs had the same ticks, so the numbers in their newest samples are the same, however long one was halted.
    let daemon = Daemon::claim(&PROFILER, 1);
    let second = PROFILER.open_stream(2, 1).unwrap();
    let newest = |stream: &StreamFile| {
        let mut buffer = [0; 8 * 1024];
        let bytes = stream.read(&mut buffer).unwrap();
        let records = words(&buffer[..bytes]);
        let mut rest = &records[..];
        let mut number = 0;
        while let Some(header) = rest.first() {
            number = rest[2];
            rest = &rest[(header & 0xffff) as usize..];
        }
        number
    };
    let [sent, ..] = self::second();
    assert_eq!([newest(&daemon.stream), newest(&second)], [sent; 2]);
}
