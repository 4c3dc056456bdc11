//! Which task each vCPU runs. Stage: capture.
//!
//! In: the first instructions of two functions of the guest. One changes to another task: its third argument is where
//! the guest has the number of the CPU's task, its fourth one is the number. The other one gives the running task a new
//! number: from then on, the guest's word is read before each block until it has changed. Out: the task's number. A
//! change counts from the first instruction of the function on; before the first one the task is 0. Runs in: QEMU's
//! process, before a block.

use super::block::Machine;

/// Registers of arguments: RDX, RCX.
const THIRD: usize = 2;
const FOURTH: usize = 1;

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    task: u64,
    /// Where the guest has it.
    word: u64,
}

/// All vCPUs.
#[derive(Debug, Default)]
pub struct Tasks {
    cpus: Vec<Cpu>,
    /// The vCPU whose task gets a new number.
    pub changing: Option<usize>,
}

impl Tasks {
    fn cpu(&mut self, cpu: usize) -> &mut Cpu {
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, Cpu::default());
        }
        &mut self.cpus[cpu]
    }

    /// The function that changes to another task is about to run: its number.
    pub fn switch(&mut self, cpu: usize, machine: &impl Machine) -> u64 {
        let now = Cpu { task: machine.register(FOURTH), word: machine.register(THIRD) };
        *self.cpu(cpu) = now;
        now.task
    }

    /// The function that gives the task a new number is about to run.
    pub fn rename(&mut self, cpu: usize) {
        self.changing = Some(cpu);
    }

    /// A block is about to run on the vCPU: the new number, if there is one now.
    #[cold]
    pub fn changed(&mut self, cpu: usize, machine: &impl Machine) -> Option<u64> {
        let Cpu { task, word } = *self.cpu(cpu);
        let now = machine.word(word).filter(|now| *now != task)?;
        self.cpu(cpu).task = now;
        self.changing = None;
        Some(now)
    }
}
