//! The ownership of streams: no process takes the records of another, no position goes back, and the account balances
//! even if other processes read, claim or export at the same time.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::record::{Header, Kind, POSITION, SampleHeader};
use kprof::{CommandError, Config, ExportError, Mode, Outcome, Profiler, ReadError, StateError, StreamName};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// The words of each sample of these tests, which have two callers, and its bytes.
const WORDS: u64 = SampleHeader::WORDS as u64 + 2;
const BYTES: usize = 8 * WORDS as usize;

fn with(config: Config) -> Machine {
    let (profiler, slots) = machine();
    set_up(profiler, slots, config);
    (profiler, slots)
}

/// With this clock, time limits of a second last half a minute or more. A busy host may not run a thread for so long.
fn running() -> Config {
    Config { running: true, tsc_hz: 100_000_000_000, ..Config::new() }
}

fn tick((profiler, slots): Machine) {
    slots[1].raise_tick();
    assert_ne!(profiler.on_nmi(&token(), &registers()), Outcome::Foreign);
}

/// A sink that calls `happens` as soon as its text contains `at`.
struct Between<F: FnMut()> {
    at: &'static str,
    happens: Option<F>,
    text: String,
}

impl<F: FnMut()> Write for Between<F> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.push_str(text);
        if self.text.contains(self.at)
            && let Some(mut happens) = self.happens.take()
        {
            happens();
        }
        Ok(())
    }
}

/// Asserts that the account balances. If other threads run at the same time, the counters may be read while the host
/// has suspended a reader in the middle of a change. So they are read again until they balance.
#[track_caller]
fn assert_balanced(profiler: &Profiler<ArrayKernel>) {
    let look = || {
        let counters = control(profiler);
        let [recorded, delivered, overwritten, in_ring] = ["recorded", "delivered", "overwritten", "in-ring"]
            .map(|name| counters[&format!("cpu.1.{name}")].parse::<u64>().unwrap());
        (recorded, delivered + overwritten + in_ring)
    };
    let balances = (0..1000).any(|_| {
        let (left, right) = look();
        std::thread::yield_now();
        left == right
    });
    assert!(balances, "{:?}", look());
}

#[test]
fn a_claimed_stream_is_read_by_its_claimant_only() {
    let _alone = alone();
    let machine = with(running());
    let profiler = machine.0;
    let daemon = Daemon::claim(profiler, 10);
    (0..5).for_each(|_| tick(machine));
    let mut buffer = vec![0; 8192];
    let thief = profiler.open_stream(1, 20).unwrap();
    assert_eq!(thief.read(&mut buffer), Err(ReadError::Claimed));
    assert_eq!(profiler.open_meta(20).read(&mut buffer), Err(ReadError::Claimed));
    let bytes = daemon.stream.read(&mut buffer).unwrap();
    let read = words(&buffer[..bytes]);
    assert_eq!(read.len(), 40, "all five records");
    daemon.acknowledge(40).unwrap();
    assert_eq!(counter(profiler, "delivered"), 5);
    assert_balanced(profiler);
    // Another stream file of the claimant's process can read too. A file of the next claimant's process can read only
    // after that process has claimed.
    tick(machine);
    assert_eq!(profiler.open_stream(1, 10).unwrap().read(&mut buffer), Ok(BYTES));
    drop(daemon);
    assert_eq!(thief.read(&mut buffer), Ok(48), "unclaimed: raw words, and what was not acknowledged is still there");
    assert_balanced(profiler);
}

#[test]
fn a_buffer_gets_whole_records_and_one_that_is_too_small_says_so() {
    let _alone = alone();
    let machine = with(running());
    (0..3).for_each(|_| tick(machine));
    let read = |bytes: usize| Daemon::claim(machine.0, 1).stream.read(&mut vec![0; bytes]);
    let one = read(4096).unwrap() / 3;
    assert_eq!(read(one - 1), Err(ReadError::TooSmall(one)));
    assert_eq!(read(one), Ok(one));
    assert_eq!(read(2 * one - 8), Ok(one));
    assert_eq!(read(2 * one), Ok(2 * one));
}

