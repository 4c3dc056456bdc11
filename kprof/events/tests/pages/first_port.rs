//! The port that README.md shows. In: questions of the profiler. Out: the answers of a machine with one CPU.

use core::ops::Range;
use kprof::{CpuSet, Kernel, Task};

pub struct Port;

/// What the kernel knows already.
pub mod machine {
    use core::ops::Range;

    pub fn cpu() -> usize {
        1
    }

    pub fn send_nmi(_cpu: usize) {}

    pub fn stack(cpu: usize) -> Range<u64> {
        let start = 0x1000 * cpu as u64;
        start..start + 0x1000
    }

    pub fn entry_code() -> Range<u64> {
        0x8000..0x8100
    }

    pub fn sleep_ns(_ns: u64) {}
}

// SAFETY: nothing runs on this machine: no tick is sent, and no address of it is read.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        machine::cpu()
    }
    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(machine::send_nmi);
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        Some(machine::stack(machine::cpu())).filter(|stack| stack.contains(&address))
    }
    fn is_entry_code(&self, address: u64) -> bool {
        machine::entry_code().contains(&address)
    }
    fn task(&self) -> Task {
        Task { id: 1, idle: false }
    }
    fn sleep_ns(&self, ns: u64) {
        machine::sleep_ns(ns);
    }
}
