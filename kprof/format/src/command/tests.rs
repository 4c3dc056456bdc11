//! Tests of the parent module.

use super::*;
use std::string::ToString;

#[test]
fn every_command_of_the_contract_is_understood() {
    let cases = [
        ("start", Command::Start),
        ("1", Command::Start),
        ("copy 1", Command::Copy(true)),
        ("copy 0", Command::Copy(false)),
        ("0", Command::Stop),
        ("hz 20000", Command::Set(Setting::Hz(20_000))),
        ("hz 100000 force", Command::Set(Setting::Hz(100_000))),
        ("interval fixed", Command::Set(Setting::RandomInterval(false))),
        ("seed 18446744073709551615", Command::Set(Setting::Seed(u64::MAX))),
        ("include idle", Command::Set(Setting::IncludeIdle(true))),
        ("exclude user", Command::Set(Setting::IncludeUser(false))),
        ("depth 250", Command::Set(Setting::Depth(250))),
        ("mark two words", Command::Mark("two words")),
        ("ack 3 1024", Command::Ack(StreamName::Cpu(3), 1024)),
        ("ack event-3 1024", Command::Ack(StreamName::Event(3), 1024)),
        ("ack meta 8", Command::Ack(StreamName::Meta, 8)),
        ("wait 100", Command::WaitMs(100)),
        ("wait 18446744073709551615", Command::WaitMs(60_000)),
        ("lease", Command::Lease),
        ("probe ffffffff80208c20 f1", Command::Probe(ProbePlaces::parse("ffffffff80208c20 f1").unwrap())),
        ("unprobe all", Command::Unprobe(Removed::All)),
        ("unprobe lease", Command::Unprobe(Removed::OfLease)),
        ("unprobe ffffffff80208c20", Command::Unprobe(Removed::One(0xffff_ffff_8020_8c20))),
        ("stop", Command::Stop),
        ("protocol 1", Command::Protocol(true)),
        ("protocol 0", Command::Protocol(false)),
        ("interval random", Command::Set(Setting::RandomInterval(true))),
        ("backoff on", Command::Set(Setting::Backoff(true))),
        ("backoff off", Command::Set(Setting::Backoff(false))),
        ("cpus all", Command::Cpus(CpuList("all"))),
        ("cpus 1,3", Command::Cpus(CpuList("1,3"))),
        ("mode drop", Command::Set(Setting::Mode(Mode::Drop))),
        ("mode overwrite", Command::Set(Setting::Mode(Mode::Overwrite))),
        ("lockup 10000", Command::Set(Setting::Lockup(10_000))),
        ("lockup off", Command::Set(Setting::Lockup(0))),
        ("freeze", Command::Freeze),
        ("thaw", Command::Thaw),
        ("flush", Command::Flush),
        ("event block.* count", Command::Event(Points::of("block.*").unwrap(), PointState::Count)),
        ("event * record", Command::Event(Points::of("*").unwrap(), PointState::Record)),
        ("event a every 10", Command::Event(Points::of("a").unwrap(), PointState::Every(10))),
        ("event a by-weight 4096", Command::Event(Points::of("a").unwrap(), PointState::ByWeight(4096))),
        ("event block.read off", Command::Event(Points::of("block.read").unwrap(), PointState::Off)),
    ];
    for verb in Verb::ALL {
        assert!(cases.iter().any(|(_, command)| command.verb() == verb), "{verb} is not tried");
    }
    for (line, command) in cases {
        assert_eq!(Command::parse(line.as_bytes()), Ok(command), "{line}");
        // A printed command parses to the same command.
        let printed = command.to_string();
        assert_eq!(Command::parse(printed.as_bytes()), Ok(command), "{printed}");
    }
}

#[test]
fn what_is_no_command_is_refused() {
    for line in [
        "",
        "begin",
        "start now",
        "hz",
        "hz 0",
        "hz 20001",
        "hz 100001 force",
        "hz -1",
        "depth 0",
        "depth 251",
        "cpus",
        "cpus 1,,2",
        "cpus a",
        "mark",
        "ack 1",
        "ack x 5",
        "ack 1 -5",
        "wait",
        "protocol 2",
        "interval",
        "lockup",
        "lockup 0",
        "lockup 3600001",
        "lockup on",
        "include all",
        "event",
        "hz +5",
        "seed +1",
        "depth +9",
        "cpus 1,+2",
        "lockup +100",
        "wait +1",
        "ack +1 5",
        "ack 1 +5",
        "ack event-+1 5",
        "event block.read every +3",
        "event block.read",
        "event block.read on",
        "event block.read every",
        "event block.read every 0",
        "event block.read by-weight -1",
        "ack event- 5",
        "event block*read off",
        "event  off",
    ] {
        assert!(Command::parse(line.as_bytes()).is_err(), "{line}");
    }
    assert!(Command::parse(b"mark \xff").is_err());
}

#[test]
fn a_cpu_list_knows_its_members() {
    let Ok(Command::Cpus(list)) = Command::parse(b"cpus 1,3") else { panic!("not a list") };
    assert_eq!([0, 1, 2, 3].map(|cpu| list.contains(cpu)), [false, true, false, true]);
    assert_eq!(list.greatest(), Some(3));
}
