//! The account with real threads: a sampler, two CPUs that take NMIs, a daemon, a recorder that reads copies, raw
//! readers, exports, and an administrator who changes every setting and takes CPUs offline. When all have ended, the
//! account balances, each record was delivered once, and copied once or counted as lost for the recorder.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::{EndsOthers, Record, memory, records, text, token, words};
use core::ops::Range;
use kprof::format::record::Kind;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Profiler, Registers, Setup, Task};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A kernel in which each thread is one CPU, or no CPU.
struct Threads;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// Whether an NMI is latched for each CPU. As in hardware, only one can be.
static LATCHED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
static STACKS: [[AtomicU64; 64]; 3] = [const { [const { AtomicU64::new(0) }; 64] }; 3];

fn stack(cpu: usize, word: u64) -> u64 {
    STACKS[cpu].as_ptr().expose_provenance() as u64 + 8 * word
}

// SAFETY: each thread that takes NMIs has its own CPU number and its own stack. The text is a static array.
unsafe impl Kernel for Threads {
    fn cpu(&self) -> usize {
        CPU.get()
    }
    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(|cpu| LATCHED[cpu].store(true, Ordering::SeqCst));
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        let range = stack(CPU.get(), 0)..stack(CPU.get(), 64);
        range.contains(&address).then_some(range)
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: CPU.get() as u64, idle: false }
    }
    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns.min(200_000)));
    }
}

static PROFILER: Profiler<Threads> = Profiler::new(Threads);
static SLOTS: [CpuSlot; 3] = [const { CpuSlot::new() }; 3];
static END: AtomicBool = AtomicBool::new(false);
/// Whether each CPU is online.
static ONLINE: [AtomicBool; 3] = [const { AtomicBool::new(true) }; 3];
/// Records delivered, counted by the threads that received them.
static DELIVERED: AtomicU64 = AtomicU64::new(0);
/// Held during an acknowledgement or an export. The thread reads the counter `delivered` before and after it; the
/// difference is its own only if no other thread delivers records in between.
static ACCOUNTING: Mutex<()> = Mutex::new(());

/// Random numbers from a seed; each thread has its own.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Runs as one CPU, which takes its NMIs until the end of the test.
fn cpu(number: usize) {
    CPU.set(number);
    STACKS[number][4].store(stack(number, 8), Ordering::Relaxed);
    STACKS[number][5].store(text(20), Ordering::Relaxed);
    STACKS[number][9].store(text(40), Ordering::Relaxed);
    STACKS[number][2].store(1, Ordering::Relaxed);
    let at = Registers {
        pc: text(30),
        sp: stack(number, 2),
        fp: stack(number, 4),
        interrupts_on: true,
        ..Registers::default()
    };
    let token = token();
    while !END.load(Ordering::SeqCst) {
        if ONLINE[number].load(Ordering::SeqCst) && LATCHED[number].swap(false, Ordering::SeqCst) {
            PROFILER.on_nmi(&token, &at);
        } else {
            std::thread::yield_now();
        }
    }
}

/// Claims, reads, acknowledges and closes its files, again and again. No record that it has acknowledged is read again.
fn daemon(mut dice: Dice) {
    let _ends = EndsOthers(&END);
    let (mut acknowledged, mut buffer) = (HashSet::new(), vec![0; 64 * 1024]);
    while !END.load(Ordering::SeqCst) {
        let ctl = PROFILER.open_control(10);
        if ctl.write(b"protocol 1").is_err() {
            std::thread::yield_now();
            continue;
        }
        for _ in 0..dice.below(20) {
            let number = 1 + dice.below(2) as usize;
            let stream = PROFILER.open_stream(number, 10).unwrap();
            let Ok(bytes) = stream.read(&mut buffer) else { continue };
            let mut positions = Vec::new();
            for record in records(&buffer[..bytes]).iter().filter(|record| record.kind == Kind::Sample) {
                let place = (number, record.position());
                assert!(!acknowledged.contains(&place), "delivered again: {}", record.position());
                positions.push((place, record.end()));
            }
            let Some((_, end)) = positions.last() else { continue };
            let _one = ACCOUNTING.lock().unwrap();
            let before = delivered(number);
            if ctl.write(format!("ack {number} {end}").as_bytes()).is_ok() {
                // Only the claimant can take records out of a claimed stream, so the difference is what this ack freed.
                DELIVERED.fetch_add(delivered(number) - before, Ordering::SeqCst);
                acknowledged.extend(positions.into_iter().map(|(position, _)| position));
            }
        }
    }
}

