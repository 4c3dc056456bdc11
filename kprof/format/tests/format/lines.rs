//! The `#` lines of the text form: what is printed is parsed as the same value, and a malformed line is an error.
//!
//! In: values of every kind, with names of any bytes; texts of any kind. Out: nothing, or the value that is not the
//! same. Two values are the same if their `Debug` texts are: these show the bytes of a name and the counters of a list.

use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::line::{
    Account, Anchor, BadLine, Batch, Checksum, Corrupt, Counters, Cpu, End, Events, FIRST_LINE, Header, Hex, Image,
    LINES, Line, List, Lockup, LockupStack, Mark, Name, Point, PointAccount, PointValues, Profile, Range, Setting,
    Stream, Task, TaskTimes, VERSION,
};
use kprof_format::lockup::{address_of_name, stack_of_text};
use proptest::prelude::*;
use std::fmt;

/// Parses a printed line.
fn parsed(text: &str) -> Result<Line<'_>, BadLine<'_>> {
    Line::parse(text.strip_prefix('#').expect("every line begins with #"))
}

/// Prints a line, and checks that it is one line and is parsed as the same value.
fn comes_back(line: Line<'_>) -> Result<(), TestCaseError> {
    let text = line.to_string();
    prop_assert!(text.starts_with("# ") && !text.contains(['\n', '\r']), "{text:?}");
    prop_assert!(text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "{text:?}");
    // Redox's old tool takes a line with a hex number as its second word for a sample.
    let second = text.split(' ').nth(1).unwrap_or_default();
    prop_assert!(second.bytes().any(|byte| !byte.is_ascii_hexdigit()), "{text:?}");
    match parsed(&text) {
        Ok(again) => {
            prop_assert_eq!(format!("{again:?}"), format!("{line:?}"));
            prop_assert_eq!(again.to_string(), text);
        }
        Err(bad) => prop_assert!(false, "{text:?}: {bad}"),
    }
    Ok(())
}

/// Names of any bytes, and often of those that need an escape. A single zero byte is the same name as the empty one.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(b" %\n\r\t#=0a\0\x7f\xff\x80".to_vec());
    let any_name = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(special, 0..6),
        Just(Vec::new()),
        Just(b"%00".to_vec()),
        Just(b"#".to_vec()),
    ];
    any_name.prop_filter("the same name as the empty one", |name| name != b"\0")
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Meta), any::<u32>().prop_map(Stream::Cpu), any::<u32>().prop_map(Stream::Event)]
}

/// Counters that this version knows, and one that it does not.
fn counters() -> impl Strategy<Value = Vec<(&'static str, u64)>> {
    let names: Vec<&str> = Counter::ALL.map(Counter::name).into_iter().chain(["lost-elsewhere"]).collect();
    prop::collection::vec((prop::sample::select(names), any::<u64>()), 0..12)
}

/// The word of a line that has fields.
fn known_word() -> impl Strategy<Value = String> {
    prop::sample::select(LINES.to_vec()).prop_map(|(word, _)| word.to_owned())
}

