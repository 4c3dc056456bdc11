//! The account balances after every step of a random life: ticks sent, merged, repeated; rings full; user and idle;
//! both modes; reads, acknowledgements, readers that vanish. And the host's recount notices each record that is
//! tampered with.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::record::{Header, Kind, SAMPLE_HEADER_WORDS};
use kprof::{Config, CpuSlot, Outcome, Profiler, Registers};
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

#[derive(Clone, Debug)]
enum Step {
    /// So many ticks are numbered, then one NMI comes.
    Tick {
        numbered: u8,
        user: bool,
        idle: bool,
        interrupts_off: bool,
        in_interrupt: bool,
    },
    Read {
        bytes: usize,
    },
    Acknowledge,
    Vanish,
    Mode {
        overwrite: bool,
    },
    Freeze,
    Keep {
        idle: bool,
        user: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0_u8..4, any::<[bool; 4]>()).prop_map(|(numbered, [user, idle, interrupts_off, in_interrupt])| {
            Step::Tick { numbered, user, idle, interrupts_off, in_interrupt }
        }),
        4 => (0_usize..3000).prop_map(|bytes| Step::Read { bytes }),
        3 => Just(Step::Acknowledge),
        1 => Just(Step::Vanish),
        1 => any::<bool>().prop_map(|overwrite| Step::Mode { overwrite }),
        1 => Just(Step::Freeze),
        1 => any::<[bool; 2]>().prop_map(|[idle, user]| Step::Keep { idle, user }),
    ]
}

/// What the host counts of what it reads: each position once.
#[derive(Default)]
struct Recount {
    read_to: u64,
    delivered: u64,
    /// Where the records that were read and not acknowledged begin.
    unacknowledged: Vec<u64>,
}

impl Recount {
    /// Takes a read apart; an error says what is wrong with it.
    fn take(&mut self, words: &[u64], snapshot: bool) -> Result<(), String> {
        let mut at = 0;
        while at < words.len() {
            let header = Header::decode(words[at]).map_err(|bad| format!("word {at}: {bad:?}"))?;
            let record = words.get(at..at + header.words as usize).ok_or("a record that ends behind the read")?;
            if header.kind != if snapshot { Kind::SnapshotSample } else { Kind::Sample } {
                return Err(format!("{:?} where snapshot is {snapshot}", header.kind));
            }
            if record[1] < self.read_to {
                return Err(format!("position {} again, {} was read", record[1], self.read_to));
            }
            if record[SAMPLE_HEADER_WORDS] != text(30) && record[SAMPLE_HEADER_WORDS] != 0x40_0000 {
                return Err("a torn record".to_owned());
            }
            if !snapshot && record[1] != self.read_to && !self.unacknowledged.is_empty() {
                return Err(format!("a hole from {} to {}", self.read_to, record[1]));
            }
            self.read_to = record[1] + u64::from(header.words);
            self.unacknowledged.push(record[1]);
            at += header.words as usize;
        }
        Ok(())
    }

    /// What lies below `tail` was overwritten: it can be neither read nor acknowledged any more.
    fn overwritten(&mut self, tail: u64) {
        self.read_to = self.read_to.max(tail);
        self.unacknowledged.retain(|position| *position >= tail);
    }

    /// Everything that was read is acknowledged.
    fn acknowledge(&mut self) {
        self.delivered += self.unacknowledged.drain(..).count() as u64;
    }

    /// A new reader begins with the oldest record, at `tail`.
    fn begin_again(&mut self, tail: u64) {
        self.read_to = tail;
        self.unacknowledged.clear();
    }
}

/// The kernel's interrupt state and its idle context are the whole program's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Looks at the three identities.
fn check(profiler: &Profiler<ArrayKernel>, sent: u64, recount: &Recount) -> Result<(), TestCaseError> {
    let text = control(profiler);
    let count = |name: &str| text[&format!("cpu.1.{name}")].parse::<u64>().unwrap();
    prop_assert_eq!(count("sent"), sent);
    prop_assert_eq!(count("sent"), count("taken") + count("merged"));
    let lost = ["lost-full", "lost-nested", "lost-torn"].map(count).iter().sum::<u64>();
    prop_assert_eq!(count("taken"), count("user") + count("idle") + lost + count("recorded"));
    prop_assert_eq!(count("recorded"), count("delivered") + count("overwritten") + count("in-ring"));
    let kinds = ["irq-on", "irq-off", "interrupt", "kept-user", "kept-idle"].map(count).iter().sum::<u64>();
    prop_assert_eq!(count("recorded"), kinds);
    prop_assert_eq!(count("delivered"), recount.delivered);
    Ok(())
}

