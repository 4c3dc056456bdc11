//! Follows calls and returns of each vCPU from block to block. Stage: capture.
//!
//! In: before each translated block, the block, the number of instructions executed so far, and the vCPU's stack
//! pointer and memory. Out: the tree of contexts, in which every executed instruction is in one node. Runs in: QEMU's
//! process, before each block.
//!
//! A vCPU has a chain of frames: calls, each with its return address and where that is on the stack, and interrupts. A
//! block that does not come after the one before, by that one's last instruction, is the entry of an interrupt or
//! exception; the frame remembers where the interrupted code was. A return that does not fit the innermost frame fits
//! an outer one (frames of calls that never return are dropped), or a chain that was suspended (another guest stack),
//! or begins a new chain. Code that is not the kernel's has no chain: its context is its function alone. A wrong guess
//! can only put instructions into a wrong context, never lose one.

use super::block::{Block, Machine, Past, Place};
use super::calls::{Calls, Owner};
use super::context::{ROOT, Tree, WordMap};
use super::decode::Ending;
use super::functions::USER;
use super::probes::{self, Here, Probes};
use super::totals::Counts;
use super::window::Window;

/// Stands for a stack pointer that was not read: no stack is there.
pub(super) const UNREAD: u64 = 0;
/// Stacks of a kernel are closer together than this only by accident.
const NEAR_BYTES: u64 = 16 * 1024;
/// The most that a return takes off the stack beside its address.
pub(super) const MAX_ARGUMENT_BYTES: u64 = 256;
/// The most frames of a chain.
const MAX_FRAMES: usize = 1 << 16;

pub(super) struct Frame {
    /// Where the return address is.
    pub(super) slot: u64,
    /// The stack pointer after the return.
    pub(super) rsp: u64,
    /// Where the return goes.
    pub(super) rip: u64,
    /// The context of the caller.
    pub(super) node: u32,
    /// The interrupted block, if this is an interrupt.
    pub(super) interrupted: Option<Past>,
    /// Who owns the caller's instructions.
    pub(super) owner: Owner,
    /// The first of the probes' hits that end when this frame is returned to.
    pub(super) hit: u32,
}

impl Frame {
    /// Whether a return to this address leaves this frame.
    pub(super) fn returns(&self, rip: u64, rsp: u64) -> bool {
        self.rip == rip && rsp.wrapping_sub(self.rsp) <= MAX_ARGUMENT_BYTES
    }
}

#[derive(Default)]
pub(super) struct Cpu {
    pub(super) last: Option<Past>,
    pub(super) node: u32,
    pub(super) frames: Vec<Frame>,
    pub(super) owner: Owner,
    /// The stack pointer before the last block, or [`UNREAD`].
    pub(super) rsp: u64,
}

/// All vCPUs and all suspended chains.
pub struct Shadow {
    pub tree: Tree,
    pub counts: Counts,
    pub window: Window,
    pub calls: Calls,
    pub probes: Probes,
    pub(super) cpus: Vec<Cpu>,
    /// The vCPU of the last block, and the count before it.
    last: usize,
    pub(super) before: u64,
    pub(super) suspended: WordMap<Vec<Frame>>,
}

impl Shadow {
    pub fn new(cpus: usize) -> Self {
        let cpus = (0..cpus).map(|_| Cpu::default()).collect();
        let (counts, suspended) = (Counts::default(), WordMap::default());
        let (window, calls, probes) = (Window::default(), Calls::default(), Probes::default());
        Self { tree: Tree::new(), counts, window, calls, probes, cpus, last: 0, before: 0, suspended }
    }

    /// A block is about to run; until now, `executed` instructions have begun.
    #[inline]
    pub fn before(&mut self, cpu: usize, block: &'static Block, executed: u64, machine: &impl Machine) {
        self.settle(executed);
        self.last = cpu;
        self.tree.entered = ROOT;
        self.step(cpu, block, machine);
    }

    /// Adds what the last block has executed to its context.
    #[inline]
    pub fn settle(&mut self, executed: u64) {
        let count = executed - self.before;
        self.before = executed;
        let cpu = &mut self.cpus[self.last];
        let Some(last) = &mut cpu.last else { return };
        last.executed = count as u32;
        if last.block.pieces.is_empty() {
            let node = &mut self.tree.nodes[cpu.node as usize];
            node.instructions += count;
            self.window.add(self.last, cpu.node, count);
            self.calls.add(cpu.owner, node.function, count);
        } else {
            let last = *last;
            self.settle_pieces(last.block, count);
        }
    }

