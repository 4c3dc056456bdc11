//! A storm of points: NMIs and interrupts are signals, which come at any instruction of the threads that are CPUs, also
//! inside of a handler. The sampler, a daemon, a reader of copies, somebody who looks, and somebody who changes
//! everything run beside them. At the end the account balances, and every hit is in the accounts once, with its weight.
#![cfg(all(feature = "profiling", target_os = "linux"))]

mod array_kernel;
mod storm;

use array_kernel::*;
use kprof::format::record::Kind;
use kprof::{Config, ControlFile, CpuSlot, Outcome, Setup, StreamFile, Unit};
use kprof_events::{EventSlot, Point, PointCounts};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use storm::Random;

/// CPU 0 is that of the sampler, and of all who are no CPU.
const CPUS: usize = 4;
/// NMIs inside of NMIs: more are ignored, because each takes some of the thread's stack.
const MOST_NESTED: u64 = 20;

const NAMES: [&str; 2] = ["storm.thread", "storm.interrupt"];
static POINTS: [Point; 2] = [Point::new(NAMES[0], Unit::Bytes), Point::new(NAMES[1], Unit::Count)];
static HITS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static WEIGHTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static OUTCOMES: [[AtomicU64; 5]; CPUS] = [const { [const { AtomicU64::new(0) }; 5] }; CPUS];
/// The threads that are CPUs.
static THREADS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
static MACHINE: AtomicUsize = AtomicUsize::new(0);
/// How often each CPU has slept after its last hit. A signal that is pending comes before the next time.
static ROUNDS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
/// All hits were made; no more commands come; nobody needs NMIs any more.
static IS_HIT: AtomicBool = AtomicBool::new(false);
static IS_OVER: AtomicBool = AtomicBool::new(false);

thread_local!(static NESTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

fn both() -> &'static Both {
    // SAFETY: the address of a `&'static Both`, stored before the first thread begins.
    unsafe { &*std::ptr::with_exposed_provenance::<Both>(MACHINE.load(Ordering::SeqCst)) }
}

fn hit(number: usize, weight: u64) {
    both().events.hit_with(&POINTS[number], weight, [weight]);
    HITS[number].fetch_add(1, Ordering::SeqCst);
    WEIGHTS[number].fetch_add(weight, Ordering::SeqCst);
}

extern "C" fn on_nmi(_: i32) {
    let nested = NESTED.get();
    if nested < MOST_NESTED {
        NESTED.set(nested + 1);
        let outcome = both().on_nmi(&token(), &registers());
        OUTCOMES[this_cpu()][outcome as usize].fetch_add(1, Ordering::SeqCst);
        NESTED.set(nested);
    }
}

extern "C" fn on_interrupt(_: i32) {
    hit(1, 3);
}

fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: the handlers take no lock and allocate nothing, so they may come at any instruction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags | libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Signals a random CPU.
fn send(random: &mut Random, signal: i32) {
    let thread = THREADS[1 + random.below(CPUS as u64 - 1) as usize].load(Ordering::SeqCst);
    if thread != 0 {
        // SAFETY: the threads of the CPUs end after those that send signals.
        unsafe { libc::pthread_kill(thread as libc::pthread_t, signal) };
    }
}

/// Waits until every signal that was sent has come.
fn wait_for_signals() {
    let rounds = |cpu: usize| ROUNDS[cpu].load(Ordering::SeqCst);
    for cpu in 1..CPUS {
        let before = rounds(cpu);
        while rounds(cpu) < before + 2 {
            std::thread::yield_now();
        }
    }
}

/// What the accounts say of each point: hits and weight.
type Totals = BTreeMap<String, (u64, u64)>;

/// Reads a stream once, and acknowledges it where that is allowed. The records lie one after the other.
fn drain(ctl: &ControlFile, file: &StreamFile, name: &str, last: &mut Option<u64>) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 18];
    let Ok(bytes) = file.read(&mut buffer) else { return Vec::new() };
    buffer.truncate(bytes);
    for record in records(&buffer) {
        match record.kind {
            // A running recorder replaces records, and is read again and again.
            Kind::SnapshotSample => *last = None,
            kind => {
                // Between two reads a recorder may have replaced samples, which count as overwritten.
                let may_jump = kind == Kind::Sample;
                let goes_on = last.is_none_or(|last| record.position() == last || may_jump && record.position() > last);
                assert!(goes_on, "{name}: a record at {}, after one up to {last:?}", record.position());
                *last = Some(record.end());
            }
        }
        if matches!(record.kind, Kind::Sample | Kind::SnapshotSample) {
            check_sample(&record);
        }
    }
    if let Some(end) = last.filter(|_| bytes > 0)
        && ctl.write(format!("ack {name} {end}").as_bytes()).is_err()
    {
        // In mode overwrite nothing is acknowledged; a change of mode begins anew with the oldest record.
        *last = None;
    }
    buffer
}

