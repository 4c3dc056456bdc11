//! The trigger `published`: a sampler thread reads what a CPU publishes about itself, finds the frame of its kernel
//! entry, and follows the stack that was interrupted.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::format::marker::{Facts, MARKER_PAGE, Marker, PUBLISHED_LEAF, TruncationReason};
use kprof::{
    Config, CpuSet, CpuSlot, ForeignStacks, Kernel, Outcome, Profiler, Published, Publisher, Setup, Task, Trigger,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

struct Publishing;

static READABLE: AtomicBool = AtomicBool::new(true);
/// Whether the core leaves its entry and enters again each time its stack is read.
static LEAVES: AtomicBool = AtomicBool::new(false);
/// How often the sampler has slept.
static SLEEPS: AtomicU64 = AtomicU64::new(0);
/// The counter `taken` of CPU 1 when it was last read.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Words that were read from the stream of CPU 1.
static READ_WORDS: AtomicU64 = AtomicU64::new(0);

// SAFETY: no stack is declared. The text is a static.
unsafe impl Kernel for Publishing {
    fn cpu(&self) -> usize {
        CPU.load(Ordering::Relaxed)
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {
        panic!("nobody is interrupted");
    }
    fn stack_range(&self, _address: u64) -> Option<Range<u64>> {
        None
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 0, idle: false }
    }
    fn foreign_stacks(&self) -> Option<&impl ForeignStacks> {
        Some(self)
    }
    fn sleep_ns(&self, ns: u64) {
        SLEEPS.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

// SAFETY: `read_foreign` reads the static array that `foreign_stack_range` declares, by index.
unsafe impl ForeignStacks for Publishing {
    fn foreign_stack_range(&self, cpu: usize, address: u64) -> Option<Range<u64>> {
        assert_eq!(cpu, 1);
        ArrayKernel.stack_range(address)
    }
    unsafe fn read_foreign(&self, _cpu: usize, address: u64) -> Option<u64> {
        if LEAVES.load(Ordering::Relaxed) {
            let before = cpu().publish(Published::THREAD);
            cpu().publish(before);
        }
        READABLE.load(Ordering::Relaxed).then(|| get((address - stack(0)) / 8))
    }
}

static PROFILER: Profiler<Publishing> = Profiler::new(Publishing);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

/// The publisher of CPU 1.
fn cpu() -> &'static Publisher {
    PROFILER.publisher(1).expect("CPU 1 has a slot")
}

/// The counters of CPU 1 with these names, read at the same time.
fn counters<const N: usize>(names: [&str; N]) -> [u64; N] {
    let mut status = String::new();
    PROFILER.write_status(&mut status).unwrap();
    let mut counts = [None; N];
    for (name, count) in status.lines().filter_map(|line| line.strip_prefix("cpu.1.")?.split_once(' ')) {
        names
            .iter()
            .zip(&mut counts)
            .filter(|(wanted, _)| **wanted == name)
            .for_each(|(_, at)| *at = count.parse().ok());
    }
    counts.map(|count| count.expect("a counter"))
}

/// Runs the sampler until it has read the core's state a few times. Returns the stack of the last sample.
fn sample(task: Task, place: Published) -> Option<Vec<u64>> {
    cpu().publish_task(task);
    cpu().publish(place);
    sample_on()
}

fn sample_on() -> Option<Vec<u64>> {
    PROFILER.start().unwrap();
    let before = TAKEN.load(Ordering::Relaxed);
    while TAKEN.load(Ordering::Relaxed) < before + LOOKS {
        // The sampler sleeps at least once between two ticks.
        let slept = SLEEPS.load(Ordering::Relaxed);
        while SLEEPS.load(Ordering::Relaxed) < slept + 2 * LOOKS {
            std::thread::sleep(Duration::from_millis(1));
        }
        TAKEN.store(counters(["taken"])[0], Ordering::Relaxed);
    }
    stop(&PROFILER);
    let mut buffer = vec![0; 8 * 8192];
    let daemon = Daemon::claim(&PROFILER, 1);
    let bytes = daemon.stream.read(&mut buffer).unwrap();
    let read = bytes as u64 / 8;
    daemon.acknowledge(READ_WORDS.fetch_add(read, Ordering::Relaxed) + read).unwrap();
    records(&buffer[..bytes]).last().map(Record::stack)
}

/// Writes the frame of an entry stub at a word of the stack: rbp, marker, then RIP, CS, RFLAGS, RSP, SS. Returns its
/// address.
fn frame(at: u64, marker: Marker, [rip, cs, rsp, rbp]: [u64; 4]) -> u64 {
    let words = [rbp, marker.encode(), rip, cs, 1 << 9, rsp, 0x10];
    (at..).zip(words).for_each(|(place, word)| set(place, word));
    stack(at)
}

/// Minimum number of ticks in one call of [`sample`].
const LOOKS: u64 = 5;
const USER_RIP: u64 = 0x40_0000;
const USER: [u64; 4] = [USER_RIP, 0x33, 0x7fff_0000, 0];
const TASK: Task = Task { id: 7, idle: false };

#[test]
fn a_core_is_read_without_being_interrupted() {
    PROFILER
        .init(|| Setup {
            slots: &SLOTS,
            meta: memory(1024),
            config: Config {
                trigger: Trigger::Published,
                tsc_hz: 2_000_000_000,
                hz: 2000,
                text: (text(0), text(256)),
                ..Config::new()
            },
        })
        .unwrap();
    PROFILER.register(1, || memory(8192)).unwrap();
    std::thread::spawn(|| PROFILER.run_sampler(0));

    let facts = MARKER_PAGE | u64::from(Facts::PUBLISHED);
    let outer = frame(50, Marker::Syscall, USER);
    let in_syscall = Published::entry(outer);
    let syscall = [PUBLISHED_LEAF, facts, Marker::Syscall.encode(), Marker::User.encode(), USER_RIP];
    assert_eq!(sample(TASK, in_syscall).unwrap(), syscall);

    // The same system call, interrupted: now the interrupt is the published entry, and the interrupted frames follow
    // it. When the interrupt returns, the system call is published again.
    let at = registers();
    let vector = Marker::Interrupt(33);
    let inner = frame(20, vector, [at.pc, 8, stack(28), stack(30)]);
    for (at, word) in [(28, 1), (30, stack(32)), (31, text(20)), (32, 0), (33, text(40))] {
        set(at, word);
    }
    assert_eq!(cpu().publish(Published::entry(inner)), in_syscall);
    let stack_of_it = [PUBLISHED_LEAF, facts, vector.encode(), text(30), text(20), text(40)];
    assert_eq!(sample_on().unwrap(), stack_of_it);
    assert!(counters(["interrupt"]) > [0]);
    assert_eq!(cpu().publish(in_syscall), Published::entry(inner));
    assert_eq!(sample_on().unwrap(), syscall);

    // While the sampler reads, the stack becomes unreadable, or the entry is left and its frame is overwritten. The
    // test does this inside the read function, so every sample is torn.
    for (switch, value) in [(&READABLE, false), (&LEAVES, true)] {
        let [taken, torn] = counters(["taken", "lost-torn"]);
        switch.store(value, Ordering::Relaxed);
        assert_eq!(sample(TASK, in_syscall), None);
        switch.store(!value, Ordering::Relaxed);
        let [taken_now, torn_now] = counters(["taken", "lost-torn"]);
        assert!(taken_now > taken);
        assert_eq!(torn_now - torn, taken_now - taken);
    }

    // If there is no frame, or it is outside of every stack, no address is invented.
    assert_eq!(sample(TASK, Published::THREAD).unwrap(), [PUBLISHED_LEAF, facts]);
    let truncated = |reason| Marker::Truncated(Ok(reason)).encode();
    assert_eq!(
        sample(TASK, Published::entry(stack(64))).unwrap(),
        [PUBLISHED_LEAF, facts, truncated(TruncationReason::Range)]
    );
    set(41, 99);
    assert_eq!(
        sample(TASK, Published::entry(stack(40))).unwrap(),
        [PUBLISHED_LEAF, facts, truncated(TruncationReason::NotText)]
    );

    // User and idle samples are filtered by default. If they are included, a sample of user code has the instruction to
    // which the entry has returned.
    let user = Published::user(outer);
    assert_eq!(sample(TASK, user), None);
    let idle = Task { id: 1, idle: true };
    assert_eq!(sample(idle, Published::THREAD), None);
    assert!(counters(["user", "idle"]).iter().all(|count| *count > 0));
    PROFILER.open_control(1).write(b"include user\ninclude idle").unwrap();
    frame(50, Marker::Syscall, USER);
    assert_eq!(sample(TASK, user).unwrap(), [USER_RIP, facts]);
    // A user address that looks like one of the kernel's words is recorded as 0.
    for forged in [Marker::Syscall.encode(), PUBLISHED_LEAF, 0xffff_ffff_8020_1000] {
        frame(50, Marker::Syscall, [forged, 0x33, 0x7fff_0000, 0]);
        assert_eq!(sample(TASK, user).unwrap(), [0, facts]);
    }
    assert_eq!(sample(idle, Published::THREAD).unwrap(), [PUBLISHED_LEAF, facts | u64::from(Facts::IDLE)]);
    // A core that serves an interrupt is not idle, even if its task is the idle task.
    let in_idle = sample(idle, Published::entry(inner)).unwrap();
    assert_eq!(in_idle[1..3], [facts | u64::from(Facts::IDLE), vector.encode()]);

    // With this trigger every hardware NMI is foreign, because only the sampler writes to the rings.
    let before = counters(["spurious", "foreign"]);
    SLOTS[1].raise_tick();
    assert_eq!(PROFILER.on_nmi(&token(), &registers()), Outcome::Foreign);
    // The tick is left to the sampler, which takes it within some milliseconds, also while it is stopped.
    let [sent, taken, coalesced, pending] = counters(["sent", "taken", "coalesced", "pending"]);
    assert_eq!(sent, taken + coalesced + pending);
    sample(TASK, user);
    assert_eq!(counters(["spurious", "foreign"]), before);

    let [sent, taken, coalesced] = counters(["sent", "taken", "coalesced"]);
    assert_eq!(sent, taken + coalesced);
    let [user, idle, torn, full, recorded] = counters(["user", "idle", "lost-torn", "lost-full", "recorded"]);
    assert_eq!(taken, user + idle + torn + full + recorded);
}