/// The registers of a tick, and where its stack goes through an interrupt, that.
fn tick_registers(user: bool, interrupts_off: bool, in_interrupt: bool) -> Registers {
    let mut at = registers();
    if in_interrupt {
        set(5, kprof::format::marker::Marker::Interrupt(33).encode());
        for (word, value) in [text(30), 8, 1 << 9, stack(20), 0].into_iter().enumerate() {
            set(6 + word as u64, value);
        }
        set(4, 0);
        set(20, 1);
    }
    if interrupts_off {
        at.rflags = 0;
    }
    if user { Registers { rip: 0x40_0000, cs: 0x33, ..at } } else { at }
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // One that has never run: in a ring that was never overwritten the acknowledgement takes a shorter way.
    let profiler: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
    let slots: &[CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    set_up(profiler, slots, Config { running: true, ..Config::new() });
    let mut daemon = Daemon::claim(profiler, 1);
    let (token, mut buffer) = (token(), vec![0; 8192]);
    let (mut recount, mut sent) = (Recount::default(), 0);
    // Coalesced ticks whose NMIs have not come.
    let (mut overwrite, mut allowed) = (false, 0);
    for step in steps {
        match *step {
            Step::Tick { numbered, user, idle, interrupts_off, in_interrupt } => {
                (0..numbered).for_each(|_| slots[1].raise_tick());
                sent += u64::from(numbered);
                IDLE.store(idle, Ordering::Relaxed);
                let outcome = profiler.on_nmi(&token, &tick_registers(user, interrupts_off, in_interrupt && !user));
                prop_assert_eq!(matches!(outcome, Outcome::Foreign | Outcome::Spurious), numbered == 0);
                allowed += u64::from(numbered.saturating_sub(1));
                prop_assert!(outcome != Outcome::Foreign || allowed == 0, "one of the profiler's is called foreign");
                if outcome == Outcome::Spurious {
                    prop_assert!(allowed > 0, "another's is called the profiler's");
                    allowed -= 1;
                }
            }
            Step::Read { bytes } => {
                recount.overwritten(counter(profiler, "position-out"));
                if let Ok(bytes) = daemon.stream.read(&mut buffer[..bytes]) {
                    let taken = recount.take(&words(&buffer[..bytes]), overwrite);
                    prop_assert!(taken.is_ok(), "{taken:?}");
                }
            }
            Step::Acknowledge if overwrite => {
                let refused = daemon.ctl.write(format!("ack 1 {}", recount.read_to).as_bytes()).is_err();
                prop_assert!(refused);
            }
            Step::Acknowledge => {
                recount.overwritten(counter(profiler, "position-out"));
                daemon.ctl.write(format!("ack 1 {}", recount.read_to).as_bytes()).unwrap();
                recount.acknowledge();
            }
            Step::Vanish => {
                drop(daemon);
                daemon = Daemon::claim(profiler, 1);
                recount.begin_again(counter(profiler, "position-out"));
            }
            Step::Mode { overwrite: on } => {
                // While running; it goes on running, and the reader goes on where it was.
                daemon.ctl.write(if on { &b"mode overwrite"[..] } else { b"mode drop" }).unwrap();
                overwrite = on;
            }
            Step::Freeze => {
                let frozen = daemon.ctl.write(b"freeze");
                prop_assert_eq!(frozen.is_ok(), overwrite);
                if frozen.is_ok() {
                    recount.overwritten(counter(profiler, "position-out"));
                    while let Ok(bytes @ 1..) = daemon.stream.read(&mut buffer) {
                        let taken = recount.take(&words(&buffer[..bytes]), false);
                        prop_assert!(taken.is_ok(), "{taken:?}");
                    }
                    daemon.ctl.write(b"thaw").unwrap();
                }
            }
            Step::Keep { idle, user } => {
                let word = |keep| if keep { "keep" } else { "drop" };
                daemon.ctl.write(format!("{} idle\n{} user", word(idle), word(user)).as_bytes()).unwrap();
            }
        }
        check(profiler, sent, &recount)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 150 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_account_balances_after_every_step(steps in proptest::collection::vec(step(), 0..if cfg!(miri) { 25 } else { 400 })) {
        run(&steps)?;
    }
}

#[test]
fn a_record_that_is_dropped_doubled_or_torn_is_noticed() {
    let sample = |position| [Header { kind: Kind::Sample, words: 6 }.encode(), position, 1, 2, 7, text(30)];
    let [first, second, third] = [0, 6, 12].map(sample);
    let whole = [first, second, third].concat();
    assert_eq!(Recount::default().take(&whole, false), Ok(()));
    assert!(Recount::default().take(&[first, third].concat(), false).unwrap_err().contains("hole"));
    assert!(Recount::default().take(&[first, first, second].concat(), false).unwrap_err().contains("again"));
    let mut torn = whole.clone();
    torn.remove(8);
    assert!(Recount::default().take(&torn, false).is_err());
    assert!(Recount::default().take(&whole[..16], false).is_err());
}