/// A sample has the stack that every NMI finds, or the beginning of it.
fn check_sample(record: &Record) {
    assert_eq!(record.sample().task, 7);
    let is_marker = |word: &u64| *word >= 0xffff_ffff_ffff_f000;
    let addresses: Vec<u64> = record.stack().into_iter().filter(|word| !is_marker(word)).collect();
    assert!([text(30), text(20), text(40)].starts_with(&addresses), "{record:x?}");
}

/// The daemon: it keeps its claim, so it reads every account once.
fn daemon() -> Totals {
    let (both, mut totals) = (both(), Totals::new());
    let ctl = both.open_control(1);
    while ctl.write(b"protocol 1").is_err() {}
    let cpus = (1..CPUS).map(|cpu| (cpu.to_string(), both.open_stream(cpu, 1).unwrap()));
    let events = (0..CPUS).map(|cpu| (format!("event-{cpu}"), both.open_events(cpu, 1).unwrap()));
    let mut streams: Vec<_> = cpus.chain(events).map(|(name, file)| (name, file, None)).collect();
    let (meta, mut last) = (both.open_meta(1), None);
    let mut read = |flushes: bool| {
        if flushes {
            ctl.write(b"flush").unwrap();
        }
        let bytes = drain(&ctl, &meta, "meta", &mut last);
        each_account(&bytes, |account| {
            let (hits, weight) = totals.entry(account.point.to_string()).or_default();
            *weight += account.weight;
            for (_, count) in account.counters.in_text().filter(|(name, _)| COUNTERS.contains(name)) {
                *hits += count;
            }
        });
        bytes.len()
    };
    while !IS_OVER.load(Ordering::SeqCst) {
        read(false);
        streams.iter_mut().for_each(|(name, file, last)| drop(drain(&ctl, file, name, last)));
    }
    while read(true) > 0 || control(both.profiler)["meta.kept"] != "0" {}
    totals
}

/// The counters of which the hits of an account are the sum.
const COUNTERS: [&str; 3] = ["recorded", "filtered", "lost"];

/// A reader of copies that comes and goes: what it gets is whole.
fn copier(mut random: Random) {
    while !IS_HIT.load(Ordering::SeqCst) {
        let ctl = both().open_control(2);
        // On a busy host the change that is in progress may take too long.
        if ctl.write(b"copy 1").is_err() {
            continue;
        }
        let files: Vec<_> = (1..CPUS).map(|cpu| both().open_stream(cpu, 2).unwrap()).collect();
        let (meta, mut buffer) = (both().open_meta(2), vec![0; 1 << 14]);
        for _ in 0..random.below(50) {
            for file in files.iter().chain([&meta]) {
                let bytes = file.read(&mut buffer).unwrap_or(0);
                let samples = records(&buffer[..bytes]).into_iter().filter(|record| record.kind == Kind::Sample);
                samples.for_each(|record| check_sample(&record));
            }
        }
    }
}

/// Somebody who changes everything, through files with and without a lease, which come and go.
fn changes(mut random: Random) {
    let mut files = vec![both().open_control(3)];
    while !IS_HIT.load(Ordering::SeqCst) {
        let line = match random.below(20) {
            0 => "stop".into(),
            1 => "mode overwrite\nstart".into(),
            2 => "mode drop\nstart".into(),
            3 => "freeze".into(),
            4 => "thaw".into(),
            5 => format!("depth {}", 1 + random.below(250)),
            6 => format!("{} user", ["include", "exclude"][random.below(2) as usize]),
            7 => format!("hz {} force", 1 + random.below(50_000)),
            8 => format!("cpus {}", ["1,2", "all", "3"][random.below(3) as usize]),
            9 => "event storm.* record".into(),
            10 => format!("event storm.* every {}", 1 + random.below(9)),
            11 => format!("event storm.thread by-weight {}", 1 + random.below(9000)),
            12 => "event storm.* count".into(),
            13 => "flush".into(),
            14 => "mark here".into(),
            15 => "lease\nhz 3000\nevent storm.interrupt record\nstart".into(),
            16 => format!("lockup {}", 20 + random.below(50)),
            17 => format!("seed {}", random.below(9)),
            18 => "nonsense".into(),
            _ => "start\nhz 20000".into(),
        };
        // Whether it is refused depends on what the others do.
        let at = random.below(files.len() as u64) as usize;
        let _ = files[at].write(line.as_bytes());
        match random.below(10) {
            0 => files.push(both().open_control(3)),
            1 if files.len() > 1 => drop(files.swap_remove(at)),
            2 => drop(both().export_last(&mut String::new(), 10)),
            _ => std::thread::sleep(Duration::from_micros(random.below(500))),
        }
    }
}