/// Gives these counters to `check` as a list.
fn listed<T>(counters: &[(&str, u64)], check: impl FnOnce(Counters<'_>) -> T) -> T {
    let list = |each: &mut dyn FnMut(&str, u64) -> fmt::Result| {
        counters.iter().try_for_each(|(name, value)| each(name, *value))
    };
    let list: List<'_> = &list;
    check(Counters::List(list))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_comes_back(
        cpu in stream(), from: u64, to: u64, first_tick: Option<u64>, last_tick: Option<u64>, snapshot: Option<u64>,
        list in counters(), boot in prop::option::of(name()),
    ) {
        listed(&list, |counters| {
            let boot = boot.as_deref().map(Name::Raw);
            let batch = Batch { cpu, from, to, first_tick, last_tick, counters, snapshot, boot };
            comes_back(Line::Batch(batch))
        })?;
    }

    #[test]
    fn an_end_comes_back(cpu in stream(), to: u64, samples: Option<u64>, crc: Option<u32>) {
        comes_back(Line::End(End { cpu, to, samples, crc: crc.map(Checksum) }))?;
    }

    #[test]
    fn an_account_comes_back(cpu: u32, list in counters()) {
        listed(&list, |counters| comes_back(Line::Account(Account { cpu: Cpu(cpu), counters })))?;
    }

    #[test]
    fn a_line_about_damage_comes_back(cpu in stream(), from: u64, words: u64, reason in name()) {
        comes_back(Line::Corrupt(Corrupt { cpu, from, words, reason: Name::Raw(&reason) }))?;
    }

    #[test]
    fn names_of_any_bytes_come_back(number: u64, name in name()) {
        let (number, name) = (Hex(number), Name::Raw(&name));
        comes_back(Line::Task(Task { id: number, name }))?;
        comes_back(Line::Mark(Mark { tsc: number, name }))?;
        comes_back(Line::Setting(Setting { tsc: number, value: name }))?;
        let text = name.to_string();
        prop_assert_eq!(Name::Escaped(text.as_bytes()), name);
    }

    #[test]
    fn events_come_back(tsc: u64, cpu: u64, list in counters(), task in name()) {
        let text: String = list.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let (tsc, task) = (Hex(tsc), Name::Raw(&task));
        let events = Events { tsc, cpu, counters: Events::counters_of(&text), task };
        comes_back(Line::Events(events))?;
        // The text of a record and a list of the same counters give the same line.
        listed(&list, |counters| {
            prop_assert_eq!(Events { counters, ..events }.to_string(), events.to_string());
            Ok(())
        })?;
    }

    #[test]
    fn the_account_of_a_point_comes_back(tsc: u64, cpu: u64, weight: u64, list in counters()) {
        let text: String = list.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let text = format!("ns block.read{text}");
        let account = PointAccount::of_record(tsc, cpu, weight, &text);
        comes_back(Line::PointAccount(account))?;
        comes_back(Line::PointAccount(PointAccount { cpu: None, ..account }))?;
        prop_assert_eq!((account.unit.to_string(), account.point.to_string()), ("ns".into(), "block.read".into()));
        let all: Vec<(&str, u64)> = account.counters.in_text().collect();
        prop_assert_eq!(all, list);
    }

    #[test]
    fn the_times_of_a_task_come_back(id: u64, from: u64, tsc: u64, list in counters(), task in name()) {
        let text: String = list.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let times = TaskTimes::of_record([id, from, tsc], &text, Name::Raw(&task));
        comes_back(Line::TaskTimes(times))?;
        let all: Vec<(&str, u64)> = times.counters.in_text().collect();
        prop_assert_eq!(all, list);
    }

    #[test]
    fn the_meaning_of_an_argument_comes_back(tsc: u64) {
        let values = PointValues::of_record(tsc, "sched.off-cpu running,idle,blocked.pipe");
        comes_back(Line::PointValues(values))?;
        let texts = [values.values, values.point].map(|name| name.to_string());
        prop_assert_eq!(texts, ["running,idle,blocked.pipe".to_owned(), "sched.off-cpu".to_owned()]);
    }

    #[test]
    fn a_point_comes_back(tsc: u64, id: u64) {
        let point = Point::of_record(tsc, id, "ns block.read every 10");
        comes_back(Line::Point(point))?;
        let names = [point.unit, point.name, point.state].map(|name| name.to_string());
        prop_assert_eq!(names, ["ns", "block.read", "every%2010"]);
    }

    #[test]
    fn a_lockup_and_its_stacks_come_back(tsc: u64, cpu: u64, from: u64, address: u64, count: u64, task in name()) {
        let text = format!("no-answer ticks=7 at-{address:x}={count}");
        let lockup = Lockup::of_record(tsc, cpu, from, &text, Some(Name::Raw(&task)));
        comes_back(Line::Lockup(lockup))?;
        comes_back(Line::Lockup(Lockup { task: None, ..lockup }))?;
        prop_assert_eq!([lockup.kind, lockup.reason].map(|name| name.to_string()), ["hard", "no-answer"]);
        let all: Vec<_> = lockup.counters.in_text().map(|(name, count)| (address_of_name(name), count)).collect();
        prop_assert_eq!(all, [(None, 7), (Some(address), count)]);
        let text = format!("{from:x} {address:x},1f");
        let stack = LockupStack::of_record(cpu, tsc, &text, Name::Raw(&task)).unwrap();
        comes_back(Line::LockupStack(stack))?;
        prop_assert_eq!(stack.tsc, Hex(from));
        prop_assert_eq!(stack_of_text(&stack.stack.to_string()).collect::<Vec<_>>(), [address, 0x1f]);
    }

    #[test]
    fn an_image_comes_back(tsc: u64, load: u64, from: u64, to: u64, build_id in name(), name in name()) {
        let (build_id, name) = (Name::Raw(&build_id), Name::Raw(&name));
        comes_back(Line::Image(Image { tsc: Hex(tsc), load: Hex(load), text: Range(from, to), build_id, name }))?;
    }

    #[test]
    fn the_lines_of_a_header_come_back(version: u32, value in "[!-~]([ -~]{0,30}[!-~])?", address: u64) {
        comes_back(Line::Profile(Profile { version }))?;
        comes_back(Line::Anchor(Anchor { name: &value, address }))?;
        for fact in Fact::HEADER {
            comes_back(Line::Header(Header { fact, value: &value }))?;
        }
        let word = format!("x-{version}");
        comes_back(Line::Unknown { word: &word, rest: &value })?;
    }

    #[test]
    fn any_text_is_a_line_or_an_error_and_never_a_panic(
        word in prop_oneof![known_word(), any::<String>()],
        fields in prop::collection::vec(("(cpu|from|to|tsc|id|name|text|load|.{0,3})", "=?", any::<String>()), 0..6),
    ) {
        let fields: String = fields.iter().map(|(key, sign, text)| format!(" {key}{sign}{text}")).collect();
        let text = format!("{word}{fields}");
        if let Ok(line) = Line::parse(&text) {
            let printed = line.to_string();
            let again = parsed(&printed).map(|again| format!("{again:?}"));
            prop_assert_eq!(again, Ok(format!("{line:?}")), "{:?}", text);
        }
    }
}

/// A line of each word, and the fields that it must have.
const WHOLE: [(&str, &str, &[&str]); LINES.len()] = [
    (
        "batch",
        "cpu=3 from=10 to=90 first-tick=1 last-tick=7 taken=7 lost-full=1 snapshot=1 boot=7",
        &["cpu", "from", "to"],
    ),
    ("end", "cpu=meta to=90 samples=7 crc=0123abcd", &["cpu", "to"]),
    ("account", "cpu=1 sent=9 taken=9", &["cpu"]),
    ("corrupt", "cpu=1 from=8 words=2 reason=no-record", &["cpu", "from", "words", "reason"]),
    ("task", "id=ff name=a%20b", &["id", "name"]),
    ("mark", "tsc=1f name=%00", &["tsc", "name"]),
    ("setting", "tsc=1f value=hz%202000", &["tsc", "value"]),
    ("events", "tsc=1f cpu=2 context-switches=1 interrupts=0 task=[other]", &["tsc", "cpu", "task"]),
    (
        "point-account",
        "tsc=1f cpu=2 weight=99 filtered=2 log2-6=2 unit=ns point=block.read",
        &["tsc", "weight", "unit", "point"],
    ),
    ("point", "tsc=1f id=2 unit=ns state=by-weight%2010 name=block.read", &["tsc", "id", "unit", "state", "name"]),
    ("task-times", "tsc=5f from=1f id=8 running=24 blocked.pipe=40 task=dd", &["tsc", "from", "id", "task"]),
    ("point-values", "tsc=1f values=running,blocked.pipe point=sched.off-cpu", &["tsc", "values", "point"]),
    (
        "lockup",
        "tsc=1f cpu=2 from=e kind=soft reason=one-task ticks=9 at-ff=9 task=sh",
        &["tsc", "cpu", "from", "kind", "reason"],
    ),
    ("lockup-stack", "of=1f cpu=2 tsc=d stack=ff,a task=sh", &["of", "cpu", "tsc", "stack", "task"]),
    ("image", "tsc=1 load=0 text=1000-2000 build-id=- name=kernel", &["tsc", "load", "text", "build-id", "name"]),
];

#[test]
fn a_line_without_a_field_is_an_error_that_names_the_field() {
    for (at, (word, rest, required)) in WHOLE.into_iter().enumerate() {
        assert_eq!(word, LINES[at].0);
        let text = format!("# {word} {rest}");
        assert_eq!(parsed(&text).map(|line| line.to_string()).as_deref(), Ok(&text[..]));
        for left_out in rest.split(' ') {
            let (key, _) = left_out.split_once('=').expect("a field");
            let others: Vec<&str> = rest.split(' ').filter(|field| *field != left_out).collect();
            let text = format!("{word} {}", others.join(" "));
            let error = Line::parse(&text).err();
            let expected = required.iter().find(|name| **name == key).map(|name| BadLine::Missing(name));
            assert_eq!(error, expected, "{text}");
        }
    }
}

#[test]
fn a_field_with_a_wrong_value_is_an_error_that_names_the_field() {
    let names =
        ["name", "value", "reason", "task", "build-id", "boot", "unit", "point", "state", "kind", "stack", "values"];
    for (word, rest, _) in WHOLE {
        for changed in rest.split(' ') {
            let (key, value) = changed.split_once('=').expect("a field");
            for wrong in ["", "-1", "+1", "0x1", "1_0", "99999999999999999999999", "x", "\u{661}"] {
                let text = format!("{word} {}", rest.replace(&format!("{key}={value}"), &format!("{key}={wrong}")));
                let error = Line::parse(&text).err().map(|bad| bad.to_string());
                if names.contains(&key) {
                    assert_eq!(error, None, "{text}");
                } else {
                    let begin = format!("{key}=`{wrong}` is not a");
                    assert!(error.is_some_and(|error| error.starts_with(&begin)), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_wrong_line_of_a_header_is_an_error_that_shows_its_text() {
    for (text, error) in [
        ("kprof-profile one", "kprof-profile `one` is not a version number"),
        ("kprof-profile 4294967296", "kprof-profile `4294967296` is not a version number"),
        ("kprof-profile", "kprof-profile `` is not a version number"),
        ("anchor kmain", "anchor `kmain` is not NAME=ADDRESS with a plain hexadecimal address"),
        ("anchor kmain=0x5", "anchor `kmain=0x5` is not NAME=ADDRESS with a plain hexadecimal address"),
    ] {
        assert_eq!(Line::parse(text).err().map(|bad| bad.to_string()).as_deref(), Some(error));
    }
}

#[test]
fn the_first_line_is_that_of_the_present_version() {
    assert_eq!(Profile { version: VERSION }.to_string(), FIRST_LINE);
    assert!(FIRST_LINE.starts_with(Profile::BEGINS));
}

#[test]
fn counters_of_a_record_cannot_replace_a_field_of_the_line() {
    let counters = Events::counters_of("interrupts=2 task=other tsc=7 page-faults=many");
    let text = Events { tsc: Hex(1), cpu: 0, counters, task: Name::Raw(b"a") }.to_string();
    assert_eq!(text, "# events tsc=1 cpu=0 interrupts=2 page-faults=many task=a");
    let error = parsed(&text).err().map(|bad| bad.to_string());
    assert_eq!(error.as_deref(), Some("page-faults=`many` is not a decimal number of 64 bits"));
}