fn status() -> String {
    let mut text = String::new();
    PROFILER.write_status(&mut text).unwrap();
    text
}

fn counter(status: &str, number: usize, name: &str) -> u64 {
    let key = format!("cpu.{number}.{name} ");
    status.lines().find_map(|line| line.strip_prefix(&key)).expect("a counter").parse().unwrap()
}

fn delivered(number: usize) -> u64 {
    counter(&status(), number, "delivered")
}

/// Reads raw words and writes exports while no process has claimed the streams.
fn unclaimed(mut dice: Dice) {
    let _ends = EndsOthers(&END);
    let mut buffer = vec![0; 4096];
    while !END.load(Ordering::SeqCst) {
        if dice.below(8) == 0 {
            let _one = ACCOUNTING.lock().unwrap();
            let before = delivered(1) + delivered(2);
            // An export that is refused in the middle has delivered what it had written until then.
            let _ = PROFILER.export(&mut String::new());
            DELIVERED.fetch_add(delivered(1) + delivered(2) - before, Ordering::SeqCst);
        }
        let stream = PROFILER.open_stream(1 + dice.below(2) as usize, 20).unwrap();
        if let Ok(bytes) = stream.read(&mut buffer) {
            let (read, mut at, mut records) = (words(&buffer[..bytes]), 0, 0);
            while at < read.len() {
                assert_eq!(read[at] & !0xff, 0xfedf_ac00, "raw words for who has no claim");
                at += (read[at] & 0xff) as usize;
                records += 1;
            }
            DELIVERED.fetch_add(records, Ordering::SeqCst);
        }
        std::thread::yield_now();
    }
}

/// Reads copies. From time to time it says `copy 0`, and then `copy 1` again. Returns how many records it has copied.
fn recorder(mut dice: Dice) -> u64 {
    let _ends = EndsOthers(&END);
    let (mut buffer, mut all) = (vec![0; 32 * 1024], 0);
    while !END.load(Ordering::SeqCst) {
        let ctl = PROFILER.open_control(40);
        // It is refused if the handlers run at every attempt.
        if ctl.write(b"copy 1").is_err() {
            continue;
        }
        let account = |cpu, name| {
            let mut text = String::new();
            ctl.read(&mut text).unwrap();
            counter(&text, cpu, name)
        };
        let streams = [1, 2].map(|cpu| PROFILER.open_stream(cpu, 40).unwrap());
        let before = [1, 2].map(|cpu| account(cpu, "delivered"));
        let (mut copied, mut ends) = ([0; 2], [1, 2].map(|cpu| account(cpu, "position-out")));
        for _ in 0..dice.below(2000) {
            let cpu = dice.below(2) as usize;
            // A read that is overtaken at every attempt gives nothing.
            let Ok(bytes) = streams[cpu].read(&mut buffer) else { continue };
            let read = records(&buffer[..bytes]);
            if let Some(first) = read.first().map(Record::position) {
                assert!(first >= ends[cpu], "copied again: {first}");
                ends[cpu] = first;
            }
            for record in read {
                assert_eq!((record.kind, record.position()), (Kind::Sample, ends[cpu]), "no gap within a read");
                ends[cpu] = record.end();
                copied[cpu] += 1;
            }
            if dice.below(50) == 0 {
                std::thread::sleep(Duration::from_micros(dice.below(20_000)));
            }
        }
        for cpu in [1, 2] {
            let delivered = account(cpu, "delivered");
            assert_eq!(delivered - before[cpu - 1], copied[cpu - 1], "cpu {cpu}");
            // Sampling goes on, so this is of a later moment: what was overtaken counts once.
            assert!(delivered + account(cpu, "in-ring") <= account(cpu, "recorded"), "cpu {cpu}");
        }
        all += copied.iter().sum::<u64>();
    }
    all
}

