//! Compares the account with a model: two CPUs make random steps. After every step the three identities hold, each
//! record was delivered at most once, a reader knows the name of every living task, and no refused command has changed
//! anything. The same identities hold for a second process that reads copies: it gets each record once, or the record
//! is counted as lost for it.
//!
//! `KPROF_CASES=25000 cargo test --release -p kprof-events --features profiling --test account` runs ten million steps.
#![cfg(feature = "profiling")]

mod array_kernel;
#[path = "account/recorder.rs"]
mod recorder;

use array_kernel::{IDLE, memory, records, registers, set, stack, text, token, words};
use core::ops::Range;
use kprof::format::marker::Marker;
use kprof::format::record::Kind;
use kprof::{
    Config, ControlFile, CpuSet, CpuSlot, Kernel, Outcome, Profiler, Registers, Setup, StateError, StreamFile, Task,
};
use proptest::prelude::*;
use recorder::Recorder;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A kernel whose handler may be interrupted by another NMI, and whose tasks start and end.
struct Model;

static CPU: AtomicUsize = AtomicUsize::new(1);
static TASK: AtomicU64 = AtomicU64::new(0);
/// Whether another NMI comes inside the next handler.
static NESTS: AtomicBool = AtomicBool::new(false);
/// The outcome of that nested NMI.
static NESTED: Mutex<Option<Outcome>> = Mutex::new(None);
static PROFILER: Mutex<Option<&'static Profiler<Model>>> = Mutex::new(None);

// SAFETY: one thread plays all CPUs, on one stack. Stack and text are static arrays.
unsafe impl Kernel for Model {
    fn cpu(&self) -> usize {
        CPU.load(Ordering::Relaxed)
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        (stack(0)..stack(64)).contains(&address).then(|| stack(0)..stack(64))
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        if NESTS.swap(false, Ordering::Relaxed) {
            let profiler = PROFILER.lock().unwrap().expect("set");
            *NESTED.lock().unwrap() = Some(profiler.on_nmi(&token(), &registers()));
        }
        Task { id: TASK.load(Ordering::Relaxed), idle: IDLE.load(Ordering::Relaxed) }
    }
    fn sleep_ns(&self, _: u64) {}
}

/// One step: its kind, and a byte that chooses a variant.
type Step = (u8, u8);

/// What the test knows of one CPU.
#[derive(Default)]
struct Cpu {
    sent: u64,
    nmis: [u64; 5],
    is_offline: bool,
    /// Records that any reader, raw or acknowledging, or an export has taken out of the ring.
    delivered: u64,
    /// Positions that were acknowledged, and those that were read and not acknowledged yet.
    acknowledged: BTreeSet<u64>,
    read: Vec<(u64, u64)>,
}

/// The machine and what the test knows of it.
struct Life {
    profiler: &'static Profiler<Model>,
    slots: &'static [CpuSlot; 3],
    cpus: [Cpu; 3],
    ctl: Option<ControlFile>,
    streams: Vec<StreamFile>,
    other: ControlFile,
    recorder: Option<Recorder>,
    living: BTreeSet<u64>,
    known: BTreeSet<u64>,
    next_task: u64,
    /// The status after the last step.
    last: String,
}

fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Sampled => 0,
        Outcome::Filtered => 1,
        Outcome::Lost => 2,
        Outcome::Spurious => 3,
        Outcome::Foreign => 4,
    }
}

/// A status text is shorter.
const STATUS_BYTES: usize = 4096;

impl Life {
    fn begin() -> Self {
        let profiler: &'static Profiler<Model> = Box::leak(Box::new(Profiler::new(Model)));
        let slots: &'static [CpuSlot; 3] = Box::leak(Box::new([const { CpuSlot::new() }; 3]));
        *PROFILER.lock().unwrap() = Some(profiler);
        let config = Config { tsc_hz: 1_000_000, text: (text(0), text(256)), running: true, ..Config::new() };
        profiler.init(|| Setup { slots, meta: memory(1024), config }).unwrap();
        // Only the larger ring keeps records for the reader of copies after they were freed.
        [1, 2].into_iter().for_each(|cpu| profiler.register(cpu, || memory(1024 * cpu)).unwrap());
        let mut life = Self {
            profiler,
            slots,
            cpus: Default::default(),
            ctl: None,
            streams: Vec::new(),
            other: profiler.open_control(30),
            recorder: None,
            living: BTreeSet::new(),
            known: BTreeSet::new(),
            next_task: 0,
            last: String::new(),
        };
        life.new_task();
        life.last = life.status();
        life
    }

