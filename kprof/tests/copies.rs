//! A reader of copies beside the reader that has claimed the streams: what it gets, how the records that it missed are
//! counted, and that it does not affect other readers.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::account::IDENTITIES;
use kprof::format::record::{Kind, SampleHeader};
use kprof::{CommandError, Config, ControlFile, Mode, Outcome, Profiler, ReadError, Setup, StreamFile};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

/// The words of each sample of these tests, which have two callers.
const RECORD_WORDS: usize = SampleHeader::WORDS + 2;
/// More than the longest record, so that what the owner has freed can still be copied for a while.
const RING_WORDS: usize = if cfg!(miri) { 2048 } else { 4096 };
/// Records of these tests that the ring holds.
const LAP: usize = RING_WORDS / RECORD_WORDS;
/// Rounds of 100 ticks, which are several laps.
const ROUNDS: usize = 60;

/// A running machine. With this clock, time limits of a second last half a minute or more.
fn running(config: Config) -> Machine {
    let (profiler, slots) = machine();
    let config = Config { running: true, tsc_hz: 100_000_000_000, text: (text(0), text(256)), ..config };
    profiler.init(|| Setup { slots, meta: memory(1024), config }).unwrap();
    profiler.register(1, || memory(RING_WORDS)).unwrap();
    (profiler, slots)
}

fn ticks((profiler, slots): Machine, count: usize) {
    for _ in 0..count {
        slots[1].raise_tick();
        assert_ne!(profiler.on_nmi(&token(), &registers()), Outcome::Foreign);
    }
}

/// A process that reads copies.
struct Recorder {
    ctl: ControlFile,
    stream: StreamFile,
    meta: StreamFile,
}

impl Recorder {
    fn new(profiler: &'static Profiler<ArrayKernel>, process: u64) -> Self {
        let ctl = profiler.open_control(process);
        assert!(ctl.write(b"copy 1").unwrap().wants_names, "the kernel names the living tasks again");
        Self { ctl, stream: profiler.open_stream(1, process).unwrap(), meta: profiler.open_meta(process) }
    }

    /// One read: each record by its position.
    fn read(&self) -> Result<BTreeMap<u64, Record>, ReadError> {
        let records = read(&self.stream)?;
        let ends = records.iter().map(|(position, record)| position + record.words.len() as u64);
        assert!(ends.zip(records.keys().skip(1)).all(|(end, next)| end == *next), "no gap within a read");
        Ok(records)
    }

    /// The account that this process reads from ctl.
    fn account(&self) -> HashMap<String, String> {
        let mut text = String::new();
        self.ctl.read(&mut text).unwrap();
        values(&text)
    }

    fn counter(&self, name: &str) -> u64 {
        self.account()[&format!("cpu.1.{name}")].parse().unwrap()
    }
}

/// One read of a stream: each record by its position.
fn read(file: &StreamFile) -> Result<BTreeMap<u64, Record>, ReadError> {
    let mut buffer = vec![0; 8 * RING_WORDS];
    let bytes = file.read(&mut buffer)?;
    Ok(by_position(&buffer[..bytes]))
}

/// Acknowledges these records of the meta stream. They must not be none.
fn acknowledge_meta(daemon: &Daemon, records: &BTreeMap<u64, Record>) {
    let (_, last) = records.last_key_value().expect("something was read");
    daemon.ctl.write(format!("ack meta {}", last.end()).as_bytes()).unwrap();
}

/// The records of one read by their positions.
fn by_position(bytes: &[u8]) -> BTreeMap<u64, Record> {
    records(bytes).into_iter().map(|record| (record.position(), record)).collect()
}

#[track_caller]
fn assert_balanced(account: &HashMap<String, String>) {
    let counters = || {
        let cpu = account.iter().filter_map(|(key, value)| Some((key.strip_prefix("cpu.1.")?, value.parse().ok()?)));
        cpu.collect::<Vec<(&str, u64)>>().into_iter()
    };
    let faults: Vec<String> =
        IDENTITIES.iter().filter_map(|identity| identity.fault(counters())).map(|fault| fault.to_string()).collect();
    assert_eq!(faults, Vec::<String>::new(), "{account:?}");
}