/// The identities of the account, which hold once sampling has stopped, and what the handler has returned.
fn balance(status: &HashMap<String, String>) {
    for cpu in 1..CPUS {
        let of = |name: &str| status[&format!("cpu.{cpu}.{name}")].parse::<u64>().unwrap();
        let lost = of("lost-full") + of("lost-nested") + of("lost-torn");
        assert_eq!((of("sent"), of("pending")), (of("taken") + of("coalesced"), 0), "{cpu}: {status:?}");
        assert_eq!(of("taken"), of("user") + of("idle") + lost + of("recorded"), "{cpu}: {status:?}");
        assert_eq!(of("recorded"), of("delivered") + of("overwritten") + of("in-ring"), "{cpu}: {status:?}");
        assert!(of("spurious") <= of("coalesced") + of("resent"), "{cpu}: {status:?}");
        let outcome = |which: Outcome| OUTCOMES[cpu][which as usize].load(Ordering::SeqCst);
        let returned = [Outcome::Sampled, Outcome::Lost, Outcome::Spurious, Outcome::Foreign].map(outcome);
        assert_eq!(returned, [of("recorded"), lost, of("spurious"), of("foreign")], "{cpu}: {status:?}");
    }
}

#[test]
fn every_hit_is_counted_once_and_the_account_balances_whatever_interrupts_what() {
    let (hits, seed) = storm::begin("points_storm");
    let both = Both::new();
    MACHINE.store(std::ptr::from_ref(both).expose_provenance(), Ordering::SeqCst);
    let slots = Vec::leak((0..CPUS).map(|_| CpuSlot::new()).collect());
    let event_slots = Vec::leak((0..CPUS).map(|_| EventSlot::new()).collect());
    let config = Config { tsc_hz: 2_000_000_000, text: (text(0), text(256)), lockup_ms: 50, ..Config::new() };
    both.events.init(|| event_slots, || Setup { slots, meta: memory(8192), config }).unwrap();
    for cpu in 0..CPUS {
        both.events.register_points(cpu, || Vec::leak((0..4).map(|_| PointCounts::new()).collect())).unwrap();
        both.events.register_events(cpu, || memory(2048)).unwrap();
    }
    (1..CPUS).for_each(|cpu| both.register(cpu, || memory(2048)).unwrap());
    // The first hit of a point takes a lock with interrupts off, which a signal does not respect. It is not counted.
    POINTS.iter().for_each(|point| both.events.hit(point, 0));
    both.open_control(3).write(b"event storm.* count\nstart").unwrap();
    registers();
    handle(libc::SIGUSR1, on_nmi, libc::SA_NODEFER);
    handle(libc::SIGUSR2, on_interrupt, 0);
    std::thread::spawn(|| {
        run_on_own_cpu(0);
        both.run_sampler(0);
    });
    let totals = std::thread::scope(|scope| {
        let _ends = [EndsOthers(&IS_HIT), EndsOthers(&IS_OVER)];
        let daemon = scope.spawn(|| {
            run_on_own_cpu(0);
            daemon()
        });
        for (cpu, own) in THREADS.iter().enumerate().skip(1) {
            std::thread::spawn(move || {
                run_on_own_cpu(cpu);
                // SAFETY: the number of this thread.
                own.store(unsafe { libc::pthread_self() } as u64, Ordering::SeqCst);
                let mut random = Random::new(seed, cpu as u64);
                while HITS.iter().map(|hits| hits.load(Ordering::SeqCst)).sum::<u64>() < hits {
                    hit(0, random.below(5000));
                }
                IS_HIT.store(true, Ordering::SeqCst);
                // The number must stay that of a thread.
                loop {
                    ROUNDS[cpu].fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let interrupts = scope.spawn(move || {
            let mut random = Random::new(seed, 10);
            while !IS_HIT.load(Ordering::SeqCst) {
                send(&mut random, libc::SIGUSR2);
                std::thread::sleep(Duration::from_micros(random.below(200)));
            }
        });
        scope.spawn(move || {
            // In bursts: they take ticks, also inside of a handler.
            let mut random = Random::new(seed, 11);
            while !IS_OVER.load(Ordering::SeqCst) {
                (0..random.below(40)).for_each(|_| send(&mut random, libc::SIGUSR1));
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
        });
        let copies = scope.spawn(move || copier(Random::new(seed, 12)));
        let changer = scope.spawn(move || changes(Random::new(seed, 13)));
        while !changer.is_finished() || !copies.is_finished() || !interrupts.is_finished() {
            assert!(control(both.profiler).contains_key("cpu.1.sent"));
            assert!(!daemon.is_finished(), "the daemon has found something wrong");
        }
        wait_for_signals();
        // Every CPU is online and takes its last tick.
        stop(both.profiler);
        IS_OVER.store(true, Ordering::SeqCst);
        daemon.join().unwrap()
    });
    wait_for_signals();
    balance(&control(both.profiler));
    for ((point, hits), weight) in NAMES.iter().zip(&HITS).zip(&WEIGHTS) {
        let truth = (hits.load(Ordering::SeqCst), weight.load(Ordering::SeqCst));
        assert_eq!(totals[*point], truth, "{point}");
    }
    println!("points_storm: {totals:?}, NMIs by outcome: {OUTCOMES:?}");
}