    fn status(&self) -> String {
        let mut text = String::with_capacity(STATUS_BYTES);
        self.profiler.write_status(&mut text).unwrap();
        text
    }

    fn new_task(&mut self) {
        self.next_task += 1;
        let id = self.next_task;
        TASK.store(id, Ordering::Relaxed);
        self.living.insert(id);
        self.profiler.task_name(id, "a task");
        if self.living.len() > 8 {
            self.living.pop_first();
        }
    }

    fn is_running(&self) -> bool {
        self.last.contains("state running\n")
    }

    fn tick(&mut self, variant: u8) -> Result<(), TestCaseError> {
        let cpu = 1 + usize::from(variant & 1);
        CPU.store(cpu, Ordering::Relaxed);
        let numbered = if self.is_running() && !self.cpus[cpu].is_offline { u64::from(variant >> 1 & 3) } else { 0 };
        (0..numbered).for_each(|_| self.slots[cpu].raise_tick());
        self.cpus[cpu].sent += numbered;
        if self.cpus[cpu].is_offline {
            return Ok(());
        }
        IDLE.store(variant >> 3 & 7 == 1, Ordering::Relaxed);
        NESTS.store(variant >> 6 & 1 == 1, Ordering::Relaxed);
        let outcome = self.profiler.on_nmi(&token(), &registers_of(variant));
        NESTS.store(false, Ordering::Relaxed);
        self.cpus[cpu].nmis[outcome_index(outcome)] += 1;
        if let Some(nested) = NESTED.lock().unwrap().take() {
            self.cpus[cpu].nmis[outcome_index(nested)] += 1;
            prop_assert_ne!(nested, Outcome::Sampled, "the ring has one producer");
        }
        Ok(())
    }

    fn claim(&mut self) {
        let ctl = self.profiler.open_control(10);
        let done = ctl.write(b"protocol 1");
        if self.ctl.is_some() {
            assert!(done.unwrap_err().is_busy());
            return;
        }
        assert!(done.unwrap().wants_names);
        self.living.iter().for_each(|id| self.profiler.task_name(*id, "told again"));
        self.streams = [1, 2].map(|cpu| self.profiler.open_stream(cpu, 10).unwrap()).into();
        self.cpus.iter_mut().for_each(|cpu| cpu.read.clear());
        self.ctl = Some(ctl);
        // A new claim sends the names of all living tasks again.
        self.known.clear();
        let (meta, mut buffer) = (self.profiler.open_meta(10), vec![0; 16 * 1024]);
        while let Ok(bytes @ 1..) = meta.read(&mut buffer) {
            let names = records(&buffer[..bytes]).into_iter().filter(|record| record.kind == Kind::TaskName);
            self.known.extend(names.map(|record| record.meta().first));
        }
        assert!(self.living.is_subset(&self.known), "{:?} of {:?}", self.known, self.living);
        let ctl = self.ctl.as_ref().unwrap();
        let end = self.profiler_position("meta.position-in");
        ctl.write(format!("ack meta {end}").as_bytes()).unwrap();
    }

    fn profiler_position(&self, key: &str) -> u64 {
        let status = self.status();
        status.lines().find_map(|line| line.strip_prefix(&format!("{key} "))).expect(key).parse().unwrap()
    }

    fn read(&mut self, variant: u8) -> Result<(), TestCaseError> {
        let cpu = 1 + usize::from(variant & 1);
        let mut buffer = vec![0; 64 * (1 + usize::from(variant >> 1))];
        if self.ctl.is_none() {
            let stream = self.profiler.open_stream(cpu, 20).unwrap();
            if let Ok(bytes) = stream.read(&mut buffer) {
                let (read, mut at) = (words(&buffer[..bytes]), 0);
                while at < read.len() {
                    prop_assert_eq!(read[at] & !0xff, 0xfedf_ac00);
                    at += (read[at] & 0xff) as usize;
                    self.cpus[cpu].delivered += 1;
                }
            }
            return Ok(());
        }
        prop_assert!(self.profiler.open_stream(cpu, 20).unwrap().read(&mut buffer).is_err(), "a thief");
        let Ok(bytes) = self.streams[cpu - 1].read(&mut buffer) else { return Ok(()) };
        let Cpu { acknowledged, read: positions, .. } = &mut self.cpus[cpu];
        for record in records(&buffer[..bytes]) {
            let position = record.position();
            prop_assert!([text(30), 0x40_0000].contains(&record.sample().address), "a torn record");
            prop_assert!(!acknowledged.contains(&position), "delivered again: position {position}");
            if let Some((last, end)) = positions.last() {
                prop_assert!(position > *last, "position {position} after {last}");
                prop_assert!(record.kind == Kind::SnapshotSample || position >= *end);
            }
            positions.push((position, record.end()));
        }
        Ok(())
    }