#[test]
fn copies_are_what_the_claimant_gets_and_it_notices_nothing() {
    let _alone = alone();
    let machine = running(Config::new());
    let daemon = Daemon::claim(machine.0, 10);
    ticks(machine, 3);
    let recorder = Recorder::new(machine.0, 20);
    assert!(recorder.read().unwrap().is_empty(), "the copies begin with the next sample");
    ticks(machine, 5);
    let copied = recorder.read().unwrap();
    assert_eq!(copied.len(), 5);
    assert!(recorder.read().unwrap().is_empty(), "each record is copied once");
    let mut buffer = vec![0; 8192];
    let bytes = daemon.stream.read(&mut buffer).unwrap();
    let owned = by_position(&buffer[..bytes]);
    assert_eq!(owned.len(), 8);
    assert!(copied.iter().all(|(position, words)| owned[position] == *words), "bit by bit");
    assert_eq!(counters(machine.0, ["delivered", "in-ring"]), [0, 8]);
    daemon.acknowledge(bytes as u64 / 8).unwrap();
    assert_eq!(counters(machine.0, ["delivered", "in-ring"]), [8, 0]);
    // The three from before count as delivered, as they do for any reader that comes later.
    assert_eq!(["delivered", "in-ring", "lost-overtaken"].map(|name| recorder.counter(name)), [8, 0, 0]);
    assert_balanced(&recorder.account());
    assert_eq!(recorder.account()["reader"], "10");
    assert!(!control(machine.0).contains_key("cpu.1.lost-overtaken"), "only the reader of copies can be overtaken");
}

#[test]
fn meta_records_that_were_overwritten_before_they_were_copied_count_as_lost_for_the_copies_alone() {
    let _alone = alone();
    let machine = running(Config::new());
    let daemon = Daemon::claim(machine.0, 10);
    let read_and_acknowledge = || {
        let records = read(&daemon.meta).unwrap();
        acknowledge_meta(&daemon, &records);
        records.len()
    };
    read_and_acknowledge();
    let recorder = Recorder::new(machine.0, 20);
    // At least two laps of the meta ring. The claimant reads all, the copies none.
    const MARKS: usize = if cfg!(miri) { 200 } else { 400 };
    let mut written = 0;
    for number in 0..MARKS {
        machine.0.mark(&format!("mark {number}"));
        if number % 20 == 0 {
            written += read_and_acknowledge();
        }
    }
    written += read(&daemon.meta).unwrap().len();
    let copied = read(&recorder.meta).unwrap().len();
    let lost = |account: HashMap<String, String>| account["meta.lost"].parse::<usize>().unwrap();
    assert_eq!((lost(control(machine.0)), lost(recorder.account())), (0, written - copied));
    assert!(written > MARKS && copied < 200, "{copied} of {written}");
}

#[test]
fn what_the_claimant_has_freed_is_copied_until_it_is_overwritten() {
    let _alone = alone();
    let machine = running(Config::new());
    let daemon = Daemon::claim(machine.0, 10);
    let recorder = Recorder::new(machine.0, 20);
    let mut buffer = vec![0; 8 * RING_WORDS];
    let mut end = 0;
    // A copy counts as overwritten if the record that is being written, of up to 1024 words (128 of the records here),
    // could reach it. So 140 fewer records than one lap are made, in rounds of 30.
    let rounds = (LAP - 140) / 30;
    for _ in 0..rounds {
        ticks(machine, 30);
        end += daemon.stream.read(&mut buffer).unwrap() as u64 / 8;
        daemon.acknowledge(end).unwrap();
    }
    assert_eq!(recorder.read().unwrap().len(), 30 * rounds);
    assert_eq!(recorder.counter("lost-overtaken"), 0);
    assert_balanced(&recorder.account());
}

#[test]
#[cfg_attr(miri, ignore = "its ring goes round many times; the tests of the ring do that with fewer words")]
fn what_is_overwritten_before_it_is_copied_is_counted_and_the_account_balances() {
    let _alone = alone();
    let machine = running(Config::new());
    let daemon = Daemon::claim(machine.0, 10);
    let recorder = Recorder::new(machine.0, 20);
    let (mut buffer, mut end, mut owned, mut copied) = (vec![0; 8 * RING_WORDS], 0, BTreeMap::new(), BTreeMap::new());
    for round in 0..ROUNDS {
        ticks(machine, 100);
        let bytes = daemon.stream.read(&mut buffer).unwrap();
        owned.append(&mut by_position(&buffer[..bytes]));
        end += bytes as u64 / 8;
        daemon.acknowledge(end).unwrap();
        // It is suspended for a while, during which the ring is overwritten several times.
        if !(ROUNDS / 4..3 * ROUNDS / 4).contains(&round) {
            copied.append(&mut recorder.read().unwrap());
        }
        assert_balanced(&recorder.account());
        assert_balanced(&control(machine.0));
    }
    let all = 100 * ROUNDS as u64;
    assert_eq!((owned.len() as u64, counter(machine.0, "lost-full")), (all, 0), "the claimant has every record");
    assert!(copied.iter().all(|(position, words)| owned[position] == *words), "bit by bit");
    let lost = recorder.counter("lost-overtaken");
    assert!((all / 2 - LAP as u64..=all / 2 + 100).contains(&lost), "{lost}");
    assert_eq!(copied.len() as u64 + lost, all, "copied or counted as lost");
    assert_eq!((recorder.counter("delivered"), recorder.counter("recorded")), (all - lost, all - lost));
}

