//! A reader of sample files that shares no code with the daemon and follows the text of docs/format.md.
//!
//! In: the bytes of one or more files, oldest first. Out: the samples that count. A batch without its end is void; a
//! batch whose positions were already seen for that boot and CPU is skipped.

use kprof_format::chunk::{BadChunk, Chunk, ChunkKind};
use kprof_format::samples::{Delta, take_varint};
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Debug, Default)]
pub struct Reading {
    /// Every sample that counts: CPU and TSC, the part of its line after the name, and its name.
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

/// Converts a file of the binary form to the lines of the text form. An incomplete or damaged end is skipped.
pub fn text_of_binary(mut bytes: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    let mut names = BTreeMap::new();
    let mut delta = Delta::default();
    loop {
        let (chunk, rest) = match Chunk::split(bytes) {
            Ok(split) => split,
            Err(BadChunk::Incomplete { .. } | BadChunk::Checksum) => return text.into_bytes(),
            Err(error) => panic!("{error:?}"),
        };
        bytes = rest;
        let mut payload = chunk.payload;
        if chunk.kind == ChunkKind::Lines {
            let lines = std::str::from_utf8(payload).expect("lines are ASCII");
            for line in lines.lines().filter(|line| line.starts_with("# task ")) {
                names.insert(
                    u64::from_str_radix(field(line, "id").expect("an id"), 16).expect("hex"),
                    field(line, "name").expect("a name").to_owned(),
                );
            }
            text.push_str(lines);
            continue;
        }
        let head = take_varint(&mut payload).expect("the length of the lines") as usize;
        let (lines, mut samples) = payload.split_at(head);
        let lines = std::str::from_utf8(lines).expect("lines are ASCII");
        text.push_str(lines);
        let (cpu, to) = (field(lines, "cpu").expect("a cpu"), field(lines, "to").expect("a position"));
        delta.reset();
        let mut count = 0;
        while let Some(times) = delta.read(&mut samples) {
            let times = times.expect("a checked chunk holds whole samples");
            let name = names.get(&times.task).cloned().unwrap_or_else(|| format!("id{:x}", times.task));
            let cpu: u32 = cpu.parse().expect("a number");
            let _ = write!(text, "{name} {cpu:x} {:x}", times.tsc);
            for word in delta.stack() {
                let _ = write!(text, " {word:x}");
            }
            text.push('\n');
            count += 1;
        }
        assert_eq!(count, chunk.samples);
        let _ = writeln!(text, "# end cpu={cpu} to={to} samples={count}");
    }
}
