//! The call tree: is every caller there at every instruction, and none wrong?
//!
//! In: the disassembly, from which the one right stack of each instruction follows, and the stacks as the host tool
//! gives them (`kprof-fold script`), candidates decided. Out: a table of instruction, hits, right, wrong, missing.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::code::{Code, Function};

/// The caller of the whole tree.
const CLIMB: &str = "test_kernel::workload::tree::climb";
/// Moves rsp without a frame. Its caller lies deeper than `[rsp]` and `[rsp+8]` then: it may be missing, never wrong.
const BEYOND: &str = "tree_naked";

/// What became of the samples at an instruction.
#[derive(Default)]
struct Row {
    right: usize,
    wrong: Vec<Vec<u64>>,
    missing: Vec<Vec<u64>>,
}

/// Stacks as the host tool prints them: the instruction, then return addresses and markers.
///
/// # Errors
/// If an address is none.
pub fn read_script(text: &str) -> Result<Vec<Vec<u64>>> {
    let mut stacks: Vec<Vec<u64>> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix('\t') {
            None if line.is_empty() => {}
            None => stacks.push(Vec::new()),
            Some(frame) => {
                let stack = stacks.last_mut().context("a frame without a sample")?;
                let address = frame.split(' ').next().unwrap_or_default();
                let address = u64::from_str_radix(address, 16).with_context(|| line.to_owned())?;
                // Callers are printed one byte lower: in their calls. Frames inlined into one another share an address.
                let is_caller = !stack.is_empty() && address < super::MARKER_PAGE;
                let address = address + u64::from(is_caller);
                if stack.last() != Some(&address) {
                    stack.push(address);
                }
            }
        }
    }
    Ok(stacks)
}

/// Judges all samples in the tree; prints the table. The number of instructions that were not right.
///
/// # Errors
/// If the tree is not what this file takes it for.
pub fn judge(code: &Code, stacks: &[Vec<u64>]) -> Result<Vec<String>> {
    let functions: Vec<&Function> = code.beginning("tree_").collect();
    let calls = calls(code, &functions)?;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let mut outer: Option<&[u64]> = None;
    for stack in stacks {
        let Some((first, callers)) = stack.split_first() else { continue };
        let Some(function) = functions.iter().find(|function| function.place(*first).is_some()) else { continue };
        let inner = chain(function, &calls)?;
        let row = rows.entry(*first).or_default();
        let around = match callers.strip_prefix(&inner[..]) {
            Some(around) if around.last() == Some(&super::SYSCALL) => around,
            _ if is_part(callers, &inner) => {
                row.missing.push(callers.to_vec());
                continue;
            }
            _ => {
                row.wrong.push(callers.to_vec());
                continue;
            }
        };
        // What is around the tree is the same always.
        match outer.get_or_insert(around) == &around {
            true => row.right += 1,
            false => row.wrong.push(callers.to_vec()),
        }
    }
    Ok(print(&functions, &rows))
}

/// Where each function of the tree is called: the return address, and whose call it is. A jump hands the caller on.
fn calls(code: &Code, functions: &[&Function]) -> Result<BTreeMap<String, (Option<u64>, String)>> {
    let mut calls = BTreeMap::new();
    let climb = code.named(CLIMB)?;
    for function in functions.iter().copied().chain([climb]) {
        let mut loaded = None;
        for (place, instruction) in function.instructions.iter().enumerate() {
            // `lea rax, [rip+0x1] # ADDRESS <name>`, and a call through it later.
            if let Some((_, target)) = instruction.text.split_once("# ") {
                loaded = target.split(' ').next().and_then(|target| u64::from_str_radix(target, 16).ok());
            }
            let target = match instruction.target() {
                None if instruction.is_call() => loaded,
                target => target,
            };
            let Some(callee) = target.and_then(|target| functions.iter().find(|f| f.instructions[0].address == target))
            else {
                continue;
            };
            let back = function.after(place).filter(|_| instruction.is_call());
            if calls.insert(callee.name.clone(), (back, function.name.clone())).is_some() {
                bail!("{} is called twice: its stack would not be one", callee.name);
            }
        }
    }
    match functions.iter().find(|function| !calls.contains_key(&function.name)) {
        Some(function) => bail!("{} is called by nobody", function.name),
        None => Ok(calls),
    }
}

/// The return addresses from a function of the tree out to the caller of the tree.
fn chain(function: &Function, calls: &BTreeMap<String, (Option<u64>, String)>) -> Result<Vec<u64>> {
    let mut chain = Vec::new();
    let mut name = &function.name;
    while let Some((back, caller)) = calls.get(name) {
        chain.extend(*back);
        name = caller;
    }
    if chain.is_empty() { bail!("{} has no callers", function.name) } else { Ok(chain) }
}

/// Whether the words before the frames around the tree are some of `inner`, in order.
fn is_part(callers: &[u64], inner: &[u64]) -> bool {
    let mut rest = inner.iter();
    let taken = callers.iter().take_while(|word| rest.any(|right| right == *word)).count();
    // The outermost one, and what is around it, must be there.
    taken > 0 && callers.get(taken - 1) == inner.last() && callers.last() == Some(&super::SYSCALL)
}

fn print(functions: &[&Function], rows: &BTreeMap<u64, Row>) -> Vec<String> {
    let mut failures = Vec::new();
    let (mut instructions, mut hits) = (0, 0);
    println!("{:16} {:>6} {:>6} {:>6} {:>7}  instruction", "address", "hits", "right", "wrong", "missing");
    for function in functions {
        println!("{}", function.name);
        for instruction in &function.instructions {
            let empty = Row::default();
            let row = rows.get(&instruction.address).unwrap_or(&empty);
            let (right, wrong, missing) = (row.right, row.wrong.len(), row.missing.len());
            let all = right + wrong + missing;
            let (address, text) = (instruction.address, &instruction.text);
            println!("{address:x} {all:6} {right:6} {wrong:6} {missing:7}  {text}");
            (instructions, hits) = (instructions + 1, hits + all);
            let place = format!("{}: {address:x} {text}", function.name);
            if all == 0 {
                failures.push(format!("{place}: never hit"));
            }
            failures.extend(row.wrong.first().map(|stack| format!("{place}: {wrong} wrong, such as {}", hex(stack))));
            if function.name != BEYOND {
                let said = |stack: &Vec<u64>| format!("{place}: {missing} lack a caller, such as {}", hex(stack));
                failures.extend(row.missing.first().map(said));
            }
        }
    }
    let beyond = functions.iter().find(|function| function.name == BEYOND);
    let is_beyond = |address: u64| beyond.is_some_and(|function| function.place(address).is_some());
    for (name, beyond) in [("call tree", false), ("beyond it, tree_naked", true)] {
        let total = |count: fn(&Row) -> usize| -> usize {
            rows.iter().filter(|(address, _)| is_beyond(**address) == beyond).map(|(_, row)| count(row)).sum()
        };
        println!(
            "{name}: {} right, {} wrong, {} missing",
            total(|row| row.right),
            total(|row| row.wrong.len()),
            total(|row| row.missing.len())
        );
    }
    println!("{instructions} instructions, {hits} hits\n");
    failures
}

fn hex(stack: &[u64]) -> String {
    stack.iter().map(|word| format!("{word:x}")).collect::<Vec<_>>().join(" ")
}