#[test]
fn records_are_passed_where_they_lie_and_count_as_read_when_they_were_taken() {
    let _alone = alone();
    let machine = with(running());
    let daemon = Daemon::claim(machine.0, 10);
    let read = |bytes: usize, pieces: usize| {
        let mut taken: Vec<Vec<u8>> = Vec::new();
        let result = daemon.stream.read_to(bytes, &mut [], &mut |at, records| {
            assert_eq!(at, taken.iter().map(Vec::len).sum::<usize>(), "the offset of a piece");
            taken.push(records.to_vec());
            taken.len() <= pieces
        });
        (result, words(&taken.concat()))
    };
    assert_eq!(read(usize::MAX, 0), (Ok(0), Vec::new()), "nothing is passed if there is nothing");
    (0..100).for_each(|_| tick(machine));
    assert_eq!(read(usize::MAX, 1).0, Ok(100 * BYTES));
    daemon.acknowledge(100 * WORDS).unwrap();
    // The ring has 1024 words, so these records lie at its end and at its beginning.
    (0..60).for_each(|_| tick(machine));
    for pieces in 0..2 {
        assert_eq!(read(usize::MAX, pieces).0, Err(ReadError::NotTaken));
        assert!(daemon.acknowledge(101 * WORDS).is_err(), "a record that was not taken");
    }
    assert_eq!(read(BYTES - 1, 2).0, Err(ReadError::TooSmall(BYTES)));
    let (first, rest) = (read(3 * BYTES - 8, 2), read(usize::MAX, 2));
    assert_eq!((first.0, rest.0), (Ok(2 * BYTES), Ok(58 * BYTES)));
    for (number, record) in (0..60).zip([first.1, rest.1].concat().chunks(WORDS as usize)) {
        assert_eq!(record[..2], [Header { kind: Kind::Sample, words: WORDS as u16 }.encode(), (100 + number) * WORDS]);
    }
    daemon.acknowledge(160 * WORDS).unwrap();
    assert_eq!((read(usize::MAX, 2).0, counter(machine.0, "delivered")), (Ok(0), 160));
    assert_balanced(machine.0);
}

#[test]
fn what_may_change_during_a_read_is_passed_from_the_scratch_buffer() {
    let _alone = alone();
    let (profiler, slots) = with(Config { mode: Mode::Overwrite, ..running() });
    (0..3).for_each(|_| tick((profiler, slots)));
    let mut scratch = [0; 2 * BYTES];
    let mut read = |stream: &kprof::StreamFile, bytes, is_taken| {
        let mut taken = Vec::new();
        let result = stream.read_to(bytes, &mut scratch, &mut |at, records| {
            assert_eq!(at, 0);
            taken.extend(words(records));
            is_taken
        });
        (result, taken.first().copied())
    };
    let snapshot = Some(Header { kind: Kind::SnapshotSample, words: WORDS as u16 }.encode());
    let daemon = Daemon::claim(profiler, 1);
    assert_eq!(read(&daemon.stream, 8, true), (Err(ReadError::TooSmall(BYTES)), None));
    assert_eq!(read(&daemon.stream, BYTES, true), (Ok(BYTES), snapshot), "no more than was asked for");
    assert_eq!(read(&daemon.stream, 4096, true), (Ok(2 * BYTES), snapshot));
    assert_eq!(read(&daemon.stream, 4096, false), (Ok(0), None), "nothing is passed if there is nothing");
    tick((profiler, slots));
    assert_eq!(read(&daemon.stream, 4096, false), (Err(ReadError::NotTaken), snapshot));
    daemon.ctl.write(b"stop\nmode drop").unwrap();
    drop(daemon);
    assert_eq!(read(&profiler.open_stream(1, 1).unwrap(), 4096, true), (Ok(2 * 48), Some(0xfedf_ac06)), "raw words");
}

#[test]
fn a_stream_that_does_not_exist_is_not_opened_and_the_meta_stream_has_no_raw_words() {
    let _alone = alone();
    let (profiler, slots) = with(running());
    assert!(matches!(profiler.open_stream(slots.len(), 1), Err(ReadError::NoStream)));
    profiler.mark("a record");
    assert_eq!(profiler.open_meta(1).read(&mut [0; 4096]), Err(ReadError::NotClaimed));
}

#[test]
fn a_second_write_through_a_file_waits_for_the_first_one() {
    let _alone = alone();
    let machine = with(running());
    let ctl = machine.0.open_control(1);
    machine.1[1].raise_tick();
    std::thread::scope(|scope| {
        // `stop` waits for the pending tick.
        let stop = scope.spawn(|| ctl.write(b"stop").map(drop));
        while control(machine.0)["state"] == "running" {
            std::thread::yield_now();
        }
        let mark = scope.spawn(|| ctl.write(b"mark meanwhile").map(drop));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_ne!(machine.0.on_nmi(&token(), &registers()), Outcome::Foreign);
        stop.join().unwrap().unwrap();
        mark.join().unwrap().unwrap();
    });
}

