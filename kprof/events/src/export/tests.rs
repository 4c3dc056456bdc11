//! Tests of the lines of the serial form that events write.
//!
//! In: records in the meta stream and in an event stream. Out: their lines, without numbers and checksums. Runs on a
//! host. Each expected line is made of values that are written here, and never of words that are read from a ring.

use super::*;
use crate::tests::quiet;
use kprof::Config;
use kprof::format::line::Hex;
use kprof::format::serial;
use kprof::internals::Patience;

/// The lines of an export, without numbers and checksums.
fn lines(exported: &str) -> Vec<String> {
    let lines = exported.lines().map(|line| serial::read(line.as_bytes()).expect("a line of ours").expect("undamaged"));
    lines.map(|line| String::from_utf8(line.line.to_vec()).unwrap()).collect()
}

#[test]
fn each_kind_of_meta_record_is_a_line_with_the_values_of_its_record() {
    let (profiler, _) = quiet::machine(Config { tsc_hz: 1_000_000_000, ..Config::new() });
    let (shared, task) = (&profiler.instance.shared, Name::Raw(b"disk 0"));
    let (account, point, times) = ("bytes sent hits=2", "bytes sent count", "running=5");
    let (values, lockup, stack) = ("sent 8=1", "no-answer ticks=3", "1f ffffffff80001000,2");
    for (kind, tsc, values, text) in [
        (Kind::TaskName, 0x11, [7, 0, 0], "disk 0"),
        (Kind::Events, 0x13, [7, 2, 0], "page-faults=2"),
        (Kind::PointAccount, 0x14, [0, 3, 99], account),
        (Kind::Point, 0x15, [5, 0, 0], point),
        (Kind::TaskTimes, 0x16, [7, 8, 9], times),
        (Kind::PointValues, 0x17, [0; 3], values),
        (Kind::Lockup, 0x18, [7, 1, 0x99], lockup),
        (Kind::Lockup, 0x19, [NO_TASK, 2, 0x98], lockup),
        (Kind::LockupStack, 0x1a, [7, 1, 0x18], stack),
    ] {
        shared.meta.put_patiently(tsc, kind, values, text, Patience::us(1_000_000, 0));
    }
    let mut text = String::new();
    profiler.export_last(&mut text, 8).unwrap();
    let lines = lines(&text);
    let begin = lines.iter().position(|line| line.starts_with("# batch cpu=meta")).unwrap() + 2;
    let counters = line::Events::counters_of("page-faults=2");
    let expected = [
        line::Events { tsc: Hex(0x13), cpu: 2, counters, task }.to_string(),
        line::PointAccount::of_record(0x14, 3, 99, account).to_string(),
        line::Point::of_record(0x15, 5, point).to_string(),
        line::TaskTimes::of_record([7, 8, 9], times, task).to_string(),
        line::PointValues::of_record(0x17, values).to_string(),
        line::Lockup::of_record(0x18, 1, 0x99, lockup, Some(task)).to_string(),
        line::Lockup::of_record(0x19, 2, 0x98, lockup, None).to_string(),
        line::LockupStack::of_record(1, 0x18, stack, task).unwrap().to_string(),
    ];
    assert_eq!(lines[begin..begin + 8], expected);
}
