//! Compares the stacks of the samples with the callers that there were.
//!
//! In: the ordered ticks, and the stacks of the profile. Out: a table of functions, and what is wrong.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// A tick that was taken before the instruction at `pc`.
#[derive(Clone, Debug)]
pub struct Order {
    pub pc: u64,
    /// Its callers, innermost first.
    pub callers: Vec<u64>,
}

/// The kernel's functions.
pub struct Names {
    /// More than one may be at an address.
    by_address: BTreeMap<u64, Vec<String>>,
    stubs: std::ops::Range<u64>,
}

impl Names {
    /// By what `nm -CS` prints.
    ///
    /// # Errors
    /// If the entry stubs are not there.
    pub fn of(symbols: &str) -> Result<Self> {
        let mut by_address = BTreeMap::new();
        for line in symbols.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let kind = words.iter().position(|word| ["t", "T"].contains(word));
            let (Some(kind), Some(Ok(address))) = (kind, words.first().map(|word| u64::from_str_radix(word, 16)))
            else {
                continue;
            };
            // Labels that the compiler leaves inside functions of riscv64, for the relocations there.
            if words.get(kind + 1).is_none_or(|name| name.starts_with(".L")) {
                continue;
            }
            by_address.entry(address).or_insert_with(Vec::new).push(words[kind + 1..].join(" "));
        }
        let mut names = Self { by_address, stubs: 0..0 };
        names.stubs = names.address("stubs")?..names.address("stubs_end")?;
        Ok(names)
    }

    /// The address of a function.
    ///
    /// # Errors
    /// If the kernel has no such function.
    pub fn address(&self, name: &str) -> Result<u64> {
        // Mangled names may end with a hash.
        let is_it =
            |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::h"));
        let found = self.by_address.iter().find(|(_, others)| others.iter().any(|other| is_it(other)));
        found.map(|(address, _)| *address).with_context(|| format!("the kernel has no {name}"))
    }

    /// The function at an address.
    pub fn at(&self, address: u64) -> &str {
        self.by_address.range(..=address).next_back().map_or("", |(_, names)| &names[names.len() - 1])
    }
}

/// What is said of an ordered tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// In an entry stub: nothing but the stub.
    Alone,
    Missing,
    Wrong,
}

/// The length of a breakpoint's instruction.
const BREAKPOINT: u64 = 4;

/// Markers of exceptions.
const EXCEPTIONS: std::ops::Range<u64> = super::EXCEPTION..super::EXCEPTION + 0x100;
/// Markers of walks that were truncated.
const TRUNCATED: std::ops::Range<u64> = super::MARKERS + 0x400..super::MARKERS + 0x500;

