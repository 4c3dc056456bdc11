//! What follows a block in another way than by its last instruction alone. Stage: capture.
//!
//! In: the vCPU, its last block and the present one. Out: the context of the present block: that of a handler, of
//! interrupted code that goes on, of an outer caller, of another guest stack, or of a new one. QEMU 10.2 and later tell
//! where a handler begins. For older ones it is guessed, by the words on the stack; where QEMU tells it, the guess is
//! only compared.

use super::block::{Machine, Past};
use super::calls::{self, Owner};
use super::context::ROOT;
use super::decode::Ending;
use super::entries::{Entry, entry};
use super::functions::USER;
use super::probes;
use super::shadow::{Frame, MAX_ARGUMENT_BYTES, Shadow, UNREAD, is_near_above};

/// What a return or the end of an interrupt leads to.
enum Found {
    /// A frame of the present chain.
    Outer(usize),
    /// A chain that was suspended.
    Suspended,
    Nothing,
}

impl Shadow {
    #[cold]
    pub(super) fn surprise(&mut self, number: usize, past: Past, rsp_before: u64, machine: &impl Machine) {
        let cpu = &self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return };
        let (rsp, rip) = (cpu.rsp, block.start);
        let told = machine.was_entered(rip);
        let is_told = told == Some(true);
        if past.executed == 0 && rip == past.block.start && [rsp, UNREAD].contains(&rsp_before) && !is_told {
            // QEMU was stopped before the block's first instruction, and begins it again.
            return;
        }
        if past.is_partial() && past.executed > 0 && !is_told {
            // After an access to a device QEMU goes on within the block; after a store to it, it repeats the store.
            let next = past.block.address(past.executed);
            if rip == next || rip == past.block.address(past.executed - 1) {
                return self.flow(number);
            }
        }
        let ending = past.block.ending;
        let is_return = !past.is_partial() && matches!(ending, Ending::Return | Ending::InterruptReturn);
        if is_return && !is_told && self.return_to_a_frame(number, machine) {
            return;
        }
        let entered = entry(rsp, machine);
        let is_to_user = matches!(ending, Ending::ToUser | Ending::InterruptReturn);
        if is_to_user && entered.is_some_and(|entry| entry.is_from_user) {
            // An interrupt came before the first instruction of the user's code.
            let cpu = &mut self.cpus[number];
            self.calls.leave(cpu.owner);
            // Only the fetch of that instruction can have raised an exception.
            let is_exception = entered.is_some_and(|entry| entry.has_error_code);
            cpu.owner = Owner::no_call(calls::USER).interrupted(is_exception);
            cpu.frames.clear();
            cpu.node = self.tree.child(ROOT, USER);
            return self.enter(number);
        }
        let of_kernel = entered.filter(|entry| !entry.is_from_user);
        let guess = of_kernel.filter(|entry| self.is_expected(number, entry, &past, machine));
        self.counts.told += u64::from(is_told);
        self.counts.misguessed += u64::from(told.is_some_and(|told| told != guess.is_some()));
        let taken = match told {
            None => guess,
            Some(is_told) => of_kernel.filter(|_| is_told),
        };
        if let Some(entry) = taken {
            self.counts.faults += u64::from(entry.repeats(&past));
            let cpu = &mut self.cpus[number];
            let (node, owner) = (cpu.node, cpu.owner);
            cpu.owner = owner.interrupted(entry.is_exception(&past));
            let Entry { rsp: after, rip, .. } = entry;
            let interrupted = self.returned_to(number, past, rip, after).unwrap_or(node);
            let cpu = &mut self.cpus[number];
            cpu.frames.push(Frame {
                slot: rsp,
                rsp: after,
                rip,
                node,
                interrupted: Some(past),
                owner,
                hit: probes::NONE,
            });
            cpu.node = interrupted;
            return self.enter(number);
        }
        if is_return {
            return self.go_elsewhere(number, rsp_before, machine);
        }
        if ending != Ending::JumpIndirect {
            self.counts.unexplained += 1;
        }
        self.drop_dead(number);
        self.flow(number);
    }

    /// The calling context of an interrupt that came right after a return, or right after the end of another interrupt:
    /// the context of the frame that was returned to. The frames are dropped later, when the interrupt ends.
    fn returned_to(&self, number: usize, mut past: Past, rip: u64, rsp: u64) -> Option<u32> {
        let suspended = self.suspended.get(&rsp).filter(|frames| frames.last().is_some_and(|it| it.returns(rip, rsp)));
        let (mut frames, mut node) = (&self.cpus[number].frames[..], None);
        while !past.is_partial() && matches!(past.block.ending, Ending::Return | Ending::InterruptReturn) {
            let at = frames.iter().rposition(|frame| frame.returns(rip, rsp));
            let (frame, below) = match (at, suspended) {
                (Some(at), _) => (&frames[at], &frames[..at]),
                (None, Some(chain)) if node.is_none() => (chain.last()?, &chain[..chain.len() - 1]),
                _ => break,
            };
            node = Some(frame.node);
            let Some(before) = frame.interrupted else { break };
            (past, frames) = (before, below);
        }
        node
    }

    /// The block is the first of a handler.
    fn enter(&mut self, number: usize) {
        self.counts.interrupts += 1;
        let cpu = &mut self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return };
        cpu.node = self.tree.child(cpu.node, block.function);
        self.tree.enter(cpu.node);
    }

    /// Whether the words on the stack are the frame of an entry, after this block. They may be data for a later `iret`,
    /// which a return to another stack finds there.
    fn is_expected(&self, number: usize, entry: &Entry, past: &Past, machine: &impl Machine) -> bool {
        self.is_entry_after(number, entry, past, machine)
            || entry.first(machine).is_some_and(|first| self.is_entry_after(number, &first, past, machine))
    }

    fn is_entry_after(&self, number: usize, entry: &Entry, past: &Past, machine: &impl Machine) -> bool {
        let fits = |frame: &Frame| frame.returns(entry.rip, entry.rsp);
        match past.block.ending {
            _ if past.is_partial() => entry.can_follow(past),
            Ending::Return | Ending::InterruptReturn => {
                entry.is_on_same_stack
                    || self.cpus[number].frames.iter().rev().any(fits)
                    || self.suspended.get(&entry.rsp).and_then(|frames| frames.last()).is_some_and(fits)
            }
            Ending::CallIndirect => machine.word(entry.rsp) == Some(past.block.end) || entry.repeats(past),
            _ => entry.can_follow(past),
        }
    }

    fn find(&self, number: usize, rip: u64, rsp: u64) -> Found {
        let frames = &self.cpus[number].frames;
        if let Some(at) = frames.iter().rposition(|frame| frame.returns(rip, rsp)) {
            return Found::Outer(at);
        }
        let is_suspended = |frames: &Vec<Frame>| frames.last().is_some_and(|frame| frame.returns(rip, rsp));
        if self.suspended.get(&rsp).is_some_and(is_suspended) { Found::Suspended } else { Found::Nothing }
    }

    /// A return or the end of an interrupt that does not fit the innermost call. False if it fits no other frame.
    fn return_to_a_frame(&mut self, number: usize, machine: &impl Machine) -> bool {
        let cpu = &self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return false };
        let (rip, rsp) = (block.start, cpu.rsp);
        match self.find(number, rip, rsp) {
            Found::Outer(at) => self.cpus[number].frames.truncate(at + 1),
            Found::Suspended => {
                self.suspend(number);
                self.cpus[number].frames = self.suspended.remove(&rsp).unwrap_or_default();
            }
            Found::Nothing => return false,
        }
        let cpu = &mut self.cpus[number];
        let Some(frame) = cpu.frames.pop() else { return false };
        (cpu.node, cpu.owner) = (frame.node, frame.owner);
        self.probes.leave(frame.hit, self.before, machine);
        match frame.interrupted {
            // As if the interrupt had not been.
            Some(past) => {
                cpu.last = Some(past);
                self.step(number, block, machine);
            }
            None => self.flow(number),
        }
        true
    }

    /// A return to where no frame is.
    fn go_elsewhere(&mut self, number: usize, rsp_before: u64, machine: &impl Machine) {
        let cpu = &mut self.cpus[number];
        let (rsp, rip) = (cpu.rsp, cpu.last.map(|past| past.block.start));
        // The return address was replaced. Or the function has moved it down the stack, as functions that save
        // registers do.
        let is_moved = |frame: &Frame| {
            Some(frame.rip) == rip && frame.interrupted.is_none() && frame.rsp.wrapping_sub(rsp) <= MAX_ARGUMENT_BYTES
        };
        if let Some(frame) = cpu.frames.pop_if(|frame| frame.rsp == rsp || is_moved(frame)) {
            (cpu.node, cpu.owner) = (frame.node, frame.owner);
            self.probes.leave(frame.hit, self.before, machine);
            return self.flow(number);
        }
        // A return address that was pushed by other instructions than a call.
        let top = cpu.frames.last().map(|frame| frame.slot);
        let is_same_stack = rsp.abs_diff(rsp_before) < 256 && top.is_none_or(|top| is_near_above(top, rsp));
        if is_same_stack {
            return self.flow(number);
        }
        self.suspend(number);
        let cpu = &mut self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return };
        cpu.owner = Owner::default();
        cpu.node = self.tree.child(ROOT, block.function);
        self.tree.enter(cpu.node);
    }

    /// Puts the present chain aside until its innermost frame is returned to.
    fn suspend(&mut self, number: usize) {
        self.counts.switches += 1;
        let frames = std::mem::take(&mut self.cpus[number].frames);
        if let Some(top) = frames.last() {
            self.suspended.insert(top.rsp, frames);
        }
    }

    /// Drops frames of the same stack whose return address is no longer on it: the context is that of the outermost
    /// call that will not return.
    fn drop_dead(&mut self, number: usize) {
        let cpu = &mut self.cpus[number];
        let rsp = cpu.rsp;
        let is_dead = |top: &mut Frame| top.interrupted.is_none() && rsp != top.slot && is_near_above(rsp, top.slot);
        while let Some(dead) = cpu.frames.pop_if(|top| is_dead(top)) {
            (cpu.node, cpu.owner) = (dead.node, dead.owner);
        }
    }
}
