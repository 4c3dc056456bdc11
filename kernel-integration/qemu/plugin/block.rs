//! A translated block, and the vCPU before it, as the shadow stack sees them. Stage: capture.
//!
//! In: what `translate` has found out. Out: data.

use super::decode::Ending;
use std::cell::Cell;

/// What code a block is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In kernel mode, in the lower half, and in no known function: firmware, boot loader.
    Unknown,
    User,
    Kernel,
}

/// What a block does, as it was translated.
#[derive(Debug)]
pub struct Block {
    pub start: u64,
    pub end: u64,
    /// The length of each instruction.
    pub lengths: Box<[u8]>,
    pub ending: Ending,
    pub target: u64,
    pub place: Place,
    /// The function of the first instruction.
    pub function: u32,
    /// Whether the last instruction is `hlt`.
    pub is_halt: bool,
    /// Whether the first instruction is the first of its function.
    pub is_entry: bool,
    /// If the block is of several functions: how many instructions are of each.
    pub pieces: Box<[(u32, u32)]>,
    /// The last caller's context with this block's context in it.
    pub cached: Cell<(u32, u32)>,
}

impl Block {
    /// The address of an instruction.
    pub fn address(&self, number: u32) -> u64 {
        self.start + self.lengths[..number as usize].iter().map(|length| u64::from(*length)).sum::<u64>()
    }
}

/// A vCPU before a block.
pub trait Machine {
    fn rsp(&self) -> u64;
    /// A general register, in the order of the processor's encoding: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8.
    fn register(&self, number: usize) -> u64;
    /// The guest's clock, in nanoseconds, when this many instructions have begun.
    fn time(&self, executed: u64) -> u64;
    fn word(&self, address: u64) -> Option<u64>;
    /// Whether an interrupt or exception has led to the block at `start`, which is about to run; `None` if QEMU does
    /// not tell.
    fn was_entered(&self, start: u64) -> Option<bool>;
}

/// A block that has run, and how many of its instructions have begun.
#[derive(Clone, Copy)]
pub struct Past {
    pub block: &'static Block,
    pub executed: u32,
}

impl Past {
    /// Whether this block comes next by the block's own end, in the kernel, without a call or a return before or after
    /// it, and not at the beginning of a function.
    #[inline]
    pub fn goes_on_in(&self, next: &Block) -> bool {
        let block = self.block;
        let is_next = match block.ending {
            Ending::Falls => next.start == block.end,
            Ending::Branch => next.start == block.end || next.start == block.target,
            Ending::Jump => next.start == block.target,
            _ => false,
        };
        let leaves = || matches!(next.ending, Ending::Return | Ending::InterruptReturn | Ending::ToUser);
        let is_kernel = || block.place == Place::Kernel && next.place == Place::Kernel;
        is_next && !self.is_partial() && !next.is_entry && !leaves() && is_kernel()
    }

    /// Whether it was left before its last instruction had begun.
    pub fn is_partial(&self) -> bool {
        (self.executed as usize) < self.block.lengths.len()
    }
}
