//! A made guest, on which blocks are run by hand.

use crate::plugin::block::{Block, Machine, Place};
use crate::plugin::decode::Ending;
use crate::plugin::shadow::Shadow;
use crate::plugin::totals::Counts;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Where function number n begins.
pub fn start(function: u32) -> u64 {
    0xffff_ffff_8000_0000 + 0x1000 * u64::from(function)
}

pub const STACK: u64 = 0xffff_8000_0001_0000;

/// A block of a function: four instructions of 4 bytes, at an offset.
pub fn block(function: u32, offset: u64, ending: Ending, target: u64) -> &'static Block {
    let at = start(function) + offset;
    let place = if function == crate::plugin::functions::USER { Place::User } else { Place::Kernel };
    Box::leak(Box::new(Block {
        start: at,
        end: at + 16,
        lengths: [4; 4].into(),
        ending,
        target,
        place,
        function,
        is_halt: false,
        is_entry: offset == 0,
        pieces: [].into(),
        cached: Cell::new((0, 0)),
    }))
}

/// A block that is left by `ending`, to anywhere.
pub fn plain(function: u32, offset: u64, ending: Ending) -> &'static Block {
    block(function, offset, ending, 0)
}

#[derive(Default)]
pub struct Memory {
    pub words: BTreeMap<u64, u64>,
    pub rsp: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rdi: u64,
    /// What QEMU tells of the next block.
    pub entered: Option<bool>,
}

impl Machine for Memory {
    fn rsp(&self) -> u64 {
        self.rsp
    }

    fn register(&self, number: usize) -> u64 {
        match number {
            0 => self.rax,
            1 => self.rcx,
            2 => self.rdx,
            7 => self.rdi,
            _ => 0,
        }
    }

    fn time(&self, executed: u64) -> u64 {
        executed
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.words.get(&address).copied()
    }

    fn was_entered(&self, _: u64) -> Option<bool> {
        self.entered
    }
}

/// A guest on which blocks are run by hand.
pub struct Guest {
    pub shadow: Shadow,
    pub memory: Memory,
    executed: u64,
}

impl Guest {
    pub fn new() -> Self {
        let memory = Memory { rsp: STACK, ..Memory::default() };
        Self { shadow: Shadow::new(2), memory, executed: 0 }
    }

    /// Runs this many instructions of a block.
    pub fn part(&mut self, block: &'static Block, count: u64) -> &mut Self {
        self.shadow.before(0, block, self.executed, &self.memory);
        self.executed += count;
        self
    }

    pub fn run(&mut self, block: &'static Block) -> &mut Self {
        self.part(block, 4)
    }

    pub fn push(&mut self, word: u64) -> &mut Self {
        self.memory.rsp -= 8;
        self.memory.words.insert(self.memory.rsp, word);
        self
    }

    pub fn pop(&mut self, words: u64) -> &mut Self {
        self.memory.rsp += 8 * words;
        self
    }

    /// Pushes what the processor pushes when it interrupts kernel code that will continue at `rip`.
    pub fn interrupt(&mut self, rip: u64, error_code: Option<u64>) -> &mut Self {
        self.entry([0x10, 8], rip, error_code)
    }

    /// Pushes what the processor pushes when it interrupts user code. In this guest both use one stack.
    pub fn user_interrupt(&mut self, rip: u64, error_code: Option<u64>) -> &mut Self {
        self.entry([0x23, 0x2b], rip, error_code)
    }

    fn entry(&mut self, [ss, cs]: [u64; 2], rip: u64, error_code: Option<u64>) -> &mut Self {
        let rsp = self.memory.rsp;
        self.memory.rsp &= !15;
        [ss, rsp, 0x202, cs, rip].into_iter().chain(error_code).for_each(|word| {
            self.push(word);
        });
        self
    }

    /// `iret`, with the frame on top.
    pub fn iret(&mut self) -> &mut Self {
        self.memory.rsp = self.memory.words[&(self.memory.rsp + 24)];
        self
    }

    /// Instructions and calls by context, and what was counted.
    pub fn end(&mut self) -> (BTreeMap<String, (u64, u64)>, Counts) {
        self.shadow.settle(self.executed);
        let nodes = &self.shadow.tree.nodes;
        let mut names: Vec<String> = vec![String::new()];
        let mut contexts = BTreeMap::new();
        for node in &nodes[1..] {
            let caller = &names[node.parent as usize];
            let name =
                if caller.is_empty() { format!("{}", node.function) } else { format!("{caller} {}", node.function) };
            if node.instructions + node.calls > 0 {
                contexts.insert(name.clone(), (node.instructions, node.calls));
            }
            names.push(name);
        }
        assert_eq!(contexts.values().map(|(instructions, _)| instructions).sum::<u64>(), self.executed);
        (contexts, self.shadow.counts)
    }
}

pub fn expected(contexts: &[(&str, u64, u64)]) -> BTreeMap<String, (u64, u64)> {
    contexts.iter().map(|(name, instructions, calls)| ((*name).to_owned(), (*instructions, *calls))).collect()
}