#[test]
fn a_running_recorder_gives_whole_records_that_are_marked_as_a_snapshot() {
    let _alone = alone();
    let machine = with(Config { mode: Mode::Overwrite, ..running() });
    (0..3).for_each(|_| tick(machine));
    let daemon = Daemon::claim(machine.0, 1);
    let mut bytes = [0; 4096];
    let one = match daemon.stream.read(&mut bytes[..8]) {
        Err(ReadError::TooSmall(one)) => one,
        other => panic!("{other:?}"),
    };
    assert_eq!(daemon.stream.read(&mut bytes[..one - 1]), Err(ReadError::TooSmall(one)));
    assert_eq!(daemon.stream.read(&mut bytes[..2 * one - 8]), Ok(one));
    assert_eq!(daemon.stream.read(&mut bytes[one..]), Ok(2 * one), "the next ones, and none twice");
    for (number, record) in words(&bytes[..3 * one]).chunks(one / 8).enumerate() {
        let header = Header::decode(record[0]).unwrap();
        assert_eq!((header.kind, usize::from(header.words)), (Kind::SnapshotSample, one / 8));
        assert_eq!(record[POSITION] as usize, number * one / 8, "its position");
        assert_eq!(record[SampleHeader::AT.address], text(30));
    }
    assert_eq!(daemon.stream.read(&mut bytes), Ok(0));
}

#[test]
fn raw_words_need_a_buffer_for_a_whole_record() {
    let _alone = alone();
    let machine = with(running());
    (0..3).for_each(|_| tick(machine));
    let stream = machine.0.open_stream(1, 1).unwrap();
    let mut bytes = [0; 4096];
    let one = match stream.read(&mut bytes[..8]) {
        Err(ReadError::TooSmall(one)) => one,
        other => panic!("{other:?}"),
    };
    assert_eq!(stream.read(&mut bytes[..2 * one - 8]), Ok(one));
    assert_eq!(stream.read(&mut bytes[one..3 * one]), Ok(2 * one));
    let firsts: Vec<u64> = words(&bytes[..3 * one]).chunks(one / 8).map(|record| record[0]).collect();
    assert_eq!(firsts, [0xfedf_ac00 + one as u64 / 8; 3]);
}

