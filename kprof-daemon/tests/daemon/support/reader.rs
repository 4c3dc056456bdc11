//! A reader of sample files that shares no code with the daemon and follows the text of docs/format.md.
//!
//! In: the bytes of one or more files, oldest first. Out: the samples that count. A batch without its end, or that does
//! not match its checksum, is void; a batch whose positions were already seen for that boot and CPU is skipped.

use kprof_format::chunk::{BadChunk, Chunk, ChunkKind};
use kprof_format::samples::{Reader, take_varint};
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Debug, Default)]
pub struct Reading {
    /// Every sample that counts: CPU and TSC, the part of its line after the name, and its name.
    pub samples: Vec<((u32, u64), String, String)>,
    pub void_batches: usize,
    pub skipped_batches: usize,
    pub corrupt_lines: usize,
    /// Lines that are not what was written, or in no batch although they should be; and the first one.
    pub damaged: usize,
    pub first_damage: Option<String>,
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

/// CRC-32/ISO-HDLC of the id of a boot, a line feed and the bytes of a batch.
fn checksum(boot: &str, batch: &str) -> u32 {
    static TABLE: std::sync::LazyLock<[u32; 256]> = std::sync::LazyLock::new(|| {
        std::array::from_fn(|byte| (0..8).fold(byte as u32, |rest, _| (rest >> 1) ^ ((rest & 1) * 0xedb8_8320)))
    });
    let bytes = boot.bytes().chain(*b"\n").chain(batch.bytes());
    !bytes.fold(u32::MAX, |rest, byte| (rest >> 8) ^ TABLE[usize::from(rest as u8 ^ byte)])
}

/// Reads files without damage.
pub fn read(files: &[Vec<u8>]) -> Reading {
    let reading = read_damaged(files);
    assert_eq!(reading.damaged, 0, "damage: {:?}", reading.first_damage);
    reading
}

/// A batch whose end has not been read yet.
struct Open {
    cpu: String,
    from: u64,
    to: u64,
    /// Where its first line begins.
    start: usize,
}

fn begin(line: &str, start: usize) -> Option<Open> {
    let number = |key| field(line, key)?.parse().ok();
    Some(Open { cpu: field(line, "cpu")?.to_owned(), from: number("from")?, to: number("to")?, start })
}

fn sample(line: &str) -> Option<((u32, u64), String, String)> {
    let [name, cpu, tsc, _, ..] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let key = (u32::from_str_radix(cpu, 16).ok()?, u64::from_str_radix(tsc, 16).ok()?);
    Some((key, line[name.len() + 1..].to_owned(), name.to_owned()))
}

fn account(line: &str) -> Option<(u32, BTreeMap<String, u64>)> {
    let counters = line.split(' ').skip(3).map(|word| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_owned(), value.parse().ok()?))
    });
    Some((field(line, "cpu")?.parse().ok()?, counters.collect::<Option<_>>()?))
}

/// Reads files in which anything may be damaged after the first line.
pub fn read_damaged(files: &[Vec<u8>]) -> Reading {
    let mut reading = Reading::default();
    let mut seen: BTreeMap<(String, String), u64> = BTreeMap::new();
    for bytes in files {
        let text = String::from_utf8_lossy(bytes);
        assert!(text.is_empty() || text.starts_with("# kprof-profile 1\n"), "{:?}", text.lines().next());
        let mut boot = String::new();
        let mut open: Option<Open> = None;
        let mut pending = Vec::new();
        let mut pending_meta = Vec::new();
        let mut next = 0;
        for line in text.split_inclusive('\n') {
            let start = next;
            next += line.len();
            let Some(line) = line.strip_suffix('\n') else { break };
            let words: Vec<&str> = line.split(' ').collect();
            let is_right = match words.as_slice() {
                ["#", "kprof-profile", "1"] => {
                    reading.headers += 1;
                    boot.clear();
                    true
                }
                ["#", "boot", id] => {
                    boot = (*id).to_owned();
                    true
                }
                ["#", "batch", ..] => {
                    reading.void_batches += usize::from(open.is_some());
                    pending.clear();
                    pending_meta.clear();
                    open = begin(line, start);
                    open.is_some()
                }
                ["#", "end", ..] => match open.take() {
                    Some(batch) if ends(line, &batch, &boot, &text[batch.start..start]) => {
                        if let Some(samples) = field(line, "samples") {
                            assert_eq!(samples.parse(), Ok(pending.len()), "{line}");
                        }
                        let last = seen.entry((boot.clone(), batch.cpu)).or_insert(0);
                        if batch.to <= *last {
                            reading.skipped_batches += 1;
                        } else {
                            assert!(batch.from >= *last, "a batch from {} overlaps what ends at {last}", batch.from);
                            *last = batch.to;
                            reading.samples.append(&mut pending);
                            reading.meta.append(&mut pending_meta);
                        }
                        pending.clear();
                        true
                    }
                    _ => false,
                },
                ["#", "account", ..] => account(line).map(|(cpu, all)| reading.accounts.insert(cpu, all)).is_some(),
                ["#", kind, ..] => {
                    reading.corrupt_lines += usize::from(*kind == "corrupt");
                    pending_meta.push(line.to_owned());
                    true
                }
                _ => match sample(line).filter(|_| open.is_some()) {
                    Some(sample) => {
                        pending.push(sample);
                        true
                    }
                    None => false,
                },
            };
            if !is_right {
                reading.damaged += 1;
                reading.first_damage.get_or_insert_with(|| line.to_owned());
            }
        }
        reading.void_batches += usize::from(open.is_some());
    }
    reading.ends = seen;
    reading
}

/// Whether this is the last line of the batch with this text.
fn ends(line: &str, batch: &Open, boot: &str, text: &str) -> bool {
    field(line, "cpu") == Some(&batch.cpu)
        && field(line, "to").and_then(|to| to.parse().ok()) == Some(batch.to)
        && field(line, "crc") == Some(&format!("{:08x}", checksum(boot, text)))
}

/// Converts a file of the binary form to the lines of the text form. An incomplete or damaged end is skipped.
pub fn text_of_binary(mut bytes: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    let mut names = BTreeMap::new();
    let mut reader = Reader::default();
    loop {
        let (chunk, rest) = match Chunk::split(bytes) {
            Ok(split) => split,
            Err(BadChunk::Incomplete { .. } | BadChunk::Checksum) => return with_checksums(&text).into_bytes(),
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
        reader.reset();
        let mut count = 0;
        while let Some(times) = reader.read(&mut samples) {
            let times = times.expect("a checked chunk holds whole samples");
            let name = names.get(&times.task).cloned().unwrap_or_else(|| format!("id{:x}", times.task));
            let cpu: u32 = cpu.parse().expect("a number");
            let _ = write!(text, "{name} {cpu:x} {:x}", times.tsc);
            for word in reader.stack() {
                let _ = write!(text, " {word:x}");
            }
            text.push('\n');
            count += 1;
        }
        assert_eq!(count, chunk.samples);
        let _ = writeln!(text, "# end cpu={cpu} to={to} samples={count}");
    }
}

/// Adds a checksum to the last line of each batch of `text`, as the text form has it.
fn with_checksums(text: &str) -> String {
    let (mut out, mut boot, mut start) = (String::new(), "", 0);
    for line in text.lines() {
        match line.split(' ').nth(1) {
            Some("boot") => boot = &line["# boot ".len()..],
            Some("batch") => start = out.len(),
            Some("end") => {
                let sum = checksum(boot, &out[start..]);
                let _ = writeln!(out, "{line} crc={sum:08x}");
                continue;
            }
            _ => {}
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}