fn has_enough_happened() -> bool {
    let status = status();
    [1, 2].iter().all(|cpu| counter(&status, *cpu, "recorded") > 100 && counter(&status, *cpu, "delivered") > 0)
}

/// Changes every setting, starts and stops sampling, and takes CPUs offline.
fn administrator(mut dice: Dice, rounds: u32) {
    let commands = [
        "start",
        "stop",
        "freeze",
        "thaw",
        "mode drop",
        "mode overwrite",
        "cpus 1",
        "cpus 1,2",
        "depth 5",
        "depth 64",
        "lease",
        "hz 20000",
        "hz 5000",
        "stop\nmode drop\nstart",
        "seed 9\nmark half\nack 1 8",
        "mode overwrite\nfreeze",
    ];
    let mut file = PROFILER.open_control(30);
    // On a busy machine the other threads get little time, so this one continues until they have done enough.
    let mut round = 0;
    while round < rounds || (round < 100 * rounds && !has_enough_happened()) {
        round += 1;
        let command = commands[dice.below(commands.len() as u64) as usize];
        let _ = file.write(command.as_bytes());
        if dice.below(10) == 0 {
            file = PROFILER.open_control(30);
        }
        if dice.below(20) == 0 {
            let number = 1 + dice.below(2) as usize;
            ONLINE[number].store(false, Ordering::SeqCst);
            PROFILER.offline(number);
            std::thread::yield_now();
            PROFILER.register(number, || unreachable!("it has its ring")).unwrap();
            ONLINE[number].store(true, Ordering::SeqCst);
        }
        std::thread::sleep(Duration::from_micros(dice.below(500)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "eight threads in real time; the ownership tests run under Miri")]
fn whatever_happens_beside_each_other_the_account_balances_and_each_record_comes_once() {
    let rounds = std::env::var("KPROF_ROUNDS").map_or(3000, |rounds| rounds.parse().unwrap());
    let config = Config { tsc_hz: 2_000_000_000, hz: 20_000, text: (text(0), text(256)), ..Config::new() };
    PROFILER.init(|| Setup { slots: &SLOTS, meta: memory(4096), config }).unwrap();
    for number in [1, 2] {
        PROFILER.register(number, || memory(2048)).unwrap();
    }
    std::thread::spawn(|| PROFILER.run_sampler(0));
    std::thread::scope(|scope| {
        let cpus = [1, 2].map(|number| scope.spawn(move || cpu(number)));
        let others = [scope.spawn(|| daemon(Dice(1))), scope.spawn(|| unclaimed(Dice(2)))];
        let recorder = scope.spawn(|| recorder(Dice(4)));
        let ends = EndsOthers(&END);
        PROFILER.start().unwrap();
        administrator(Dice(3), rounds);
        // All CPUs are online, so sampling can end and every tick is taken.
        let stop = || PROFILER.stop().inspect_err(|_| std::thread::sleep(Duration::from_millis(10)));
        // A `stop` does not wait for an export but is refused, so it is tried again.
        let stopped = (0..100).any(|_| stop().is_ok());
        assert!(stopped, "{:?}\n{}", stop(), status());
        drop(ends);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(recorder.join().unwrap() > 0, "something was copied");
        cpus.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(has_enough_happened(), "{}", status());
    let status = status();
    let mut total = 0;
    for number in [1, 2] {
        let count = |name: &str| counter(&status, number, name);
        assert_eq!(count("pending"), 0, "{status}");
        assert_eq!(count("sent"), count("taken") + count("coalesced"), "{status}");
        let lost: u64 = ["lost-full", "lost-nested", "lost-torn"].map(count).iter().sum();
        assert_eq!(count("taken"), count("user") + count("idle") + lost + count("recorded"), "{status}");
        assert_eq!(count("recorded"), count("delivered") + count("overwritten") + count("in-ring"), "{status}");
        total += count("delivered");
    }
    assert_eq!(DELIVERED.load(Ordering::SeqCst), total, "each record was delivered once");
    // An export takes the remaining records out of the rings.
    PROFILER.open_control(1).write(b"mode drop").unwrap();
    PROFILER.export(&mut String::new()).unwrap();
    assert!([1, 2].into_iter().all(|number| counter(&self::status(), number, "in-ring") == 0));
}
