//! Stacks of samples, and exact ones of the same instructions, to compare them.
//!
//! In: what `kprof-qemu count --samples samples.txt --visits exact.txt` has written to a folder, with the symbols in
//! `kernel` and `syms.txt`. Out: stacks by number of the CPU, in order. Who compares them decides what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// A stack from the outermost function, without markers and user code.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// The sampled instruction.
    pub address: u64,
    /// Names.
    pub frames: Vec<String>,
    /// The sampled instruction, and from it on the return addresses. An exact stack has none.
    pub addresses: Vec<u64>,
    /// Markers of entries.
    pub entries: u64,
    /// The reason.
    pub truncated: Option<String>,
    /// How many of the frames are below one that was interrupted at its first instruction, itself included.
    begins: Option<usize>,
    /// How many are below each one that was interrupted, itself included.
    interrupted: Vec<usize>,
}

impl Stack {
    /// An exact stack, as text.
    ///
    /// # Errors
    /// If the address is no hex number.
    pub fn exact(address: &str, stack: &str) -> Result<Self> {
        let frames = stack.split(';').filter(|frame| *frame != "[user]").map(str::to_owned).collect();
        Ok(Self { address: u64::from_str_radix(address, 16)?, frames, ..Self::default() })
    }

    /// How many frames are below the innermost one that was interrupted, itself included; none: 0.
    pub fn first_interrupted(&self) -> usize {
        self.interrupted.first().copied().unwrap_or(0)
    }

    /// Whether only the interrupted frame differs from the exact stack. There are two reasons. Its function had not
    /// begun: the exact stack ends with its caller, or with the function that has jumped to it. Or a function that it
    /// had called has just returned: the exact stack still has that function.
    pub fn differs_where_interrupted(&self, exact: &Self) -> bool {
        let has_not_begun = self.begins.is_some_and(|below| {
            let (below, above) = self.frames.split_at(below);
            let exact = exact.frames.strip_suffix(above);
            let callers = &below[..below.len() - 1];
            exact.is_some_and(|exact| exact == callers || exact.split_last().is_some_and(|(_, it)| it == callers))
        });
        let has_returned = self.interrupted.iter().any(|below| {
            let (below, above) = self.frames.split_at(*below);
            let exact = exact.frames.strip_suffix(above).and_then(<[String]>::split_last);
            exact.is_some_and(|(_, callers)| callers == below)
        });
        has_not_begun || has_returned
    }
}

/// By number of the vCPU: the number of the stop, and the stack from which the vCPU went on.
pub type Stops = BTreeMap<u32, Vec<(u64, Stack)>>;

/// The exact stacks in `stops.txt`, which `kprof-qemu count --stops` has written.
///
/// # Errors
/// If they cannot be read.
pub fn stops(folder: &Path) -> Result<Stops> {
    let mut stops = Stops::new();
    for line in std::fs::read_to_string(folder.join("stops.txt"))?.lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [stop, cpu, address, _, stack] = words[..] else { bail!("stops.txt: {line}") };
        stops.entry(cpu.parse()?).or_default().push((stop.parse()?, Stack::exact(address, stack)?));
    }
    Ok(stops)
}

/// By number of the CPU, in order.
pub type Stacks = BTreeMap<u32, Vec<Stack>>;

/// The stacks of a CPU in `samples.txt`, by the symbols of `kernel`; `syms.txt` says where functions begin.
///
/// # Errors
/// If they cannot be read.
pub fn sampled(fold: &Path, folder: &Path, cpu: u32) -> Result<Vec<Stack>> {
    let symbols = std::fs::read_to_string(folder.join("syms.txt"))?;
    let starts: BTreeSet<u64> =
        symbols.lines().filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok()).collect();
    let mut script = Command::new(fold);
    script.args(["script", "--user", "--no-inline", "--quiet", "--cpu", &cpu.to_string()]);
    let text = run::output(script.arg(folder.join("samples.txt")).arg(folder.join("kernel")))?;
    let mut stacks = Vec::new();
    for sample in text.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let mut stack = Stack::default();
        let (mut is_interrupted, mut above) = (false, None);
        for line in sample.lines().filter_map(|line| line.strip_prefix('\t')) {
            let (at, rest) = line.split_once(' ').with_context(|| format!("{line}: no frame"))?;
            let at = u64::from_str_radix(at, 16)?;
            stack.address = if stack.address == 0 { at } else { stack.address };
            let Some(name) = rest.strip_suffix(" ([kernel])") else { continue };
            match at & 0xf00 {
                0x400 if at >> 12 == u64::MAX >> 12 => stack.truncated = Some(format!("{}", at & 0xff)),
                _ if at >> 12 == u64::MAX >> 12 => (stack.entries, is_interrupted) = (stack.entries + 1, true),
                _ => {
                    // Of a caller, the call is printed.
                    let is_call = !is_interrupted && !stack.frames.is_empty();
                    if std::mem::take(&mut is_interrupted) {
                        above = if starts.contains(&at) { Some(stack.frames.len()) } else { above };
                        stack.interrupted.push(stack.frames.len());
                    }
                    stack.frames.insert(0, name[1..name.len() - 1].to_owned());
                    stack.addresses.push(at + u64::from(is_call));
                }
            }
        }
        stack.begins = above.map(|above| stack.frames.len() - above);
        stack.interrupted.iter_mut().for_each(|above| *above = stack.frames.len() - *above);
        stacks.push(stack);
    }
    Ok(stacks)
}

/// The stacks in `exact.txt`.
///
/// # Errors
/// If they cannot be read.
pub fn exact(folder: &Path) -> Result<Stacks> {
    let mut stacks = Stacks::new();
    for line in std::fs::read_to_string(folder.join("exact.txt"))?.lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [cpu, _, address, _, stack] = words[..] else { bail!("exact.txt: {line}") };
        stacks.entry(cpu.parse()?).or_default().push(Stack::exact(address, stack)?);
    }
    Ok(stacks)
}
