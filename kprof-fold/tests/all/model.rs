//! A second implementation of reading, symbolizing and folding that is slow but as simple as possible.

use std::collections::{BTreeMap, BTreeSet, HashMap};

fn hex(text: &str, bits: u32) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let value = u128::from_str_radix(text.trim_start_matches('0'), 16).or(if text.trim_matches('0').is_empty() {
        Ok(0)
    } else {
        Err(())
    });
    value.ok().filter(|value| *value < 1 << bits).map(|value| value as u64)
}

struct Symbol {
    start: u64,
    size: u64,
    global: bool,
    name: String,
}

fn symbols(text: &str) -> Vec<Symbol> {
    let mut all = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(4, ' ').collect();
        let (size, kind, name) = if fields[1].len() == 1 {
            (0, fields[1], fields[2..].join(" "))
        } else {
            (hex(fields[1], 64).unwrap(), fields[2], fields[3].to_owned())
        };
        if ["t", "T", "w", "W"].contains(&kind) {
            all.push(Symbol { start: hex(fields[0], 64).unwrap(), size, global: kind == "T" || kind == "W", name });
        }
    }
    // Of several symbols at one address only one counts, and a label within a sized function none.
    all.sort_by_key(|symbol| (symbol.start, symbol.size == 0, !symbol.global, symbol.name.clone(), symbol.size));
    all.dedup_by_key(|symbol| symbol.start);
    let sized: Vec<(u64, u64)> = all.iter().map(|symbol| (symbol.start, symbol.size)).collect();
    let is_within = |at: u64| {
        let before = sized.iter().rfind(|(start, size)| *start < at && *size > 0);
        before.is_some_and(|(start, size)| at - start < *size)
    };
    all.retain(|symbol| symbol.size > 0 || !is_within(symbol.start));
    all
}

/// How many bytes belong to a symbol.
fn reach(symbol: &Symbol) -> u64 {
    if symbol.size == 0 { 65536 } else { symbol.size }
}

fn name(symbols: &[Symbol], address: u64) -> String {
    let nearest = symbols.iter().map(|symbol| symbol.start).filter(|start| *start <= address).max();
    let mut here: Vec<&Symbol> = symbols.iter().filter(|symbol| Some(symbol.start) == nearest).collect();
    here.sort_by_key(|symbol| (symbol.size == 0, !symbol.global, symbol.name.clone(), symbol.size));
    match here.first() {
        Some(symbol) if address - symbol.start < reach(symbol) => symbol.name.replace(';', ":"),
        _ => "[unknown]".to_owned(),
    }
}

/// The symbol's own start and size, for candidates.
fn lacks_frame(symbols: &[Symbol], address: u64) -> bool {
    let nearest = symbols.iter().map(|symbol| symbol.start).filter(|start| *start <= address).max();
    let mut here: Vec<&Symbol> = symbols.iter().filter(|symbol| Some(symbol.start) == nearest).collect();
    here.sort_by_key(|symbol| (symbol.size == 0, !symbol.global, symbol.name.clone(), symbol.size));
    here.first().is_some_and(|symbol| {
        let offset = address - symbol.start;
        offset < reach(symbol) && (offset < 4 || offset + 1 == symbol.size)
    })
}