#[test]
#[cfg_attr(miri, ignore = "threads that wait for each other: minutes; the sanitizers see them")]
fn a_raw_reader_beside_a_recorder_that_starts_and_stops_never_moves_a_position_back() {
    let _alone = alone();
    let machine = with(Config { mode: Mode::Overwrite, ..running() });
    let profiler = machine.0;
    // As with the real sampler, no tick is numbered after a stop, and `stop` waits for pending ticks.
    let (ticking, at_rest, has_ended) = (AtomicBool::new(false), AtomicBool::new(true), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (ticking, at_rest, has_ended) = (&ticking, &at_rest, &has_ended);
        scope.spawn(move || {
            while !has_ended.load(Ordering::SeqCst) {
                if ticking.load(Ordering::SeqCst) {
                    tick(machine);
                } else {
                    at_rest.store(true, Ordering::SeqCst);
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(move || {
            let (stream, mut buffer) = (profiler.open_stream(1, 1).unwrap(), vec![0; 8192]);
            while !has_ended.load(Ordering::SeqCst) {
                let _ = stream.read(&mut buffer);
            }
        });
        let _ends = EndsOthers(has_ended);
        let (ctl, mut last) = (profiler.open_control(2), 0);
        for _ in 0..300 {
            ctl.write(b"start").unwrap();
            ticking.store(true, Ordering::SeqCst);
            let recorded = counter(profiler, "recorded");
            while counter(profiler, "recorded") < recorded + 3 {
                std::thread::yield_now();
            }
            ticking.store(false, Ordering::SeqCst);
            at_rest.store(false, Ordering::SeqCst);
            while !at_rest.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            ctl.write(b"stop").unwrap();
            let (head, tail) = (counter(profiler, "position-in"), counter(profiler, "position-out"));
            assert!(head - tail <= 1024 && tail >= last, "tail {tail} after {last}, head {head}");
            last = tail;
            assert_balanced(profiler);
        }
    });
}

#[test]
fn an_export_and_a_claim_exclude_each_other() {
    let _alone = alone();
    let machine = with(running());
    let profiler = machine.0;
    (0..5).for_each(|_| tick(machine));
    (0..20).for_each(|id| profiler.task_name(id, "name"));
    let mut refused = None;
    let sink = &mut Between {
        at: "batch cpu=1",
        happens: Some(|| refused = Some(profiler.open_control(1).write(b"protocol 1").unwrap_err().reason)),
        text: String::new(),
    };
    profiler.export(sink).unwrap();
    assert_eq!(refused, Some(CommandError::Change(StateError::StreamBusy(StreamName::Cpu(1)))));
    assert_eq!((counter(profiler, "delivered"), counter(profiler, "in-ring")), (5, 0));
    let daemon = Daemon::claim(profiler, 1);
    tick(machine);
    assert_eq!(profiler.export(&mut String::new()), Err(ExportError::Claimed));
    assert_eq!(daemon.stream.read(&mut [0; 8192]), Ok(BYTES));
    daemon.acknowledge(counter(profiler, "position-in")).unwrap();
    assert_eq!(counter(profiler, "delivered"), 6);
    assert_balanced(profiler);
    drop(daemon);
    struct Broken;
    impl Write for Broken {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            Err(std::fmt::Error)
        }
    }
    assert_eq!(profiler.export(&mut Broken), Err(ExportError::Sink));
}

#[test]
fn what_is_recorded_during_an_export_is_in_the_next_one() {
    let _alone = alone();
    let machine = with(running());
    let profiler = machine.0;
    tick(machine);
    let mut samples = Between { at: "batch cpu=1", happens: Some(|| tick(machine)), text: String::new() };
    profiler.export_last(&mut samples, 8).unwrap();
    assert!(samples.text.contains(&format!("# end cpu=1 to={WORDS} samples=1\n")), "{}", samples.text);
    let mut marks = Between { at: "batch cpu=meta", happens: Some(|| profiler.mark("late")), text: String::new() };
    profiler.export_last(&mut marks, 8).unwrap();
    assert!(!marks.text.contains("name=late"), "{}", marks.text);
}

/// What a write to ctl answers while CPU 1 is exported.
fn during_export(machine: Machine, commands: &str) -> Result<(), CommandError> {
    tick(machine);
    let mut result = None;
    let happens = Some(|| result = Some(machine.0.open_control(1).write(commands.as_bytes()).map(drop)));
    machine.0.export(&mut Between { at: "batch cpu=1", happens, text: String::new() }).unwrap();
    result.expect("the sample was exported").map_err(|error| error.reason)
}

#[test]
fn a_change_waits_for_the_owner_of_a_stream_only_if_another_one_moves_the_tail_from_then_on() {
    let _alone = alone();
    let busy = Err(CommandError::Change(StateError::StreamBusy(StreamName::Cpu(1))));
    let drop_mode = with(Config::new());
    assert_eq!(during_export(drop_mode, "hz 50"), Ok(()));
    assert_eq!(during_export(drop_mode, "mode overwrite"), busy);
    assert_eq!(during_export(drop_mode, "start"), Ok(()));
    assert_eq!(control(drop_mode.0)["state"], "running");
    let overwrite_mode = with(Config { mode: Mode::Overwrite, ..Config::new() });
    assert_eq!(during_export(overwrite_mode, "hz 50"), Ok(()));
    assert_eq!(during_export(overwrite_mode, "start"), busy);
    assert_eq!(control(overwrite_mode.0)["state"], "stopped");
    // Once the recorder has started, no reader moves the tail.
    overwrite_mode.0.open_control(1).write(b"start").unwrap();
    let stream = overwrite_mode.0.open_stream(1, 1).unwrap();
    assert_eq!(stream.read(&mut [0; 4096]), Err(ReadError::Recorder));
}

#[test]
#[cfg_attr(miri, ignore = "threads that wait for each other: minutes; the sanitizers see them")]
fn a_claim_that_begins_while_the_last_one_is_still_read_begins_with_the_oldest_record() {
    let _alone = alone();
    let machine = with(running());
    let profiler = machine.0;
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A thread of the first daemon continues to read while its control file is closed again and again.
        scope.spawn(|| {
            let (stream, mut buffer) = (profiler.open_stream(1, 1).unwrap(), vec![0; 64]);
            while !end.load(Ordering::Relaxed) {
                let _ = stream.read(&mut buffer);
            }
        });
        let _ends = EndsOthers(&end);
        for _ in 0..300 {
            drop(Daemon::claim(profiler, 1));
            let second = Daemon::claim(profiler, 2);
            tick(machine);
            let mut buffer = vec![0; 8192];
            let bytes = second.stream.read(&mut buffer).unwrap();
            let first = words(&buffer[..bytes])[1];
            assert_eq!(first, counter(profiler, "position-out"), "the oldest record comes first");
            second.acknowledge(counter(profiler, "position-in")).unwrap();
        }
    });
    assert_balanced(profiler);
}

