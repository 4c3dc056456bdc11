//! The call tree: checks that at every instruction every caller is there and none is wrong.
//!
//! In: the disassembly, from which the right stack of each instruction is computed; and the stacks from the host tool
//! (`kprof-fold script`), which has already decided about candidates. Out: a table of instruction, hits, right, wrong,
//! missing.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::code::{Code, Function};
use super::markers::{MARKER_PAGE, SYSCALL};

/// The caller of the whole tree.
const CLIMB: &str = "test_kernel::workload::tree::climb";
/// This function moves rsp without making a frame. Its caller is then deeper than `[rsp]` and `[rsp+8]`, so it may be
/// missing but never wrong.
const BEYOND: &str = "tree_naked";

/// The judgement of the samples at an instruction.
#[derive(Default)]
struct Row {
    right: usize,
    wrong: Vec<Vec<u64>>,
    missing: Vec<Vec<u64>>,
}

/// Parses the stacks that the host tool prints: the instruction, then return addresses and markers.
///
/// # Errors
/// If an address cannot be parsed.
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
                // The address of a caller is printed one byte lower, so that it is in the call. Inlined frames have the
                // same address as the function that contains them.
                let is_caller = !stack.is_empty() && address < MARKER_PAGE;
                let address = address + u64::from(is_caller);
                if stack.last() != Some(&address) {
                    stack.push(address);
                }
            }
        }
    }
    Ok(stacks)
}

/// Judges all samples in the tree, and prints the table. Returns what is wrong.
///
/// # Errors
/// If the tree has a form that this file does not know.
pub fn judge(code: &Code, stacks: &[Vec<u64>]) -> Result<Vec<String>> {
    let functions: Vec<&Function> = code.beginning("tree_").collect();
    let calls = calls(code, &functions)?;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let mut outer: Option<Vec<u64>> = None;
    for stack in stacks {
        let Some((first, callers)) = stack.split_first() else { continue };
        let Some(function) = functions.iter().find(|function| function.place(*first).is_some()) else { continue };
        let inner = chain(function, &calls)?;
        let row = rows.entry(*first).or_default();
        let around = match callers.strip_prefix(&inner[..]) {
            Some(around) if around.last() == Some(&SYSCALL) => around,
            _ if is_part(callers, &inner) => {
                row.missing.push(callers.to_vec());
                continue;
            }
            _ => {
                row.wrong.push(callers.to_vec());
                continue;
            }
        };
        // The frames around the tree are of the same functions in every sample. (The compiler may have made two calls
        // of one, by taking the first round out of a loop.)
        let around =
            around.iter().map(|address| code.around(*address).map_or(*address, |it| it.instructions[0].address));
        let around: Vec<u64> = around.collect();
        match outer.get_or_insert_with(|| around.clone()) == &around {
            true => row.right += 1,
            false => row.wrong.push(callers.to_vec()),
        }
    }
    Ok(print(&functions, &rows))
}

/// Where each function of the tree is called: the return address, and the calling function. A function that is reached
/// by a jump has no return address of its own.
fn calls(code: &Code, functions: &[&Function]) -> Result<BTreeMap<String, (Option<u64>, String)>> {
    let mut calls = BTreeMap::new();
    let climb = code.named(CLIMB)?;
    for function in functions.iter().copied().chain([climb]) {
        let mut loaded = None;
        for (place, instruction) in function.instructions.iter().enumerate() {
            // `lea rax, [rip+0x1] # ADDRESS <name>` loads an address that is called through a register later.
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

/// The return addresses from a function of the tree up to the caller of the tree.
fn chain(function: &Function, calls: &BTreeMap<String, (Option<u64>, String)>) -> Result<Vec<u64>> {
    let mut chain = Vec::new();
    let mut name = &function.name;
    while let Some((back, caller)) = calls.get(name) {
        chain.extend(*back);
        name = caller;
    }
    if chain.is_empty() { bail!("{} has no callers", function.name) } else { Ok(chain) }
}

/// Whether the words before the frames around the tree are a part of `inner`, in the same order.
fn is_part(callers: &[u64], inner: &[u64]) -> bool {
    let mut rest = inner.iter();
    let taken = callers.iter().take_while(|word| rest.any(|right| right == *word)).count();
    // The outermost return address, and the frames around the tree, must be there.
    taken > 0 && callers.get(taken - 1) == inner.last() && callers.last() == Some(&SYSCALL)
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

/// Words as text.
pub fn hex(stack: &[u64]) -> String {
    stack.iter().map(|word| format!("{word:x}")).collect::<Vec<_>>().join(" ")
}