/// Judges all samples, and prints the table. Returns what is wrong.
///
/// # Errors
/// If the profile does not have the ordered samples.
pub fn judge(names: &Names, orders: &[Order], masked: &BTreeSet<u64>, stacks: &[Vec<u64>]) -> Result<Vec<String>> {
    let is_here = |start: &usize| {
        let here = stacks[*start..].iter().zip(orders);
        here.filter(|(stack, order)| stack.first() == Some(&order.pc)).count() == orders.len()
    };
    let start = (0..stacks.len()).find(is_here);
    let start = start.with_context(|| format!("the profile lacks some of {} samples, in this order", orders.len()))?;
    let mut table = BTreeMap::<&str, (BTreeSet<u64>, [usize; 4])>::new();
    let mut failures = Vec::new();
    for (order, stack) in orders.iter().zip(&stacks[start..]) {
        let verdict = verdict(order, &stack[1..], names.stubs.contains(&order.pc));
        let (places, counts) = table.entry(names.at(order.pc)).or_default();
        places.insert(order.pc);
        counts[verdict as usize] += 1;
        if [Verdict::Missing, Verdict::Wrong].contains(&verdict) {
            let (right, found) = (super::super::tree::hex(&order.callers), super::super::tree::hex(&stack[1..]));
            let name = names.at(order.pc);
            failures.push(format!("{name}: {:x}: {verdict:?}: {found}, and the callers are {right}", order.pc));
        }
    }
    println!(
        "{:>12} {:>6} {:>6} {:>6} {:>7} {:>6}  function",
        "instructions", "hits", "right", "alone", "missing", "wrong"
    );
    let row = |name: &str, places: usize, counts: [usize; 4]| {
        let [right, alone, missing, wrong] = counts;
        let hits: usize = counts.iter().sum();
        println!("{places:12} {hits:6} {right:6} {alone:6} {missing:7} {wrong:6}  {name}");
    };
    let mut sum = (0, [0; 4]);
    for (name, (places, counts)) in &table {
        row(name, places.len(), *counts);
        sum.0 += places.len();
        sum.1.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    row("together", sum.0, sum.1);
    println!("{} instructions before which NMIs are masked\n", masked.len());
    Ok(failures)
}

fn verdict(order: &Order, found: &[u64], is_stub: bool) -> Verdict {
    let has_truncated = found.last().is_some_and(|word| TRUNCATED.contains(word));
    let frames = if has_truncated { &found[..found.len() - 1] } else { found };
    if is_stub && frames.is_empty() {
        return Verdict::Alone;
    }
    let mut places = 0..order.callers.len();
    if !frames.iter().all(|found| places.any(|at| is_same(&order.callers, at, *found))) {
        return Verdict::Wrong;
    }
    let is_whole = !has_truncated && frames.len() == order.callers.len();
    if is_whole { Verdict::Right } else { Verdict::Missing }
}

/// Whether a word of a stack is the caller at this place. An interrupted instruction after a marker is printed as it
/// is, and was read as a return address. The kernel goes on after a breakpoint: it has changed that address then.
fn is_same(callers: &[u64], at: usize, found: u64) -> bool {
    let right = callers[at];
    let is_breakpoint = at > 0 && EXCEPTIONS.contains(&callers[at - 1]);
    found == right || found == right + 1 || is_breakpoint && found == right + 1 + BREAKPOINT
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: u64 = super::super::INTERRUPT;

    #[test]
    fn a_caller_that_is_missing_or_wrong_is_noticed_and_a_stub_may_be_alone() {
        let order = Order { pc: 1, callers: vec![10, MARKER, 20, 30] };
        let of = |found: &[u64], is_stub| verdict(&order, found, is_stub);
        assert_eq!(of(&[10, MARKER, 21, 30], false), Verdict::Right);
        assert_eq!(of(&[10, MARKER, 30], false), Verdict::Missing);
        assert_eq!(of(&[10, MARKER, 20, 30, 40], false), Verdict::Wrong);
        assert_eq!(of(&[10, MARKER, 25, 30], true), Verdict::Wrong);
        assert_eq!(of(&[10, MARKER, 30, 20], false), Verdict::Wrong);
        assert_eq!(of(&[TRUNCATED.start + 1], true), Verdict::Alone);
        assert_eq!(of(&[TRUNCATED.start + 1], false), Verdict::Missing);
        let order = Order { pc: 1, callers: vec![super::super::EXCEPTION + 3, 20, 30] };
        let of = |interrupted| verdict(&order, &[super::super::EXCEPTION + 3, interrupted, 30], false);
        assert_eq!([21, 25, 26].map(of), [Verdict::Right, Verdict::Right, Verdict::Wrong]);
    }

    #[test]
    fn the_samples_of_the_sweep_are_found_among_others() {
        let names = Names::of(
            "ff00 T stubs\nff40 T stubs_end\n\
             0010 0000000000000008 t bare_virt::work::round::h0123\n0011 t .L0 \n0 n nothing\n",
        );
        let names = names.unwrap();
        assert_eq!(
            (names.address("bare_virt::work::round").unwrap(), names.at(0x12)),
            (16, "bare_virt::work::round::h0123")
        );
        let orders = [1, 2].map(|pc| Order { pc, callers: vec![9] });
        let stack = |pc: u64, caller: u64| vec![pc, caller];
        let all = |second| [stack(2, 9), stack(1, 9), stack(2, second), stack(1, 9)];
        let failures = |second| judge(&names, &orders, &BTreeSet::new(), &all(second)).unwrap().len();
        assert_eq!((failures(9), failures(8)), (0, 1));
        assert!(judge(&names, &orders, &BTreeSet::new(), &all(9)[..2]).is_err());
    }
}
