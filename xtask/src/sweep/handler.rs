//! The handler's own instructions: what a nested NMI has interrupted, behind an `int3` in the first one.
//!
//! In: the lines `nested: ADDRESS HITS` of the log. Out: each instruction that can be reached from the NMI's entry, with its
//! hits. NMIs are blocked from the first instruction of the stub to the `iret` of the `int3`: none can come there.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::code::{Code, Function, Instruction};

/// Hits by address.
///
/// # Errors
/// If a line is not what it should be.
pub fn read_hits(log: &str, hits: &mut BTreeMap<u64, u64>) -> Result<()> {
    for line in log.lines().filter_map(|line| line.strip_prefix("nested: ")) {
        let (address, count) = line.split_once(' ').with_context(|| line.to_owned())?;
        *hits.entry(u64::from_str_radix(address, 16)?).or_default() += count.trim().parse::<u64>()?;
    }
    Ok(())
}

/// What only orders bring into the handler: the sweep's, the panic's.
fn is_the_sweeps(name: &str) -> bool {
    name == "test_kernel::cpu::trap::ordered"
}

/// Of the Rust handler this share must have been hit, in percent: the rest is what the compiler made for cases that cannot
/// come in this kernel (a tenth marker, more than three stacks), or that come too seldom (a nested NMI's nested NMI's end).
const LEAST_PERCENT: usize = 78;
/// Never reached in this kernel: a CPU that `init` was not told of.
const NOT_REACHED: [&str; 1] = ["kprof::handler::unknown_cpu"];

/// Prints each instruction of the handler with its hits, and what was never hit. What must have been and was not.
///
/// # Errors
/// If the kernel has no NMI entry.
pub fn judge(code: &Code, hits: &BTreeMap<u64, u64>) -> Result<Vec<String>> {
    let entry = code.named("nmi_entry")?;
    let mut functions = code.reached_from(entry.instructions[0].address, is_the_sweeps);
    functions.sort_by_key(|function| function.name != entry.name);
    let (mut failures, mut never) = (Vec::new(), Vec::new());
    let (mut instructions, mut hit) = (0, 0);
    for function in functions {
        let blocked = blocked(code, function);
        println!("{}", function.name);
        let mut not_hit = Vec::new();
        for (place, instruction) in function.instructions.iter().enumerate() {
            let (address, text) = (instruction.address, &instruction.text);
            let count = hits.get(&address).copied().unwrap_or(0);
            if place < blocked && count == 0 {
                println!("{address:x} blocked  {text}");
                continue;
            }
            println!("{address:x} {count:7}  {text}");
            instructions += 1;
            hit += usize::from(count > 0);
            if count == 0 {
                not_hit.push(format!("{address:x} {text}"));
            }
        }
        if function.name.starts_with("core::panicking::") || function.name.ends_with("_fail") {
            failures.push(format!("{}: the handler could panic", function.name));
        }
        // The stub itself has no cases: each instruction runs, and must be hit.
        if blocked > 0 {
            failures.extend(not_hit.iter().map(|text| format!("{}: {text}: never hit", function.name)));
        }
        if not_hit.len() == function.instructions.len() && !NOT_REACHED.contains(&&*function.name) {
            failures.push(format!("{}: never hit at all", function.name));
        }
        never.push((function, not_hit));
    }
    println!("\nnever hit:");
    for (function, not_hit) in never.iter().filter(|(_, not_hit)| !not_hit.is_empty()) {
        println!("{}: {} of {}", function.name, not_hit.len(), function.instructions.len());
        not_hit.iter().for_each(|text| println!("  {text}"));
    }
    let percent = hit * 100 / instructions.max(1);
    println!("handler: {} functions, {instructions} instructions, {hit} hit ({percent} %)\n", never.len());
    if percent < LEAST_PERCENT {
        failures.push(format!("only {percent} % of the handler's instructions were hit"));
    }
    Ok(failures)
}

/// How many instructions of the stub come before its call of the handler, and of the handler before its `int3`: NMIs are
/// blocked there.
fn blocked(code: &Code, function: &Function) -> usize {
    let place = match &*function.name {
        "nmi_entry" => function.instructions.iter().position(Instruction::is_call),
        "nmi_enter" => function.instructions.iter().position(|instruction| {
            instruction.target().and_then(|target| code.at(target)).is_some_and(|to| is_the_sweeps(&to.name))
        }),
        _ => None,
    };
    place.map_or(0, |place| place + 1)
}
