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
    all
}

fn name(symbols: &[Symbol], address: u64) -> String {
    let nearest = symbols.iter().map(|symbol| symbol.start).filter(|start| *start <= address).max();
    let mut here: Vec<&Symbol> = symbols.iter().filter(|symbol| Some(symbol.start) == nearest).collect();
    here.sort_by_key(|symbol| (symbol.size == 0, !symbol.global, symbol.name.clone(), symbol.size));
    match here.first() {
        Some(symbol) if symbol.size == 0 || address - symbol.start < symbol.size => symbol.name.replace(';', ":"),
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
        (symbol.size == 0 || offset < symbol.size) && (offset < 4 || offset + 1 == symbol.size)
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
    /// The first line of the batch cannot be read. The fields are its samples and the CPUs that they name.
    Nameless(Vec<Vec<u64>>, Vec<u64>),
    /// A batch whose first line was read: CPU, from, to, samples, lost-full.
    Read(u64, u64, u64, Vec<Vec<u64>>, u64),
}

/// The folded text, or `None` if the input is not a profile.
pub fn fold(profile: &str, syms: &str) -> Option<String> {
    let symbols = symbols(syms);
    if symbols.is_empty() {
        return None;
    }
    let mut counted: Vec<Vec<u64>> = Vec::new();
    let (mut is_kprof, mut any_header) = (false, false);
    let mut boot = String::new();
    let mut seen: HashMap<(String, u64), BTreeSet<u64>> = HashMap::new();
    let mut lost: BTreeMap<(String, u64, &str), u64> = BTreeMap::new();
    let mut account: HashMap<(String, u64), Vec<(&'static str, u64)>> = HashMap::new();
    let mut open: Option<Open> = None;
    // Whether there were samples outside of all batches since the last batch.
    let mut any_free = false;
    let mut headers = 0;
    let mut with_samples: BTreeSet<String> = BTreeSet::new();
    for line in profile.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.starts_with('#') && (is_kprof || sample(line).is_none()) {
            let key = line[1..].split_whitespace().next().unwrap_or("");
            if key == "boot" && !matches!(open, Some(Open::Read(..) | Open::Nameless(..))) {
                any_free = false;
            }
            match key {
                "kprof-profile" => {
                    is_kprof = true;
                    any_header = true;
                    open = None;
                    any_free = false;
                    headers += 1;
                    boot = format!("header {headers}");
                }
                "boot" if is_kprof => {
                    // The id identifies a header: a header with the same id belongs to the same boot. This line only
                    // counts before any data of its boot.
                    let id = line.split_whitespace().nth(2).unwrap_or("").to_owned();
                    let used = seen.keys().any(|(known, _)| *known == boot)
                        || account.keys().any(|(known, _)| *known == boot)
                        || with_samples.contains(&boot);
                    if !used {
                        boot = format!("boot {id}");
                    }
                }
                "batch" => {
                    let (cpu, from, to) = (field(line, "cpu"), field(line, "from"), field(line, "to"));
                    // A batch without its end counts, unless the next batch repeats it.
                    if let Some(Open::Read(cpu_before, from_before, to_before, samples, lost_full)) = open.take()
                        && !(cpu == Some(cpu_before) && from.is_some_and(|from| from <= from_before))
                    {
                        counted.extend(samples);
                        seen.entry((boot.clone(), cpu_before)).or_default().extend(from_before..to_before);
                        let before = lost.entry((boot.clone(), cpu_before, "lost-full")).or_default();
                        *before = lost_full.max(*before);
                    }
                    any_free = false;
                    open = Some(match (cpu, from, to) {
                        (Some(cpu), Some(from), Some(to)) => {
                            let known = seen.entry((boot.clone(), cpu)).or_default();
                            if (from..to).any(|position| known.contains(&position)) {
                                Open::Skipped
                            } else {
                                Open::Read(cpu, from, to, Vec::new(), field(line, "lost-full").unwrap_or(0))
                            }
                        }
                        _ => Open::Nameless(Vec::new(), Vec::new()),
                    });
                }
                "end" => {
                    let (cpu, to) = (field(line, "cpu"), field(line, "to"));
                    let is_readable = cpu.is_some() && to.is_some();
                    match open.take() {
                        Some(Open::Read(cpu_of, from, to_of, samples, lost_full))
                            if !is_readable || (cpu == Some(cpu_of) && to == Some(to_of)) =>
                        {
                            counted.extend(samples);
                            seen.entry((boot.clone(), cpu_of)).or_default().extend(from..to_of);
                            let before = lost.entry((boot.clone(), cpu_of, "lost-full")).or_default();
                            *before = lost_full.max(*before);
                        }
                        Some(Open::Nameless(samples, cpus)) if is_readable => {
                            let (cpu, to) = (cpu.unwrap(), to.unwrap());
                            let known = seen.entry((boot.clone(), cpu)).or_default();
                            let words: u64 = samples.iter().map(|words| 5 + words.len() as u64).sum();
                            let end =
                                (0..to).rev().find(|position| known.contains(position)).map_or(0, |last| last + 1);
                            let from = end.max(to.saturating_sub(words));
                            let is_new = from < to && !(from..to).any(|position| known.contains(&position));
                            if is_new && cpus.iter().all(|named| *named == cpu) {
                                counted.extend(samples);
                                known.extend(from..to);
                            }
                        }
                        None if is_readable && any_free => {
                            let (cpu, to) = (cpu.unwrap(), to.unwrap());
                            let known = seen.entry((boot.clone(), cpu)).or_default();
                            let from =
                                (0..to).rev().find(|position| known.contains(position)).map_or(0, |last| last + 1);
                            known.extend(from..to);
                        }
                        _ => {}
                    }
                }
                "account" => {
                    if let Some(cpu) = field(line, "cpu") {
                        let counters = ["lost-full", "lost-torn"].map(|name| (name, field(line, name).unwrap_or(0)));
                        account.insert((boot.clone(), cpu), counters.to_vec());
                    }
                }
                _ => {}
            }
            continue;
        }
        let Some(words) = sample(line) else { continue };
        match &mut open {
            Some(Open::Read(_, _, _, samples, _)) => samples.push(words),
            Some(Open::Nameless(samples, cpus)) => {
                samples.push(words);
                cpus.push(hex(line.split(' ').nth(1).unwrap(), 32).unwrap());
            }
            Some(Open::Skipped) => {}
            None => {
                any_free = true;
                counted.push(words);
                with_samples.insert(boot.clone());
            }
        }
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