    /// The block runs from one function into the next, which takes the place of the first.
    #[cold]
    fn settle_pieces(&mut self, block: &Block, count: u64) {
        let mut left = count;
        for (number, (of_piece, function)) in block.pieces.iter().enumerate() {
            let node = &mut self.cpus[self.last].node;
            if number > 0 && left > 0 {
                *node = self.tree.child(self.tree.parent(*node), *function);
                if *function > USER {
                    self.tree.enter(*node);
                }
            }
            let now = left.min(u64::from(*of_piece));
            self.tree.nodes[*node as usize].instructions += now;
            self.window.add(self.last, *node, now);
            self.calls.add(self.cpus[self.last].owner, *function, now);
            left -= now;
        }
    }

    #[inline]
    pub(super) fn step(&mut self, number: usize, block: &'static Block, machine: &impl Machine) {
        let cpu = &mut self.cpus[number];
        // QEMU 9.2 and later take long to tell the stack pointer, which is not needed within a function.
        if cpu.last.is_some_and(|past| past.goes_on_in(block)) {
            (cpu.last, cpu.rsp) = (Some(Past { block, executed: 0 }), UNREAD);
            return self.flow(number);
        }
        let rsp = machine.rsp();
        let rsp_before = std::mem::replace(&mut cpu.rsp, rsp);
        let Some(past) = cpu.last.replace(Past { block, executed: 0 }) else {
            return self.outside(number, None, machine);
        };
        let last = past.block;
        if block.place != Place::Kernel || last.place != Place::Kernel {
            return self.outside(number, Some(past), machine);
        }
        match last.ending {
            _ if past.is_partial() => {}
            Ending::Falls if block.start == last.end => return self.flow(number),
            Ending::Branch if block.start == last.end || block.start == last.target => return self.flow(number),
            Ending::Jump if block.start == last.target => return self.flow(number),
            Ending::JumpIndirect if block.function == self.tree.function(cpu.node) => return,
            Ending::Call if block.start == last.target => return self.call(number, last.end),
            Ending::CallIndirect if machine.word(rsp) == Some(last.end) => return self.call(number, last.end),
            Ending::Return => {
                if let Some(top) = cpu.frames.pop_if(|top| top.returns(block.start, rsp) && top.interrupted.is_none()) {
                    cpu.node = top.node;
                    if top.hit != probes::NONE {
                        self.probes.leave(top.hit, self.before, machine);
                    }
                    return self.flow(number);
                }
            }
            _ => {}
        }
        self.surprise(number, past, rsp_before, machine);
    }

    /// The block before which this is called begins at a probed address. `report`: see [`Probes::enter`]; its first
    /// argument is the context.
    pub fn probe(&mut self, number: usize, machine: &impl Machine, mut report: impl FnMut(u32, u32, &[u64; 6])) {
        let Cpu { node, frames, last, rsp, .. } = &mut self.cpus[number];
        let (node, Some(past)) = (*node, last) else { return };
        if self.tree.entered != node {
            return;
        }
        let caller = self.tree.function(self.tree.parent(node));
        let stack = frames.first().map_or(*rsp, |frame| frame.slot);
        let (here, frame) = (Here { caller, stack, executed: self.before }, frames.last_mut().map(|top| &mut top.hit));
        self.probes.enter(past.block.start, &here, frame, machine, |probe, words| report(probe, node, words));
    }

    /// The block goes on in the same frame.
    #[inline]
    pub(super) fn flow(&mut self, number: usize) {
        let cpu = &mut self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return };
        if block.function != self.tree.function(cpu.node) {
            cpu.node = self.tree.child(self.tree.parent(cpu.node), block.function);
            if block.is_entry {
                self.tree.enter(cpu.node);
            }
        }
    }

    /// The block is the first of a called function; its return address is on the stack.
    #[inline]
    fn call(&mut self, number: usize, rip: u64) {
        let cpu = &mut self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return };
        // What is at or below the new return address is no longer in use.
        while let Some(dead) = cpu.frames.pop_if(|top| top.interrupted.is_none() && is_near_above(cpu.rsp, top.slot)) {
            cpu.node = self.tree.child(self.tree.parent(dead.node), self.tree.function(cpu.node));
        }
        if cpu.frames.len() == MAX_FRAMES {
            cpu.frames.clear();
        }
        let (slot, rsp, node, owner) = (cpu.rsp, cpu.rsp + 8, cpu.node, cpu.owner);
        cpu.frames.push(Frame { slot, rsp, rip, node, interrupted: None, owner, hit: probes::NONE });
        cpu.node = match block.cached.get() {
            (caller, node) if caller == cpu.node && node != ROOT => node,
            _ => {
                let node = self.tree.child(cpu.node, block.function);
                block.cached.set((cpu.node, node));
                node
            }
        };
        self.tree.enter(cpu.node);
    }
}

/// Whether `address` is above `other` or the same, and on the same stack.
pub(super) fn is_near_above(address: u64, other: u64) -> bool {
    address.wrapping_sub(other) < NEAR_BYTES
}