#[test]
#[cfg_attr(miri, ignore = "its ring goes round many times; the tests of the ring do that with fewer words")]
fn a_flight_recorder_can_be_copied_while_it_runs() {
    let _alone = alone();
    let machine = running(Config { mode: Mode::Overwrite, ..Config::new() });
    let recorder = Recorder::new(machine.0, 20);
    let mut copied = 0;
    for round in 0..ROUNDS {
        ticks(machine, 100);
        if !(ROUNDS / 3..2 * ROUNDS / 3).contains(&round) {
            let records = recorder.read().unwrap();
            assert!(records.values().all(|record| record.kind == Kind::Sample));
            copied += records.len() as u64;
        }
        assert_balanced(&recorder.account());
    }
    let lost = recorder.counter("lost-overtaken");
    assert!(lost + LAP as u64 >= 100 * ROUNDS as u64 / 3, "{lost}");
    assert_eq!((copied + lost, recorder.counter("delivered")), (100 * ROUNDS as u64, copied));
    assert_eq!(counter(machine.0, "delivered"), 0);
    assert_balanced(&control(machine.0));
}

#[test]
fn only_the_process_that_asked_gets_copies_and_until_its_file_is_closed() {
    let _alone = alone();
    let machine = running(Config::new());
    let (profiler, mut buffer) = (machine.0, vec![0; 8192]);
    let daemon = Daemon::claim(profiler, 10);
    let recorder = Recorder::new(profiler, 20);
    ticks(machine, 2);
    let third = profiler.open_stream(1, 30).unwrap();
    assert_eq!(third.read(&mut buffer), Err(ReadError::Claimed));
    let refused = profiler.open_control(30).write(b"copy 1").unwrap_err();
    assert!(refused.is_busy());
    assert_eq!(profiler.open_control(30).write(b"copy 0"), Ok(profiler.open_control(30).write(b"").unwrap()));
    for (ctl, command) in [(&daemon.ctl, "copy 1"), (&recorder.ctl, "protocol 1"), (&recorder.ctl, "ack 1 8")] {
        let refused = ctl.write(command.as_bytes()).unwrap_err();
        assert!(refused.is_busy() || matches!(refused.reason, CommandError::State(_)), "{command}: {refused}");
    }
    let one = recorder.stream.read(&mut buffer[..100]).unwrap();
    assert_eq!((one, recorder.stream.read(&mut buffer[..one - 1])), (8 * RECORD_WORDS, Err(ReadError::TooSmall(one))));
    assert_eq!(recorder.read().unwrap().len(), 1, "a buffer that is too small takes nothing");
    drop(recorder.ctl);
    assert_eq!(recorder.stream.read(&mut buffer), Err(ReadError::Claimed));
    // The next reader of copies begins with new counts. It continues when the claimant ends; then no process frees
    // records.
    let recorder = Recorder::new(profiler, 30);
    ticks(machine, 1);
    drop(daemon);
    assert!(profiler.is_claimed(), "framed records are read");
    assert_eq!(recorder.account()["reader"], "-");
    assert_eq!(recorder.read().unwrap().len(), 1);
    assert!(!recorder.ctl.write(b"copy 0").unwrap().wants_names);
    assert!(!profiler.is_claimed());
    assert_eq!(recorder.stream.read(&mut buffer), Ok(3 * 48), "raw words, as for every process");
}

#[test]
fn names_and_settings_are_repeated_and_marks_are_not() {
    let _alone = alone();
    let machine = running(Config::new());
    let daemon = Daemon::claim(machine.0, 10);
    let texts = |records: &BTreeMap<u64, Record>| {
        records.values().map(|record| (record.kind, record.text())).collect::<Vec<_>>()
    };
    machine.0.mark("early");
    let records = read(&daemon.meta).unwrap();
    acknowledge_meta(&daemon, &records);
    let first = texts(&records);
    assert!(first.contains(&(Kind::Mark, "early".into())));
    let recorder = Recorder::new(machine.0, 20);
    machine.0.task_name(7, "alive");
    machine.0.mark("late");
    let copied = texts(&read(&recorder.meta).unwrap());
    assert_eq!(texts(&read(&recorder.meta).unwrap()), []);
    assert_eq!(texts(&read(&daemon.meta).unwrap()), copied, "the claimant gets the same");
    for (kind, text) in [(Kind::TaskName, "alive"), (Kind::Setting, "hz 1000"), (Kind::Mark, "late")] {
        assert_eq!(copied.iter().filter(|record| **record == (kind, text.into())).count(), 1, "{text}");
    }
    assert!(!copied.contains(&(Kind::Mark, "early".into())));
}

