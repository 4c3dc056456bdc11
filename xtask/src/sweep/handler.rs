//! The handler's own instructions: what a nested NMI has interrupted, behind an exception in the first one.
//!
//! In: the lines `nested: ADDRESS HITS` of the log. Out: each instruction that can be reached from the NMI's entry, with its
//! hits; each must have some. NMIs are blocked from the first instruction of the stub to the `iret` of the `int3`: none can
//! come there. What fills the gap behind a jump is no instruction.

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

/// Prints each instruction of the handler with its hits. What is not as it should be.
///
/// # Errors
/// If the kernel has no NMI entry.
pub fn judge(code: &Code, hits: &BTreeMap<u64, u64>) -> Result<Vec<String>> {
    let entry = code.named("nmi_entry")?;
    let mut functions = code.reached_from(entry.instructions[0].address, is_the_sweeps);
    functions.sort_by_key(|function| function.name != entry.name);
    let mut failures = Vec::new();
    let (mut instructions, mut hit, mut blocked) = (0, 0, 0);
    for function in &functions {
        let first_free = first_free(code, function);
        println!("{}", function.name);
        for (place, instruction) in function.instructions.iter().enumerate() {
            let (address, text) = (instruction.address, &instruction.text);
            let count = hits.get(&address).copied().unwrap_or(0);
            if place < first_free && count == 0 {
                println!("{address:x} blocked  {text}");
                blocked += 1;
                continue;
            }
            if function.is_padding(place) {
                println!("{address:x} padding  {text}");
                continue;
            }
            println!("{address:x} {count:7}  {text}");
            instructions += 1;
            hit += usize::from(count > 0);
            if count == 0 {
                failures.push(format!("{}: {address:x} {text}: never hit", function.name));
            }
        }
        if function.name.starts_with("core::panicking::") || function.name.ends_with("_fail") {
            failures.push(format!("{}: the handler could panic", function.name));
        }
    }
    let never = instructions - hit;
    println!(
        "handler: {} functions, {instructions} instructions, {never} never hit; {blocked} where NMIs are blocked\n",
        functions.len()
    );
    Ok(failures)
}

/// How many instructions of the stub come before its call of the handler, and of the handler before its `int3`: NMIs are
/// blocked there.
fn first_free(code: &Code, function: &Function) -> usize {
    let place = match &*function.name {
        "nmi_entry" => function.instructions.iter().position(Instruction::is_call),
        "nmi_enter" => function.instructions.iter().position(|instruction| {
            instruction.target().and_then(|target| code.at(target)).is_some_and(|to| is_the_sweeps(&to.name))
        }),
        _ => None,
    };
    place.map_or(0, |place| place + 1)
}
