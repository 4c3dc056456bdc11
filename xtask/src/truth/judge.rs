//! The table of one profile: compares the shares of functions with the counted ones.
//!
//! In: a profile of a mix, the counted instructions of its pieces. Out: rows with verdicts, and the rows that do not
//! hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::basis::{Counted, z};
use super::{Case, PARTS, clock};
use crate::parts::Parts;
use crate::run;

const PREFIX: &str = "test_kernel::workload::truth::";

/// Samples by piece and part (empty: the whole piece).
type Samples = BTreeMap<(String, String), u64>;

/// The samples of one mix, and how many there are.
fn measured(folder: &Path, parts: &Parts, mix: &str, counted: &Counted) -> Result<(Samples, u64)> {
    let under = format!("{PREFIX}mix_{mix}");
    let mut fold = Command::new(&parts.fold);
    fold.args(["folded", "--quiet", "--under", &under]).arg(folder.join("profiling.txt")).arg(folder.join("kernel"));
    let folded = run::output(&mut fold)?;
    let pieces: Vec<&String> = counted.keys().filter(|name| PARTS.iter().all(|(part, _)| part != name)).collect();
    let (mut samples, mut all) = (Samples::new(), 0);
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a folded line ends with its count")?;
        let count: u64 = count.parse()?;
        let names: Vec<&str> = stack.split(';').map(|frame| frame.trim_end_matches(" (inlined)")).collect();
        let has = |name: &str| match name {
            "[interrupt]" => names.contains(&"[interrupt 240]"),
            _ => names.iter().any(|frame| frame.strip_prefix(PREFIX) == Some(name)),
        };
        let Some(piece) = pieces.iter().find(|piece| has(piece)) else { continue };
        all += count;
        *samples.entry(((*piece).clone(), String::new())).or_default() += count;
        for (part, _) in PARTS.iter().filter(|(part, of)| of == piece && has(part)) {
            *samples.entry(((*piece).clone(), (*part).to_owned())).or_default() += count;
        }
    }
    Ok((samples, all))
}

/// Prints the table of a profile, and returns the rows that do not hold.
pub fn judge(
    case: &Case,
    parts: &Parts,
    folder: &Path,
    counted: &BTreeMap<String, Counted>,
    cases: usize,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mixes: &[&str] = match case.workload {
        "truth-two" => &["a", "b"],
        "truth-loops" => &["b"],
        _ => &["a"],
    };
    println!("\n{}\n  true %  measured %    bound  verdict    function", case.title);
    for mix in mixes {
        let counted = counted.get(*mix).with_context(|| format!("mix {mix} was not counted"))?;
        let (samples, all) = measured(folder, parts, mix, counted)?;
        if all < least_samples(case) {
            bail!("{}: only {all} samples of mix {mix}", case.title);
        }
        let is_part = |name: &str| PARTS.iter().any(|(part, _)| *part == name);
        let whole: u64 = counted.iter().filter(|(name, _)| !is_part(name)).map(|(_, instructions)| instructions).sum();
        let mut rows: Vec<(&str, &str)> =
            counted.keys().filter(|name| !is_part(name)).map(|name| (name.as_str(), "")).collect();
        rows.extend(PARTS.iter().filter(|(_, of)| counted.contains_key(*of)).map(|(part, of)| (*of, *part)));
        for (piece, part) in &rows {
            let name = if part.is_empty() { piece } else { part };
            let truth = counted[*name] as f64 / whole as f64;
            let count = samples.get(&((*piece).to_owned(), (*part).to_owned())).copied().unwrap_or(0);
            let share = count as f64 / all as f64;
            let bound = z(rows.len() * cases) * (truth * (1.0 - truth) / all as f64).sqrt() + slack(case, truth);
            let holds = (share - truth).abs() <= bound;
            let verdict = match ((case.claims)(name), holds) {
                (true, true) => "right",
                (true, false) => "WRONG",
                (false, true) => "(right)",
                (false, false) => "(cannot)",
            };
            let within = if part.is_empty() { String::new() } else { format!(" in {piece}") };
            let row = format!(
                "{:8.3} {:11.3} {:8.3}  {verdict:<9}  {name}{within}",
                truth * 100.0,
                share * 100.0,
                bound * 100.0
            );
            println!("{row}");
            if verdict == "WRONG" {
                wrong.push(format!("{}: {row}", case.title));
            }
        }
    }
    wrong.extend(clock::of_file(case, folder)?);
    if case.trigger == "ipi" || case.trigger == "timer" {
        wrong.extend(off_time_at_one_place(case, folder)?);
    }
    Ok(wrong)
}

/// Samples without which nothing is judged. With a thread per CPU a busy host takes few; the bound is wider for fewer.
fn least_samples(case: &Case) -> u64 {
    if case.accel == "tcg" { 400 } else { 1000 }
}

/// What is added to the bound. With a thread per CPU the host influences how long code takes.
fn slack(case: &Case, truth: f64) -> f64 {
    if case.accel == "tcg" { truth / 4.0 } else { 0.0 }
}

/// With a trigger that is an interrupt, code with interrupts off is sampled at the instruction after the one that
/// enables them. So nearly all samples of `interrupts_off` must be at one address.
fn off_time_at_one_place(case: &Case, folder: &Path) -> Result<Vec<String>> {
    let symbols = std::fs::read_to_string(folder.join("syms.txt"))?;
    let name = format!("{PREFIX}interrupts_off");
    let line = symbols.lines().find(|line| line.ends_with(&name)).with_context(|| format!("no symbol {name}"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (start, size) = (u64::from_str_radix(words[0], 16)?, u64::from_str_radix(words[1], 16)?);
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let mut places: BTreeMap<u64, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let first = line.split(' ').nth(3).and_then(|word| u64::from_str_radix(word, 16).ok());
        if let Some(first) = first.filter(|first| (start..start + size).contains(first)) {
            *places.entry(first - start).or_default() += 1;
        }
    }
    let (all, most) = (places.values().sum::<u64>(), places.values().copied().max().unwrap_or(0));
    println!("interrupts off: {most} of {all} samples stand where they are turned on");
    let holds = all > 100 && most as f64 >= 0.97 * all as f64;
    Ok(if holds { vec![] } else { vec![format!("{}: interrupts-off time at {places:?}", case.title)] })
}