fn frames(symbols: &[Symbol], words: &[u64]) -> String {
    let mut frames = Vec::new();
    let (mut as_it_is, mut candidate, mut sampled) = (true, false, 0);
    for word in words {
        if *word >= 0xffff_ffff_ffff_f000 {
            let (kind, low) = (word >> 8 & 15, word & 255);
            match (kind, low) {
                (0, _) => continue,
                (5, 0) => break,
                (6, 0) => candidate = true,
                (1, 0) => frames.push("[entry]".to_owned()),
                (1, vector) => frames.push(format!("[interrupt {vector}]")),
                (2, vector) => frames.push(format!("[exception {vector}]")),
                (3, 0) => frames.push("[syscall]".to_owned()),
                (4, _) => frames.push("[truncated]".to_owned()),
                _ => frames.push("[unknown]".to_owned()),
            }
            if kind == 1 || kind == 2 {
                as_it_is = true;
            }
        } else if *word == 0xffff_ffff_ffff_effe {
            frames.push("[running]".to_owned());
            as_it_is = false;
        } else if word >> 63 == 0 {
            break;
        } else if candidate {
            candidate = false;
            if lacks_frame(symbols, sampled) {
                frames.push(name(symbols, word - 1));
            }
        } else {
            if as_it_is {
                sampled = *word;
            }
            frames.push(name(symbols, if as_it_is { *word } else { word - 1 }));
            as_it_is = false;
        }
    }
    if frames.is_empty() {
        frames.push("[unknown]".to_owned());
    }
    frames.reverse();
    frames.join(";")
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

fn sample(line: &str) -> Option<Vec<u64>> {
    let fields: Vec<&str> = line.split(' ').collect();
    if fields.len() < 4 || fields[0].is_empty() {
        return None;
    }
    hex(fields[1], 32)?;
    hex(fields[2], 64)?;
    fields[3..].iter().map(|field| hex(field, 64)).collect()
}

/// A batch between its first and its last line.
enum Open {
    /// The batch is skipped, because its positions were already read.
    Skipped,
    /// CPU, from, to, samples, lost-full, and the bytes that the checksum is of.
    Read(u64, u64, u64, Vec<Vec<u64>>, u64, String),
}

/// Adds a line to the bytes of the open batch.
fn push(open: &mut Option<Open>, line: &str) {
    if let Some(Open::Read(.., bytes)) = open {
        bytes.push_str(line);
        bytes.push('\n');
    }
}

/// CRC-32/ISO-HDLC, one bit at a time.
fn crc(bytes: &[u8]) -> u32 {
    let mut rest = u32::MAX;
    for byte in bytes {
        rest ^= u32::from(*byte);
        for _ in 0..8 {
            rest = (rest >> 1) ^ ((rest & 1) * 0xedb8_8320);
        }
    }
    !rest
}

/// The folded text, or `None` if the input is not a profile.
pub fn fold(profile: &str, syms: &str) -> Option<String> {
    let symbols = symbols(syms);
    if symbols.is_empty() {
        return None;
    }
    let mut counted: Vec<Vec<u64>> = Vec::new();
    // In a text without any header and batch, samples count anywhere.
    let (mut any_header, mut has_batches, mut headers) = (false, false, 0);
    let mut in_header = true;
    let (mut boot, mut id) = (String::new(), String::new());
    let mut seen: HashMap<(String, u64), BTreeSet<u64>> = HashMap::new();
    let mut lost: BTreeMap<(String, u64, &str), u64> = BTreeMap::new();
    let mut account: HashMap<(String, u64), Vec<(&'static str, u64)>> = HashMap::new();
    let mut open: Option<Open> = None;
    for line in profile.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.starts_with('#') && (any_header || sample(line).is_none()) {
            let key = line[1..].split_whitespace().next().unwrap_or("");
            let is_in_batch = matches!(open, Some(Open::Read(..)));
            let begins =
                ["kprof-profile", "batch", "end"].contains(&key) || (key == "boot" && !is_in_batch && in_header);
            if begins && !has_batches {
                has_batches = true;
                counted.clear();
            }
            if begins {
                in_header = key == "kprof-profile" || key == "boot";
            }
            match key {
                "kprof-profile" => {
                    any_header = true;
                    open = None;
                    headers += 1;
                    (boot, id) = (format!("header {headers}"), String::new());
                }
                "boot" if !is_in_batch && in_header => {
                    // The id identifies a header: a header with the same id belongs to the same boot. This line only
                    // counts before any data of its boot.
                    let named = line.split_whitespace().nth(2).unwrap_or("").to_owned();
                    let used =
                        seen.keys().any(|(known, _)| *known == boot) || account.keys().any(|(known, _)| *known == boot);
                    if !used {
                        id.clone_from(&named);
                        if any_header {
                            boot = format!("boot {named}");
                        }
                    }
                }
                "batch" => {
                    open = None;
                    if let (Some(cpu), Some(from), Some(to)) =
                        (field(line, "cpu"), field(line, "from"), field(line, "to"))
                    {
                        let known = seen.get(&(boot.clone(), cpu));
                        let is_known = |position: u64| known.is_some_and(|known| known.contains(&position));
                        let lost_full = field(line, "lost-full").unwrap_or(0);
                        open = Some(match (from..to).any(is_known) {
                            true => Open::Skipped,
                            false => Open::Read(cpu, from, to, Vec::new(), lost_full, format!("{id}\n")),
                        });
                    }
                }
                "end" => {
                    let written = line.split(' ').find_map(|word| hex(word.strip_prefix("crc=")?, 32));
                    if let Some(Open::Read(cpu, from, to, samples, lost_full, bytes)) = open.take()
                        && (field(line, "cpu"), field(line, "to")) == (Some(cpu), Some(to))
                        && written == Some(u64::from(crc(bytes.as_bytes())))
                    {
                        counted.extend(samples);
                        seen.entry((boot.clone(), cpu)).or_default().extend(from..to);
                        let before = lost.entry((boot.clone(), cpu, "lost-full")).or_default();
                        *before = lost_full.max(*before);
                    }
                }
                "account" => {
                    if is_in_batch {
                        open = None;
                    }
                    if let Some(cpu) = field(line, "cpu") {
                        let counters = ["lost-full", "lost-torn"].map(|name| (name, field(line, name).unwrap_or(0)));
                        account.insert((boot.clone(), cpu), counters.to_vec());
                    }
                }
                _ => {}
            }
        } else {
            // In the text of a file with batches, a line outside of them ends a header.
            in_header &= !(has_batches && open.is_none());
            let Some(words) = sample(line) else {
                push(&mut open, line);
                continue;
            };
            match &mut open {
                Some(Open::Read(_, _, _, samples, ..)) => samples.push(words),
                None if !has_batches => counted.push(words),
                Some(Open::Skipped) | None => {}
            }
        }
        push(&mut open, line);
    }
    if counted.is_empty() && !any_header {
        return None;
    }
    for ((boot, cpu), counters) in account {
        for (name, value) in counters {
            let before = lost.entry((boot.clone(), cpu, name)).or_default();
            *before = value.max(*before);
        }
    }
    let mut folded: BTreeMap<String, u64> = BTreeMap::new();
    for words in counted.iter().filter(|words| words[0] >> 63 == 1) {
        *folded.entry(frames(&symbols, words)).or_default() += 1;
    }
    let mut text: String = folded.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect();
    let lost: u64 = lost.values().sum();
    if lost > 0 {
        text.push_str(&format!("[lost] {lost}\n"));
    }
    Some(text)
}
