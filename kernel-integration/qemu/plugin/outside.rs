//! What follows code that is not the kernel's, or is not the kernel's itself. Stage: capture.
//!
//! In: the vCPU, its last block and the present one. Out: the context of the present block, and who owns what it
//! executes: a system call, a handler, user code.

use super::block::{Machine, Past, Place};
use super::calls::{self, Owner};
use super::context::ROOT;
use super::decode::Ending;
use super::entries::{Entry, entry};
use super::probes;
use super::shadow::{Frame, Shadow};

impl Shadow {
    /// The block or the one before is not the kernel's.
    pub(super) fn outside(&mut self, number: usize, past: Option<Past>, machine: &impl Machine) {
        let cpu = &mut self.cpus[number];
        let Some(Past { block, .. }) = cpu.last else { return };
        let is_call = past.is_some_and(|past| matches!(past.block.ending, Ending::Call | Ending::CallIndirect));
        if past.is_some_and(|past| past.block.place == block.place) && block.function == self.tree.function(cpu.node) {
            if is_call && block.is_entry {
                self.tree.enter(cpu.node);
            }
            return;
        }
        let caller = past.filter(|past| past.block.place == Place::User && block.place == Place::Kernel);
        let parent = if caller.is_some() { cpu.node } else { ROOT };
        // The kernel's stack is empty when user code runs.
        cpu.frames.clear();
        let is_system_call = caller.is_some_and(|past| self.calls.is_entry(&past, block));
        // At the entry of a call the stack is still the user's, and what is on it is no frame of an interrupt.
        let is_frame = |(_, entry): &(Past, Entry)| !(is_system_call && entry.is_from_user);
        let entered = caller.and_then(|past| Some((past, entry(cpu.rsp, machine)?))).filter(is_frame);
        let owner = cpu.owner;
        cpu.owner = match (block.place, entered) {
            (Place::User, _) => Owner::no_call(calls::USER),
            (_, Some((past, entry))) => Owner::no_call(calls::USER).interrupted(entry.is_exception(&past)),
            _ if is_system_call => self.calls.enter(machine.register(0)),
            _ if caller.is_some() => Owner::no_call(calls::INTERRUPT),
            _ => Owner::default(),
        };
        if block.place == Place::User {
            self.calls.leave(owner);
        }
        if let Some((past, entry)) = entered.filter(|(_, entry)| !entry.is_from_user) {
            // An NMI came before the first instruction of the kernel's entry, which follows after it.
            let Entry { rsp, rip, .. } = entry;
            let (slot, node, interrupted) = (cpu.rsp, cpu.node, Some(past));
            cpu.frames.push(Frame { slot, rsp, rip, node, interrupted, owner, hit: probes::NONE });
        }
        if let Some((past, entry)) = entered {
            self.counts.interrupts += 1;
            self.counts.faults += u64::from(entry.repeats(&past));
        }
        cpu.node = self.tree.child(parent, block.function);
        if block.place == Place::Kernel || (is_call && block.is_entry) {
            self.tree.enter(cpu.node);
        }
    }
}
