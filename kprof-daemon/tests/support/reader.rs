//! A reader of sample files that shares no code with the daemon: what counts, by the words of the format.
//!
//! In: the bytes of one or more files, oldest first. Out: the samples that count. A batch without its end is void; a batch
//! whose positions were already seen for that boot and CPU is skipped.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Reading {
    /// Every sample that counts: cpu and TSC, its line after the name, and its name.
    pub samples: Vec<((u32, u64), String, String)>,
    pub void_batches: usize,
    pub skipped_batches: usize,
    pub corrupt_lines: usize,
    pub headers: usize,
    /// The newest account of each CPU.
    pub accounts: BTreeMap<u32, BTreeMap<String, u64>>,
    pub meta: Vec<String>,
    /// Position up to which each stream of each boot has been read.
    pub ends: BTreeMap<(String, String), u64>,
}

fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(&format!("{key}=")))
}

pub fn read(files: &[Vec<u8>]) -> Reading {
    let mut reading = Reading::default();
    let mut seen: BTreeMap<(String, String), u64> = BTreeMap::new();
    for bytes in files {
        let text = std::str::from_utf8(bytes).expect("a sample file is ASCII");
        assert!(text.is_empty() || text.starts_with("# kprof-profile 1\n"), "{:?}", text.lines().next());
        let mut boot = String::new();
        let mut open: Option<(String, u64, u64)> = None;
        let mut pending = Vec::new();
        let mut pending_meta = Vec::new();
        for line in text.split_inclusive('\n') {
            let Some(line) = line.strip_suffix('\n') else { break };
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["#", "kprof-profile", "1"] => reading.headers += 1,
                ["#", "boot", id] => boot = (*id).to_owned(),
                ["#", "batch", ..] => {
                    reading.void_batches += usize::from(open.is_some());
                    pending.clear();
                    pending_meta.clear();
                    let number = |key| field(line, key).expect("a field").parse().expect("a number");
                    open = Some((field(line, "cpu").expect("cpu").to_owned(), number("from"), number("to")));
                }
                ["#", "end", ..] => {
                    let Some((cpu, from, to)) = open.take() else { continue };
                    assert_eq!(field(line, "cpu"), Some(cpu.as_str()));
                    assert_eq!(field(line, "to").and_then(|to| to.parse().ok()), Some(to));
                    if let Some(samples) = field(line, "samples") {
                        assert_eq!(samples.parse(), Ok(pending.len()), "{line}");
                    }
                    let last = seen.entry((boot.clone(), cpu)).or_insert(0);
                    if to <= *last {
                        reading.skipped_batches += 1;
                    } else {
                        assert!(from >= *last, "a batch from {from} overlaps what ends at {last}");
                        *last = to;
                        reading.samples.append(&mut pending);
                        reading.meta.append(&mut pending_meta);
                    }
                    pending.clear();
                }
                ["#", "account", ..] => {
                    let cpu = field(line, "cpu").expect("cpu").parse().expect("a number");
                    let counters = words[3..].iter().map(|word| {
                        let (key, value) = word.split_once('=').expect("key=value");
                        (key.to_owned(), value.parse().expect("a number"))
                    });
                    reading.accounts.insert(cpu, counters.collect());
                }
                ["#", kind, ..] => {
                    reading.corrupt_lines += usize::from(*kind == "corrupt");
                    pending_meta.push(line.to_owned());
                }
                [name, cpu, tsc, ..] => {
                    assert!(open.is_some(), "a sample outside a batch: {line}");
                    let cpu_number = u32::from_str_radix(cpu, 16).expect("a cpu");
                    let tsc_number = u64::from_str_radix(tsc, 16).expect("a TSC");
                    let rest = line[name.len() + 1..].to_owned();
                    pending.push(((cpu_number, tsc_number), rest, (*name).to_owned()));
                }
                _ => panic!("neither a sample nor a `#` line: {line:?}"),
            }
        }
        reading.void_batches += usize::from(open.is_some());
    }
    reading.ends = seen;
    reading
}