/// Producer, owner and reader of copies at the same time.
fn beside_each_other(mode: Mode) {
    let machine = running(Config { mode, ..Config::new() });
    let (daemon, recorder) = (Daemon::claim(machine.0, 10), Recorder::new(machine.0, 20));
    let done = AtomicBool::new(false);
    let (owned, (copied, busy)) = std::thread::scope(|scope| {
        let ends = EndsOthers(&done);
        let owner = scope.spawn(|| {
            let (mut buffer, mut end, mut all) = (vec![0; 8 * RING_WORDS], 0, BTreeMap::new());
            loop {
                let last = done.load(Ordering::SeqCst);
                let bytes = daemon.stream.read(&mut buffer).unwrap();
                for (position, words) in by_position(&buffer[..bytes]) {
                    assert_eq!(all.insert(position, words), None, "each record comes once");
                }
                if bytes > 0 && mode == Mode::Drop {
                    end += bytes as u64 / 8;
                    daemon.acknowledge(end).unwrap();
                }
                if last && bytes == 0 {
                    return all;
                }
                std::thread::yield_now();
            }
        });
        let copier = scope.spawn(|| {
            let (mut all, mut rounds, mut busy) = (BTreeMap::<u64, Record>::new(), 0_u64, 0);
            loop {
                let last = done.load(Ordering::SeqCst);
                let records = match recorder.read() {
                    Ok(records) => records,
                    Err(ReadError::Busy) => {
                        busy += 1;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                let is_the_end = last && records.is_empty();
                for (position, words) in records {
                    assert_eq!(all.insert(position, words), None, "each record is copied once");
                }
                if is_the_end {
                    return (all, busy);
                }
                rounds += 1;
                // Sometimes it is slow enough to be overtaken.
                if rounds.is_multiple_of(8) {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        for _ in 0..40_000 {
            ticks(machine, 1);
            if mode == Mode::Drop && counter(machine.0, "in-ring") > 300 {
                std::thread::yield_now();
            }
        }
        drop(ends);
        (owner.join().unwrap(), copier.join().unwrap())
    });
    let account = recorder.account();
    assert_balanced(&account);
    assert_balanced(&control(machine.0));
    let lost = recorder.counter("lost-overtaken");
    assert_eq!(copied.len() as u64 + lost, counter(machine.0, "recorded"), "refused {busy} times: {account:?}");
    assert_eq!(recorder.counter("delivered"), copied.len() as u64);
    if mode == Mode::Drop {
        assert!(copied.iter().all(|(position, record)| owned[position] == *record), "bit by bit");
    }
    let numbers: Vec<u64> = copied.values().map(|record| record.sample().tick).collect();
    assert!(numbers.is_sorted_by(|left, right| left < right));
    if mode == Mode::Drop {
        assert_eq!(owned.len() as u64, counter(machine.0, "recorded"), "the owner has every record");
    }
}

#[test]
#[cfg_attr(miri, ignore = "three threads that read 16 KiB again and again; the tests of the ring read less")]
fn producer_owner_and_copies_beside_each_other_in_drop_mode() {
    let _alone = alone();
    beside_each_other(Mode::Drop);
}

#[test]
#[cfg_attr(miri, ignore = "three threads that read 16 KiB again and again; the tests of the ring read less")]
fn producer_owner_and_copies_beside_each_other_in_overwrite_mode() {
    let _alone = alone();
    beside_each_other(Mode::Overwrite);
}

#[test]
fn a_process_has_the_claim_or_reads_copies_through_whatever_files() {
    let (profiler, _) = running(Config::new());
    let (claims, copies) = (profiler.open_control(1), profiler.open_control(1));
    claims.write(b"protocol 1").unwrap();
    let error = copies.write(b"copy 1").unwrap_err();
    assert!(error.to_string().contains("has the claim through another file"), "{error}");
    claims.write(b"protocol 0").unwrap();
    copies.write(b"copy 1").unwrap();
    let error = claims.write(b"protocol 1").unwrap_err();
    assert!(error.to_string().contains("reads copies through another file"), "{error}");
    copies.write(b"copy 0\nprotocol 1\nprotocol 0\ncopy 1").unwrap();
    profiler.open_control(2).write(b"protocol 1").unwrap();
}