    /// Begins, ends, or continues to read copies.
    fn copies(&mut self, variant: u8) -> Result<(), TestCaseError> {
        let before = self.status();
        match (variant % 16, &mut self.recorder) {
            (0, recorder) => *recorder = None,
            (_, recorder @ None) => {
                *recorder = Some(Recorder::begin(self.profiler));
                return Ok(());
            }
            (1, Some(_)) => prop_assert!(self.profiler.open_control(50).write(b"copy 1").unwrap_err().is_busy()),
            (_, Some(recorder)) => recorder.read(variant >> 4)?,
        }
        prop_assert_eq!(self.status(), before, "nobody else notices");
        Ok(())
    }

    fn acknowledge(&mut self, variant: u8) {
        let (Some(ctl), cpu) = (&self.ctl, 1 + usize::from(variant & 1)) else { return };
        let tail = self.profiler_position(&format!("cpu.{cpu}.position-out"));
        let positions = &mut self.cpus[cpu].read;
        // Records that were overwritten since can no longer be acknowledged.
        positions.retain(|(position, _)| *position >= tail);
        let take = usize::from(variant >> 1) % (positions.len() + 1);
        let Some((_, end)) = positions.get(take).copied() else { return };
        if ctl.write(format!("ack {cpu} {end}").as_bytes()).is_ok() {
            let acknowledged: Vec<_> = positions.drain(..=take).collect();
            self.cpus[cpu].delivered += acknowledged.len() as u64;
            self.cpus[cpu].acknowledged.extend(acknowledged.into_iter().map(|(position, _)| position));
        }
    }

    fn export(&mut self) {
        let before = self.status();
        let mut log = String::new();
        let exported = self.profiler.export(&mut log);
        assert_eq!(exported.is_err(), self.ctl.is_some());
        let delivered = |status: &str, cpu| counter(status, cpu, "delivered");
        for cpu in [1, 2] {
            let batch: u64 = log
                .lines()
                .filter_map(|line| line.split_once(&format!("# end cpu={cpu} to=")))
                .filter_map(|(_, rest)| rest.split_once("samples=")?.1.parse::<u64>().ok())
                .sum();
            let freed = if before.contains("mode overwrite\n") { 0 } else { batch };
            assert_eq!(delivered(&self.status(), cpu), delivered(&before, cpu) + freed);
            self.cpus[cpu].delivered += freed;
        }
        let before = self.status();
        self.profiler.export_last(&mut String::new(), 3).unwrap();
        assert_eq!(self.status(), before, "a dump moves nothing");
    }

    fn command(&mut self, variant: u8) -> Result<(), TestCaseError> {
        const COMMANDS: [&str; 20] = [
            "start",
            "stop",
            "freeze",
            "thaw",
            "mode drop",
            "mode overwrite",
            "cpus 1",
            "cpus all",
            "depth 5",
            "include idle",
            "exclude idle\nexclude user",
            "include user",
            "lease\nhz 50",
            "hz 77\nmark half\nack 1 7",
            "stop\nmode drop\nstart",
            "mode overwrite\nstop",
            "thaw\nfreeze",
            "nonsense",
            "protocol 1\nprotocol 0",
            "stop\nnonsense",
        ];
        let command = COMMANDS[usize::from(variant) % COMMANDS.len()];
        // Pending ticks are taken first, because `stop` and `mode` would wait for them until their time limit.
        for cpu in [1, 2] {
            if counter(&self.last, cpu, "pending") > 0 && !self.cpus[cpu].is_offline {
                CPU.store(cpu, Ordering::Relaxed);
                let outcome = self.profiler.on_nmi(&token(), &registers());
                self.cpus[cpu].nmis[outcome_index(outcome)] += 1;
            }
        }
        let before = self.status();
        match self.other.write(command.as_bytes()) {
            Err(error) => {
                prop_assert_ne!(error.reason, kprof::CommandError::Change(StateError::Busy));
                prop_assert_eq!(&self.status(), &before, "refused, and yet changed: {}", command);
            }
            Ok(_) => prop_assert!(!command.contains("nonsense")),
        }
        if command.starts_with("protocol") && self.ctl.is_none() {
            self.cpus.iter_mut().for_each(|cpu| cpu.read.clear());
        }
        if variant & 0x80 != 0 {
            self.other = self.profiler.open_control(30);
        }
        Ok(())
    }

