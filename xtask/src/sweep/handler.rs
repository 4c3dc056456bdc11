//! The instructions of the handler that nested NMIs have interrupted, after an exception in the first NMI.
//!
//! In: the lines `nested: ADDRESS HITS` of the log. Out: each instruction that can be reached from the NMI's entry,
//! with its hits. Each must have at least one, except those from the first instruction of the stub to the `iret` of the
//! `int3`, where NMIs are blocked. Padding after a jump does not count as an instruction.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::code::{Code, Function, Instruction};

/// Hits by address.
///
/// # Errors
/// If a line cannot be parsed.
pub fn read_hits(log: &str, hits: &mut BTreeMap<u64, u64>) -> Result<()> {
    for line in log.lines().filter_map(|line| line.strip_prefix("nested: ")) {
        let (address, count) = line.split_once(' ').with_context(|| line.to_owned())?;
        *hits.entry(u64::from_str_radix(address, 16)?).or_default() += count.trim().parse::<u64>()?;
    }
    Ok(())
}

/// Whether this function is only called in an NMI with an order (of the sweep or of a panic), and not for a tick.
fn is_the_sweeps(name: &str) -> bool {
    name == "test_kernel::cpu::trap::ordered"
}

/// Prints each instruction of the handler with its hits. Returns what is wrong.
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

/// The functions that the handlers of NMIs and breakpoints may execute, but that `kprof-fold probes` lists as functions
/// that can have a probe: none. The stub of breakpoints calls `trap_enter` after the handler.
///
/// # Errors
/// If the kernel has no such entries.
pub fn with_probes(code: &Code, probes: &str) -> Result<Vec<String>> {
    let mut functions = Vec::new();
    for entry in ["nmi_entry", "breakpoint_entry"] {
        let start = code.named(entry)?.instructions[0].address;
        functions.extend(code.reached_from(start, |name| is_the_sweeps(name) || name == "trap_enter"));
    }
    let starts: Vec<u64> = functions.iter().map(|function| function.instructions[0].address).collect();
    let listed = probes.lines().filter(|line| !line.starts_with('#')).filter(|line| {
        let address = line.split(' ').next().and_then(|word| u64::from_str_radix(word, 16).ok());
        address.is_none_or(|address| starts.contains(&address))
    });
    let failures: Vec<_> =
        listed.map(|line| format!("a handler may execute it, and it can have a probe: {line}")).collect();
    println!("probes: {} functions of handlers, {} of them can have a probe", starts.len(), failures.len());
    Ok(failures)
}

/// The index of the first instruction at which NMIs can come: in the stub after its call of the handler, in the handler
/// after its `int3`.
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

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: (&str, &[(u64, &str)]) =
        ("nmi_entry", &[(0x10, "push rax"), (0x11, "call 20 <handle>"), (0x16, "iretq")]);

    fn failures(handle: &[(u64, &str)], hit: &[u64]) -> Vec<String> {
        let code = Code::made_up(&[ENTRY, ("handle", handle), ("core::panicking::panic", &[(0x40, "ud2")])]);
        judge(&code, &hit.iter().map(|address| (*address, 1)).collect()).unwrap()
    }

    #[test]
    fn an_instruction_without_a_hit_is_a_failure_but_where_nmis_are_blocked() {
        let handle = [(0x20, "nop"), (0x21, "ret")];
        assert_eq!(failures(&handle, &[0x16, 0x20, 0x21]), Vec::<String>::new());
        assert_eq!(failures(&handle, &[0x16, 0x21]), ["handle: 20 nop: never hit"]);
        assert_eq!(failures(&handle, &[0x20, 0x21]), ["nmi_entry: 16 iretq: never hit"]);
    }

    #[test]
    fn only_what_fills_a_gap_that_nothing_leads_to_is_left_out() {
        let gap = [(0x20, "jmp 22 <handle+2>"), (0x21, "cs nop WORD PTR [rax+rax*1+0x0]"), (0x22, "ret")];
        assert_eq!(failures(&gap, &[0x16, 0x20, 0x22]), Vec::<String>::new());
        let led_to = [(0x20, "jmp 21 <handle+1>"), (0x21, "nop DWORD PTR [rax]"), (0x22, "ret")];
        assert_eq!(failures(&led_to, &[0x16, 0x20, 0x22]).len(), 1);
        let run_through = [(0x20, "je 22 <handle+2>"), (0x21, "nop DWORD PTR [rax]"), (0x22, "ret")];
        assert_eq!(failures(&run_through, &[0x16, 0x20, 0x22]).len(), 1);
    }

    #[test]
    fn no_function_of_a_handler_can_have_a_probe() {
        let handle = [(0x20, "ret")];
        let code = Code::made_up(&[ENTRY, ("handle", &handle), ("breakpoint_entry", &[(0x50, "iretq")])]);
        assert_eq!(with_probes(&code, "# kprof-probes 1\n30 8 other\n").unwrap(), Vec::<String>::new());
        let found = with_probes(&code, "20 8 handle\n30 8 other\n").unwrap();
        assert_eq!(found, ["a handler may execute it, and it can have a probe: 20 8 handle"]);
    }

    #[test]
    fn a_handler_that_could_panic_is_a_failure_even_if_it_was_hit() {
        let found = failures(&[(0x20, "call 40 <panic>"), (0x21, "ret")], &[0x16, 0x20, 0x21, 0x40]);
        assert_eq!(found, ["core::panicking::panic: the handler could panic"]);
    }
}