#[test]
fn a_refused_write_changes_nothing() {
    let _alone = alone();
    let machine = with(running());
    let profiler = machine.0;
    let daemon = Daemon::claim(profiler, 1);
    (0..3).for_each(|_| tick(machine));
    daemon.stream.read(&mut [0; 8192]).unwrap();
    let status = || {
        let mut text = String::new();
        profiler.write_status(&mut text).unwrap();
        text
    };
    let before = status();
    let [first, second, third] = [1, 2, 3].map(|record| format!("ack 1 {}", record * WORDS));
    for bad in [
        "hz 77\nmark half\nack 1 7",
        &format!("{first}\n{second}\nack 1 {}", 3 * WORDS - 1),
        &format!("{first}\nack 2 {WORDS}"),
        "stop\nhz 50\nthaw",
        &format!("mode overwrite\n{first}"),
        "protocol 0\ndepth 0",
        "seed 7\nlease\nnonsense",
        "cpus 0\ncpus 5",
    ] {
        let error = daemon.ctl.write(bad.as_bytes()).unwrap_err();
        assert!(error.line > 1, "{bad:?}: {error}");
        assert_eq!(status(), before, "{bad:?}");
        let mut text = String::new();
        daemon.ctl.read(&mut text).unwrap();
        assert!(text.ends_with(&format!("error {error}\n")), "{text}");
        let mut other = String::new();
        profiler.open_control(1).read(&mut other).unwrap();
        assert_eq!(other, before, "the reason belongs to the file whose write was refused");
    }
    daemon.ctl.write(format!("{first}\nhz 77\n{second}\n{third}").as_bytes()).unwrap();
    assert_eq!(counter(profiler, "delivered"), 3);
    assert_eq!(control(profiler)["hz"], "77");
    assert_balanced(profiler);
}

#[test]
#[cfg_attr(miri, ignore = "threads that wait for each other: minutes; the sanitizers see them")]
fn a_stop_beside_a_change_of_mode_is_not_undone() {
    let _alone = alone();
    let (profiler, slots) = with(running());
    // A tick is pending, so both commands wait for it.
    slots[1].raise_tick();
    std::thread::scope(|scope| {
        let mode = scope.spawn(|| profiler.open_control(1).write(b"mode overwrite").map(|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let stop = scope.spawn(|| profiler.stop());
        std::thread::sleep(std::time::Duration::from_millis(20));
        profiler.on_nmi(&token(), &registers());
        mode.join().unwrap().unwrap();
        stop.join().unwrap().unwrap();
    });
    assert_eq!(control(profiler)["state"], "stopped");
}

#[test]
#[cfg_attr(miri, ignore = "threads that wait for each other: minutes; the sanitizers see them")]
fn the_account_of_a_running_recorder_balances() {
    let _alone = alone();
    let machine = with(Config { mode: Mode::Overwrite, ..running() });
    let (profiler, slots) = machine;
    (0..200).for_each(|_| tick(machine));
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                slots[1].raise_tick();
                profiler.on_nmi(&token(), &registers());
                // If handlers followed each other without a pause, the counters could never be read consistently.
                (0..2000).for_each(|_| std::hint::spin_loop());
            }
        });
        let _ends = EndsOthers(&end);
        for _ in 0..2000 {
            assert_ne!(counter(profiler, "in-ring"), 0);
            assert_balanced(profiler);
        }
    });
}

#[test]
fn many_acknowledgements_in_one_write_look_at_each_record_once() {
    let _alone = alone();
    let machine = with(running());
    let profiler = machine.0;
    let daemon = Daemon::claim(profiler, 1);
    (0..100).for_each(|_| tick(machine));
    daemon.stream.read(&mut [0; 8192]).unwrap();
    let lines: String = (1..=100).map(|record| format!("ack 1 {}\n", record * WORDS)).collect();
    daemon.ctl.write(lines.as_bytes()).unwrap();
    assert_eq!((counter(profiler, "delivered"), counter(profiler, "in-ring")), (100, 0));
    daemon.ctl.write(format!("ack 1 {WORDS}\nack 1 {}", 100 * WORDS).as_bytes()).unwrap();
    assert_eq!(counter(profiler, "delivered"), 100, "what was acknowledged before counts once");
}
