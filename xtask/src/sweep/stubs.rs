//! The entry stubs: each instruction must be hit by an NMI, and the stack must continue into the interrupted code.
//!
//! In: the raw samples. A stack inside a stub must have these parts: interrupts off, the marker of the stub's entry
//! frame, the interrupted code. Stubs that no run of the test kernel may enter (of a double fault, of a device) are
//! compared with those that were swept: their instructions must be the same except for the number of the vector.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::code::{Code, Function};
use super::markers::{MARKER_PAGE, SYSCALL};

const EXCEPTION: u64 = MARKER_PAGE | 0x200;
const INTERRUPT: u64 = MARKER_PAGE | 0x100;
/// The facts of a sample with interrupts off. The next bit says that the task is idle.
const INTERRUPTS_OFF: u64 = MARKER_PAGE | 1;
const IDLE: u64 = 2;
/// Exceptions whose stubs user code enters in the sweep: division, breakpoint, undefined, protection, page.
const EXCEPTIONS: [u64; 5] = [0, BREAKPOINT, 6, 13, 14];
/// The stub of this vector is a jump to a longer one, `breakpoint_entry`.
const BREAKPOINT: u64 = 3;
/// Vectors that a sweep cannot use, because their handlers do something: timer, other CPUs, samples, the boot timer,
/// devices.
const USED: [u64; 5] = [32, 33, 34, 48, 224];

/// The number of instructions at the beginning of a stub at which QEMU does not always stop after a fault. If the fault
/// is in the middle of a translated block, QEMU corrects its count by the instructions that were not executed.
const AFTER_FAULT: usize = 2;

/// The same instruction in another stub of the same kind (see `compare`) whose exception does not have this problem.
fn stand_in(code: &Code, name: &str, place: usize) -> Option<u64> {
    let other = match name {
        "trap_stub_0" => "trap_stub_6",
        "trap_stub_14" => "trap_stub_13",
        _ => return None,
    };
    code.named(other).ok()?.instructions.get(place).map(|instruction| instruction.address)
}

/// The callers and markers of raw samples, by their first address.
pub type Samples = BTreeMap<u64, Vec<Vec<u64>>>;

/// The raw samples of a profile.
pub fn read_samples(profile: &str, samples: &mut Samples) {
    for line in profile.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<u64> = line.split(' ').skip(3).filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        if let Some((first, callers)) = words.split_first() {
            samples.entry(*first).or_default().push(callers.to_vec());
        }
    }
}

/// The findings in the stubs.
#[derive(Default)]
pub struct Found {
    /// Instructions that were never hit.
    pub never: Vec<String>,
    /// Stacks that are not right.
    pub wrong: Vec<String>,
}

/// Judges all samples in stubs, and prints each instruction with its hits.
///
/// # Errors
/// If a stub is missing, or differs from the others of its kind.
pub fn judge(code: &Code, samples: &Samples) -> Result<Found> {
    let mut found = Found::default();
    let mut instructions = 0;
    let mut swept: Vec<(&Function, Vec<u64>)> = vec![(code.named("syscall_entry")?, vec![SYSCALL])];
    for vector in EXCEPTIONS {
        swept.push((code.named(&format!("trap_stub_{vector}"))?, vec![EXCEPTION | vector]));
    }
    for vector in (32..256).filter(|vector| !USED.contains(vector)) {
        swept.push((code.named(&format!("trap_stub_{vector}"))?, vec![INTERRUPT | vector]));
    }
    swept.push((code.named("breakpoint_entry")?, vec![EXCEPTION | BREAKPOINT]));
    let any = |kind: u64| (0..256).map(move |vector| kind | vector);
    for name in ["trap_common", "trap_return"] {
        swept.push((code.named(name)?, any(EXCEPTION).chain(any(INTERRUPT)).collect()));
    }
    for (function, markers) in &swept {
        println!("{}", function.name);
        for (place, instruction) in function.instructions.iter().enumerate() {
            let (address, text) = (instruction.address, &instruction.text);
            let stacks = samples.get(&address).map_or(&[][..], Vec::as_slice);
            println!("{address:x} {:6}  {text}", stacks.len());
            instructions += 1;
            let stands_for = (place < AFTER_FAULT).then(|| stand_in(code, &function.name, place)).flatten();
            if stacks.is_empty()
                && let Some(address) = stands_for.filter(|address| samples.contains_key(address))
            {
                println!("       the same instruction at {address:x} stands for it");
            } else if stacks.is_empty() {
                found.never.push(format!("{}: {address:x} {text}", function.name));
            }
            found.wrong.extend(stacks.iter().filter(|stack| !is_right(stack, markers)).map(|stack| {
                let words: Vec<String> = stack.iter().map(|word| format!("{word:x}")).collect();
                format!("{}: {address:x} {text}: {}", function.name, words.join(" "))
            }));
        }
    }
    let compared = compare(code)?;
    println!(
        "stubs: {instructions} instructions, {} never hit, {} wrong stacks; {compared} stubs compared\n",
        found.never.len(),
        found.wrong.len()
    );
    Ok(found)
}

/// Whether a stack is right: interrupts off, the marker of the stub, then the marker of user code and an address, or
/// the interrupted kernel address.
fn is_right(stack: &[u64], markers: &[u64]) -> bool {
    let is_truncated = |word: u64| word >= MARKER_PAGE && word >> 8 & 0xf == 4;
    match stack {
        [facts, marker, interrupted, ..] => {
            facts & !IDLE == INTERRUPTS_OFF && markers.contains(marker) && !is_truncated(*interrupted)
        }
        _ => false,
    }
}

/// Compares each stub with a swept one of its kind. The kinds are stubs without an error code (0 for exceptions, 35 for
/// interrupts) and stubs with one.
fn compare(code: &Code) -> Result<usize> {
    let shape = |vector: u64| -> Result<(Vec<String>, Vec<u64>)> {
        let function = code.named(&format!("trap_stub_{vector}"))?;
        let start = function.instructions[0].address;
        let marker = if vector < 32 { EXCEPTION } else { INTERRUPT } | vector;
        // Markers are sign-extended 32-bit numbers. objdump prints them with 32 or with 64 bits.
        let numbers = [format!("0x{:x}", marker as u32), format!("0x{marker:x}")];
        let without = |text: &str| {
            let words: Vec<String> = text
                .split([' ', ','])
                .map(|word| if numbers.iter().any(|number| number == word) { "MARKER".into() } else { word.to_owned() })
                .collect();
            words.join(" ")
        };
        let places = function.instructions.iter().map(|instruction| instruction.address - start).collect();
        Ok((function.instructions.iter().map(|instruction| without(&instruction.text)).collect(), places))
    };
    let (plain, with_error, interrupt) = (shape(0)?, shape(14)?, shape(35)?);
    let mut compared = 0;
    for vector in (0..256).filter(|vector| *vector != BREAKPOINT) {
        let found = shape(vector)?;
        let expected = match vector {
            32.. => &interrupt,
            _ if [8, 10, 11, 12, 13, 14, 17, 21, 29, 30].contains(&vector) => &with_error,
            _ => &plain,
        };
        if found != *expected {
            bail!("trap_stub_{vector} is not like the others of its kind: {found:?}");
        }
        compared += 1;
    }
    Ok(compared)
}
