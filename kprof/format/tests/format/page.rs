//! Compares `docs/format.md` with the code: every key, counter, command, line, record kind and marker kind, in
//! both directions.
//!
//! In: the page. Out: nothing, or what is in only one of the two. Runs in: the repository. The published package does
//! not have this test, because it does not have the page.

use kprof_format::command::Verb;
use kprof_format::counter::{Counter, EventCounter, MetaCounter};
use kprof_format::fact::Fact;
use kprof_format::line::{FIRST_LINE, LINES, RECORDING_LINE};
use kprof_format::marker::Marker;
use kprof_format::record::Kind;
use std::collections::{BTreeMap, BTreeSet};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The paragraph that begins with `begins`.
fn paragraph<'a>(page: &'a str, begins: &str) -> &'a str {
    let found = page.split("\n\n").find(|text| text.starts_with(begins));
    found.unwrap_or_else(|| panic!("docs/format.md has no paragraph that begins with {begins:?}"))
}

/// The texts between backquotes.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The words that are numbers, outside of brackets.
fn numbers(text: &str) -> BTreeSet<u8> {
    let mut depth = 0;
    let outside: String = text
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(');
            let is_outside = depth == 0;
            depth -= i32::from(*letter == ')');
            is_outside
        })
        .collect();
    outside.split([' ', '\n']).filter_map(|word| word.parse().ok()).collect()
}

fn names<const N: usize>(all: [&'static str; N]) -> BTreeSet<&'static str> {
    all.into_iter().collect()
}

#[test]
fn every_key_of_ctl_stands_in_the_page_and_no_other() {
    let page = page();
    assert_eq!(quoted(paragraph(&page, "Facts: ")), names(Fact::ALL.map(Fact::name)));
    assert_eq!(quoted(paragraph(&page, "Counters of each CPU")), names(Counter::ALL.map(Counter::name)));
    assert_eq!(quoted(paragraph(&page, "Counters of the meta stream")), names(MetaCounter::ALL.map(MetaCounter::name)));
    let events = paragraph(&page, "Counters of the event streams");
    assert_eq!(quoted(events), names(EventCounter::ALL.map(EventCounter::name)));
}

#[test]
fn every_fact_of_a_header_stands_in_its_line_of_the_page_and_no_other() {
    let page = page();
    let line = page.lines().find(|line| line.starts_with("| `# KEY VALUE` |")).expect("the line of the facts");
    let mut facts = quoted(line);
    facts.remove("# KEY VALUE");
    assert_eq!(facts, names(Fact::HEADER.map(Fact::name)));
}

#[test]
fn every_line_of_the_text_form_stands_in_the_page_with_its_fields_and_no_other() {
    let page = page();
    let table = paragraph(&page, "| line | meaning |");
    assert!([FIRST_LINE, RECORDING_LINE].iter().all(|line| table.contains(&format!("| `{line}` |"))));
    let is_counter = |key: &str| Counter::of(key).is_some() || key.bytes().all(|byte| byte.is_ascii_uppercase());
    let mut stands: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in table.lines().skip(2) {
        let cells: Vec<&str> = row.split('|').collect();
        for line in quoted(cells[1]).into_iter().filter_map(|line| line.strip_prefix("# ")) {
            // An optional field may stand in the meaning.
            let fields = quoted(cells[2]).into_iter().chain(line.split(' ')).filter_map(|field| field.split_once('='));
            let keys = fields.map(|(key, _)| key).filter(|key| !is_counter(key));
            stands.entry(line.split(' ').next().unwrap_or_default()).or_default().extend(keys);
        }
    }
    // `# KEY VALUE` and `# anchor NAME=ADDRESS` have no fields.
    for word in ["kprof-profile", "recorder", "KEY", "anchor"] {
        assert_eq!(stands.remove(word), Some(BTreeSet::new()), "{word}");
    }
    let known = LINES.map(|(word, keys)| (word, keys.iter().copied().filter(|key| !key.is_empty()).collect()));
    assert_eq!(stands, known.into_iter().collect());
}

#[test]
fn every_command_stands_in_the_page_and_no_other() {
    let page = page();
    let table = paragraph(&page, "| command | effect |");
    let commands: BTreeSet<&str> = table
        .lines()
        .skip(2)
        .flat_map(|row| quoted(row.split('|').nth(1).unwrap_or_default()))
        .map(|command| command.split(' ').next().unwrap_or_default())
        .filter(|word| !["0", "1"].contains(word))
        .collect();
    assert_eq!(commands, names(Verb::ALL.map(Verb::name)));
}

#[test]
fn every_kind_of_record_stands_in_the_page_and_no_other() {
    let page = page();
    let (samples, meta): (Vec<u8>, Vec<u8>) = Kind::ALL.iter().map(|kind| *kind as u8).partition(|kind| *kind < 16);
    // Numbers in brackets are parts of values, not kinds.
    let listed = numbers(paragraph(&page, "Meta kinds: "));
    let range = format!("(kinds {} to {})", meta[0], meta[meta.len() - 1]);
    assert_eq!(listed, meta.into_iter().collect());
    for kind in samples {
        assert!(page.contains(&format!("(kind {kind})")), "kind {kind}");
    }
    assert!(page.contains(&range), "{range}");
}

#[test]
fn every_kind_of_marker_stands_in_the_page_and_no_other() {
    let page = page();
    let known = (0..16_u8).filter(|kind| {
        let word = |low: u64| 0xffff_ffff_ffff_f000 | u64::from(*kind) << 8 | low;
        (0..=255).any(|low| !matches!(Marker::decode(word(low)), Some(Marker::Unknown { .. })))
    });
    let text = paragraph(&page, "Markers are addresses");
    // The list begins after the form of the word, which also has a number.
    let text = text.splitn(3, '`').nth(2).unwrap_or_default();
    let list = text.split_once("Words that user code").map_or(text, |(list, _)| list);
    assert_eq!(numbers(list), known.collect());
}