    fn step(&mut self, (what, variant): Step) -> Result<(), TestCaseError> {
        match what {
            0..=120 => self.tick(variant)?,
            121..=130 => self.new_task(),
            131..=150 => self.copies(variant)?,
            151..=175 => self.read(variant)?,
            176..=195 => self.acknowledge(variant),
            196..=205 => self.claim(),
            206..=212 => self.ctl = None,
            213..=220 => self.export(),
            221..=225 => {
                let cpu = 1 + usize::from(variant & 1);
                let (profiler, is_offline) = (self.profiler, &mut self.cpus[cpu].is_offline);
                if *is_offline {
                    profiler.register(cpu, || unreachable!("it has its ring")).unwrap();
                } else {
                    profiler.offline(cpu);
                }
                *is_offline = !*is_offline;
            }
            _ => self.command(variant)?,
        }
        self.last = self.status();
        self.check()
    }

    /// Checks the identities, and compares the counters with what the test has counted itself.
    fn check(&self) -> Result<(), TestCaseError> {
        let counters = Counters::of(&self.last);
        for (number, cpu) in self.cpus.iter().enumerate().skip(1) {
            let count = |name: &str| counters.get(number, name);
            prop_assert_eq!(count("sent"), cpu.sent);
            prop_assert_eq!(count("sent"), count("taken") + count("coalesced") + count("pending"));
            let lost = count("lost-full") + count("lost-nested") + count("lost-torn");
            prop_assert_eq!(count("taken"), count("user") + count("idle") + lost + count("recorded"));
            prop_assert_eq!(count("recorded"), count("delivered") + count("overwritten") + count("in-ring"));
            let kinds =
                ["irq-on", "irq-off", "interrupt", "recorded-user", "recorded-idle"].map(count).iter().sum::<u64>();
            prop_assert_eq!(count("recorded"), kinds);
            prop_assert_eq!(count("delivered"), cpu.delivered);
            let outcomes =
                [count("recorded"), count("user") + count("idle"), lost, count("spurious"), count("foreign")];
            prop_assert_eq!(outcomes, cpu.nmis, "each NMI has its name");
            prop_assert!(count("spurious") <= count("coalesced"));
            prop_assert!(count("position-in") - count("position-out") <= count("ring-words"));
        }
        self.recorder.as_ref().map_or(Ok(()), |recorder| recorder.check(&counters))
    }
}

/// The counters of each CPU in a status text, in their order. The text is read once: most of the model's time goes into
/// these texts.
struct Counters<'a>([Vec<(&'a str, u64)>; 3]);

impl<'a> Counters<'a> {
    fn of(status: &'a str) -> Self {
        let mut counters = Self(std::array::from_fn(|_| Vec::with_capacity(32)));
        for line in status.split('\n').filter_map(|line| line.strip_prefix("cpu.")) {
            // A CPU's number is one digit.
            let (cpu, counter) = (usize::from(line.as_bytes()[0] - b'0'), &line[2..]);
            let (name, value) = counter.split_once(' ').expect("a name and a value");
            counters.0[cpu].push((name, value.parse().expect("a number")));
        }
        counters
    }

    fn get(&self, cpu: usize, name: &str) -> u64 {
        self.0[cpu].iter().find(|(known, _)| *known == name).expect("a counter").1
    }
}

fn counter(status: &str, cpu: usize, name: &str) -> u64 {
    Counters::of(status).get(cpu, name)
}

/// The registers of a tick: in kernel code during a system call or an interrupt, or in user code.
fn registers_of(variant: u8) -> Registers {
    let mut at = registers();
    if variant >> 4 & 1 == 1 {
        set(5, Marker::Interrupt(33).encode());
        for (word, value) in (6..).zip([text(30), 8, 1 << 9, stack(20), 0]) {
            set(word, value);
        }
        set(4, 0);
        set(20, 1);
    }
    if variant >> 5 & 1 == 1 {
        at.interrupts_on = false;
    }
    if variant & 0x88 == 0x88 { Registers { pc: 0x40_0000, from_user: true, ..at } } else { at }
}

fn cases() -> u32 {
    std::env::var("KPROF_CASES").map_or(150, |cases| cases.parse().expect("KPROF_CASES is a number"))
}

const STEPS: usize = 400;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "its strength is the number of steps")]
    fn the_account_balances_after_every_step(steps in proptest::collection::vec(any::<Step>(), STEPS)) {
        let mut life = Life::begin();
        for step in steps {
            life.step(step)?;
        }
    }
}
