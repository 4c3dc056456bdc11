//! Dynamic probes: the memory for them, and the breakpoints that they cause.
//!
//! In: breakpoints in kernel code. Out: calls of kprof. Runs in: the breakpoint handler, interrupts off.

use kprof::Breakpoint;
use kprof_events::ProbeMemory;

use super::EVENTS;
use crate::cpu::entry::TrapFrame;
use crate::log;

/// Enough for every function of this kernel that can have a probe at once.
pub(super) const FUNCTIONS: usize = 1024;
static PROBES: ProbeMemory<FUNCTIONS, 4096, 1024> = ProbeMemory::new();

/// Called once.
pub(super) fn register() {
    if let Err(error) = EVENTS.register_probes(&PROBES) {
        log!("kprof: there are no probes: {error}");
    }
}

/// Called for a breakpoint in kernel code, before any other function. Whether a probe has caused it.
#[inline]
pub fn on_breakpoint(frame: &mut TrapFrame) -> bool {
    let mut at = Breakpoint { pc: frame.rip, sp: frame.rsp, fp: frame.rbp };
    // SAFETY: the breakpoint's stub calls this with the registers of kernel code, interrupts off. It has moved the
    // hardware frame six words down, and restores the registers from `frame`.
    let is_probe =
        unsafe { EVENTS.on_breakpoint(&mut at, || [frame.rdi, frame.rsi, frame.rdx, frame.rcx, frame.r8, frame.r9]) };
    if is_probe {
        (frame.rip, frame.rsp) = (at.pc, at.sp);
    }
    is_probe
}
