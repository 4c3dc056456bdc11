//! The account balances after every step of a random life: ticks sent, merged, repeated; rings full; user and idle; both
//! modes; reads, acknowledgements, readers that vanish. And the host's recount notices each record that is tampered with.
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
    unacknowledged: u64,
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
            if !snapshot && record[1] != self.read_to && self.read_to != 0 && self.unacknowledged > 0 {
                return Err(format!("a hole from {} to {}", self.read_to, record[1]));
            }
            self.read_to = record[1] + u64::from(header.words);
            self.unacknowledged += 1;
            at += header.words as usize;
        }
        Ok(())
    }
}

static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Looks at the three identities.
fn check(sent: u64, recount: &Recount) -> Result<(), TestCaseError> {
    let text = control(&PROFILER);
    let count = |name: &str| text[&format!("cpu.1.{name}")].parse::<u64>().unwrap();
    prop_assert_eq!(count("sent"), sent);
    prop_assert_eq!(count("sent"), count("taken") + count("merged"));
    let lost = ["lost-full", "lost-large", "lost-nested", "lost-torn"].map(count).iter().sum::<u64>();
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
    set_up(&PROFILER, &SLOTS, Config { running: true, ..Config::new() });
    let (token, mut buffer) = (token(), vec![0; 8192]);
    let start = |recount: &mut Recount| {
        // Whatever the last case left is drained away first.
        PROFILER.close_control(1);
        for command in ["stop", "mode drop", "protocol 1", "start", "drop idle", "drop user"] {
            PROFILER.control(1, command.as_bytes()).unwrap();
        }
        while PROFILER.read_stream(1, &mut vec![0; 8192]).unwrap() > 0 {}
        let position = counter(&PROFILER, "position-in");
        PROFILER.control(1, format!("ack 1 {position}").as_bytes()).unwrap();
        (recount.read_to, recount.delivered) = (position, counter(&PROFILER, "delivered"));
    };
    let mut recount = Recount::default();
    start(&mut recount);
    let mut sent = counter(&PROFILER, "sent");
    let mut overwrite = false;
    for step in steps {
        match *step {
            Step::Tick { numbered, user, idle, interrupts_off, in_interrupt } => {
                (0..numbered).for_each(|_| SLOTS[1].raise_tick());
                sent += u64::from(numbered);
                IDLE.store(idle, Ordering::Relaxed);
                let outcome = PROFILER.on_nmi(&token, &tick_registers(user, interrupts_off, in_interrupt && !user));
                prop_assert_eq!(outcome == Outcome::Foreign, numbered == 0);
            }
            Step::Read { bytes } => {
                if let Ok(bytes) = PROFILER.read_stream(1, &mut buffer[..bytes]) {
                    let taken = recount.take(&words(&buffer[..bytes]), overwrite);
                    prop_assert!(taken.is_ok(), "{taken:?}");
                }
            }
            Step::Acknowledge if overwrite => {
                let refused = PROFILER.control(1, format!("ack 1 {}", recount.read_to).as_bytes()).is_err();
                prop_assert!(refused);
            }
            Step::Acknowledge => {
                PROFILER.control(1, format!("ack 1 {}", recount.read_to).as_bytes()).unwrap();
                recount.delivered += core::mem::take(&mut recount.unacknowledged);
            }
            Step::Vanish => {
                PROFILER.close_control(1);
                PROFILER.control(1, b"protocol 1").unwrap();
                (recount.read_to, recount.unacknowledged) = (counter(&PROFILER, "position-out"), 0);
            }
            Step::Mode { overwrite: on } => {
                // While running; it goes on running.
                PROFILER.control(1, if on { &b"mode overwrite"[..] } else { b"mode drop" }).unwrap();
                PROFILER.close_control(1);
                PROFILER.control(1, b"protocol 1").unwrap();
                (overwrite, recount.read_to, recount.unacknowledged) = (on, counter(&PROFILER, "position-out"), 0);
            }
            Step::Freeze => {
                let frozen = PROFILER.control(1, b"freeze");
                prop_assert_eq!(frozen.is_ok(), overwrite);
                if frozen.is_ok() {
                    while let Ok(bytes @ 1..) = PROFILER.read_stream(1, &mut buffer) {
                        recount.unacknowledged = 0;
                        let taken = recount.take(&words(&buffer[..bytes]), false);
                        prop_assert!(taken.is_ok(), "{taken:?}");
                    }
                    PROFILER.control(1, b"thaw").unwrap();
                }
            }
            Step::Keep { idle, user } => {
                let word = |keep| if keep { "keep" } else { "drop" };
                PROFILER.control(1, format!("{} idle\n{} user", word(idle), word(user)).as_bytes()).unwrap();
            }
        }
        check(sent, &recount)?;
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
