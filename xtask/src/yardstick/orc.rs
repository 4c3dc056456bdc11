//! The stacks of Linux by its own unwind tables (ORC), beside the exact ones of the shadow stack.
//!
//! In: Debian's kernel, which has the tables in the ELF file that is compressed in it; samples with exact stacks. Out:
//! that ELF file; how many stacks are complete, and how many are wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;
use crate::stacks;
use crate::tools::{self, Install};

/// Fields of the boot protocol (Documentation/arch/x86/boot): sectors of the setup code, and where the payload is.
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD: usize = 0x248;
const PAYLOAD_BYTES: usize = 0x24c;
const SECTOR: usize = 512;
/// How the payload begins if this program has compressed it; Debian has used the second one since Linux 6.12.
const FORMS: [(&[u8], &str, &str); 2] = [(b"\xfd7zXZ\0", "xz", "xz-utils"), (b"\x28\xb5\x2f\xfd", "zstd", "zstd")];

/// What Linux executes on the stack of the next thread before it has returned from the switch to it.
const SWITCH: &str = "__switch_to";

/// Writes the ELF file that is in a bzImage.
///
/// # Errors
/// If there is none that was compressed in a known way.
pub fn extract(kernel: &Path, to: &Path, install: Install) -> Result<()> {
    let bytes = fs::read(kernel).with_context(|| kernel.display().to_string())?;
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        u32::from_le_bytes(bytes) as usize
    };
    let setup = bytes.get(SETUP_SECTORS).map_or(4, |sectors| usize::from(*sectors));
    let from = (setup + 1) * SECTOR + word(PAYLOAD);
    // The size of the ELF file follows after the compressed one.
    let payload = bytes.get(from..from + word(PAYLOAD_BYTES).saturating_sub(4)).unwrap_or_default();
    let form = FORMS.into_iter().find(|(magic, ..)| payload.starts_with(magic));
    let (_, name, package) = form.with_context(|| format!("{}: neither xz nor zstd", kernel.display()))?;
    let packed = to.with_extension("packed");
    fs::write(&packed, payload)?;
    let mut unpack = Command::new(tools::program(name, package, install)?);
    let unpacked = fs::File::create(to)?;
    let status = unpack.arg("-dc").stdin(fs::File::open(&packed)?).stdout(unpacked).status().context(name)?;
    ensure!(status.success(), "{}: {name} cannot unpack it", packed.display());
    fs::remove_file(&packed)?;
    Ok(())
}

/// Writes `syms.txt`: the symbols in `kernel`, where they were in this boot. The header of the samples says where one
/// of them was.
fn write_moved(folder: &Path) -> Result<()> {
    let (symbols, samples) = (fs::read_to_string(folder.join("kernel"))?, folder.join("samples.txt"));
    let samples = fs::read_to_string(samples)?;
    let anchor = samples.lines().find_map(|line| line.strip_prefix("# anchor ")?.rsplit_once('='));
    let (name, at) = anchor.context("the samples have no anchor")?;
    let address = |line: &str| line.split(' ').next().and_then(|word| u64::from_str_radix(word, 16).ok());
    let of = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).and_then(address);
    let slide = u64::from_str_radix(at, 16)?.wrapping_sub(of.with_context(|| format!("there is no symbol {name}"))?);
    let moved = |line: &str| Some(format!("{:x} T\n", address(line)?.wrapping_add(slide)));
    fs::write(folder.join("syms.txt"), symbols.lines().filter_map(moved).collect::<String>())?;
    Ok(())
}

/// Compares `samples.txt` in this folder with `exact.txt`, by the symbols in `kernel`, and prints what the stacks are.
///
/// # Errors
/// If a frame is wrong, or a file cannot be read.
pub fn compare(fold: &Path, folder: &Path) -> Result<()> {
    write_moved(folder)?;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (cpu, exact) in stacks::exact(folder)? {
        let sampled = stacks::sampled(fold, folder, cpu)?;
        ensure!(sampled.len() == exact.len(), "CPU {cpu}: {} samples, and {} stacks", sampled.len(), exact.len());
        for (sampled, mut exact) in sampled.into_iter().zip(exact).filter(|(_, exact)| exact.address >> 63 != 0) {
            // An entry that changes its stack is two frames of the shadow stack.
            exact.frames.dedup_by(|a, b| a == b && a.starts_with("asm_"));
            let kind = match () {
                () if exact.frames.ends_with(&sampled.frames) => {
                    match (sampled.truncated.is_some(), sampled.frames.len() == exact.frames.len()) {
                        (false, true) => "complete and exact",
                        (true, true) => "complete and exact, up to what the boot has jumped to",
                        (_, false) => "incomplete",
                    }
                }
                () if sampled.differs_where_interrupted(&exact) => "with a function interrupted before it began",
                // The new stack is in use there already, and the function returns on it.
                () if [&sampled, &exact].iter().all(|stack| stack.frames.last().is_some_and(|leaf| leaf == SWITCH)) => {
                    "in the switch of stacks, where the exact stack is the old one"
                }
                () if sampled.frames.ends_with(&exact.frames) => "longer than the shadow stack, which began anew",
                () => {
                    wrong.push(format!("{} | {}", sampled.frames.join(";"), exact.frames.join(";")));
                    "wrong"
                }
            };
            *counts.entry(kind).or_default() += 1;
        }
    }
    let all: u64 = counts.values().sum();
    println!("{all} sampled stacks of Linux, by its ORC tables, beside those of the shadow stack");
    counts.iter().for_each(|(kind, count)| println!("{count:>8} {kind}"));
    ensure!(wrong.is_empty(), "{} stacks have a wrong frame: {}", wrong.len(), wrong[0]);
    Ok(())
}

/// Draws the samples.
///
/// # Errors
/// If kprof-fold cannot.
pub fn draw(fold: &Path, folder: &Path, to: &Path) -> Result<()> {
    let mut draw = Command::new(fold);
    draw.args(["flamegraph", "--quiet", "-o"]).arg(to).arg(folder.join("samples.txt")).arg(folder.join("kernel"));
    run::output(&mut draw).map(drop)
}
