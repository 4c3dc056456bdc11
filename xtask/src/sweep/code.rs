//! The kernel's instructions, as objdump prints them: functions, calls, jumps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, run};

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Where it is.
    pub address: u64,
    /// What objdump prints.
    pub text: String,
}

impl Instruction {
    /// The target of a direct call or jump.
    pub fn target(&self) -> Option<u64> {
        let (mnemonic, operand) = self.text.split_once(' ')?;
        let is_branch = mnemonic == "call" || mnemonic.starts_with('j');
        u64::from_str_radix(operand.split_whitespace().next()?, 16).ok().filter(|_| is_branch)
    }

    /// Whether it is a call.
    pub fn is_call(&self) -> bool {
        self.text.starts_with("call ")
    }
}

/// A function of the kernel.
#[derive(Debug)]
pub struct Function {
    /// Its name, without mangling.
    pub name: String,
    /// Its code, in order.
    pub instructions: Vec<Instruction>,
}

impl Function {
    /// The address of the instruction after the one with this index, to which a call returns.
    pub fn after(&self, place: usize) -> Option<u64> {
        self.instructions.get(place + 1).map(|next| next.address)
    }

    /// Whether this instruction is only padding after a jump: it does nothing and cannot be reached.
    pub fn is_padding(&self, place: usize) -> bool {
        let ends = ["jmp ", "ret", "ud2"];
        let is_empty = |text: &str| text.split(' ').find(|word| !["data16", "cs"].contains(word)) == Some("nop");
        let led_to = |address| self.instructions.iter().any(|instruction| instruction.target() == Some(address));
        let before = self.instructions[..place].iter().rev().find(|instruction| !is_empty(&instruction.text));
        is_empty(&self.instructions[place].text)
            && before.is_some_and(|before| ends.iter().any(|end| before.text.starts_with(end)))
            && !led_to(self.instructions[place].address)
    }

    /// The index of the instruction at this address, if it is one of this function.
    pub fn place(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, |instruction| instruction.address).ok()
    }
}

/// All functions, by address.
pub struct Code(BTreeMap<u64, Function>);

impl Code {
    /// Disassembles a kernel.
    ///
    /// # Errors
    /// If nm or objdump fails.
    pub fn of(kernel: &Path) -> Result<Self> {
        let mut functions = BTreeMap::new();
        for line in build::symbols_of(kernel)?.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let [start, size, "t" | "T" | "w" | "W", name] = words[..] else { continue };
            let (start, size) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(size, 16)?);
            functions.insert(start, (size, Function { name: name.to_owned(), instructions: Vec::new() }));
        }
        let mut objdump = Command::new("objdump");
        let text = run::output(objdump.args(["-d", "-w", "-M", "intel", "--no-show-raw-insn"]).arg(kernel))?;
        for line in text.lines() {
            let Some((address, text)) = line.split_once(":\t") else { continue };
            let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
            let Some((start, (size, function))) = functions.range_mut(..=address).next_back() else { continue };
            // Code after the end of a function is padding before the next one.
            if address < start + *size {
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                function.instructions.push(Instruction { address, text });
            }
        }
        Ok(Self(functions.into_iter().map(|(start, (_, function))| (start, function)).collect()))
    }

    /// Functions with invented instructions, for tests.
    #[cfg(test)]
    pub fn made_up(functions: &[(&str, &[(u64, &str)])]) -> Self {
        let function = |(name, instructions): &(&str, &[(u64, &str)])| {
            let instruction =
                |(address, text): &(u64, &str)| Instruction { address: *address, text: (*text).to_owned() };
            let instructions: Vec<Instruction> = instructions.iter().map(instruction).collect();
            (instructions[0].address, Function { name: (*name).to_owned(), instructions })
        };
        Self(functions.iter().map(function).collect())
    }

    /// The only function with this name.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn named(&self, name: &str) -> Result<&Function> {
        let mut found = self.0.values().filter(|function| function.name == name);
        let function = found.next().with_context(|| format!("the kernel has no {name}"))?;
        if found.next().is_some() {
            bail!("the kernel has several functions {name}");
        }
        Ok(function)
    }

    /// The functions whose names begin with `prefix`.
    pub fn beginning(&self, prefix: &str) -> impl Iterator<Item = &Function> {
        self.0.values().filter(move |function| function.name.starts_with(prefix))
    }

    /// The function that begins at an address.
    pub fn at(&self, start: u64) -> Option<&Function> {
        self.0.get(&start)
    }

    /// The function that an address is in.
    pub fn around(&self, address: u64) -> Option<&Function> {
        let (_, function) = self.0.range(..=address).next_back()?;
        function.instructions.last().filter(|last| address <= last.address).map(|_| function)
    }

    /// The functions that can be reached from one of them by calls and jumps. Functions whose names satisfy `leave_out`
    /// are not followed.
    pub fn reached_from(&self, start: u64, leave_out: impl Fn(&str) -> bool) -> Vec<&Function> {
        let mut seen = BTreeSet::from([start]);
        let mut open = VecDeque::from([start]);
        while let Some(function) = open.pop_front().and_then(|start| self.at(start)) {
            for target in function.instructions.iter().filter_map(Instruction::target) {
                if self.at(target).is_some_and(|function| !leave_out(&function.name)) && seen.insert(target) {
                    open.push_back(target);
                }
            }
        }
        seen.iter().filter_map(|start| self.at(*start)).collect()
    }
}
