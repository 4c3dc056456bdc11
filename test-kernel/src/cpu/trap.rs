//! Handles exceptions, interrupts and NMIs. The stubs in `entry.rs` call these functions with the saved registers.

use core::sync::atomic::Ordering;

use super::apic;
use super::entry::TrapFrame;
#[cfg(feature = "profiling")]
use super::order::LINGER;
use super::order::{NOTHING, STOP};
use crate::memory::{fault, stacks};
use crate::task::{scheduler, signal};
#[cfg(feature = "profiling")]
use crate::workload;
use crate::workload::truth;
use crate::{boot, preempt, profiling, syscall};

#[cfg(feature = "profiling")]
const DEBUG: u8 = 1;
const BREAKPOINT: u8 = 3;
const DOUBLE_FAULT: u8 = 8;
const PAGE_FAULT: u8 = 14;

/// Exceptions and interrupts. Interrupts are off; they are off again when it returns.
#[unsafe(no_mangle)]
extern "C" fn trap_enter(frame: &mut TrapFrame) {
    let before = profiling::enter(frame);
    super::this().halted.store(false, Ordering::Relaxed);
    match frame.vector() {
        PAGE_FAULT => {
            profiling::count_page_fault();
            let begun_ns = profiling::page_fault_begins();
            fault::page_fault(frame);
            profiling::page_fault_ends(begun_ns);
        }
        vector @ 0..32 => exception(vector, frame),
        vector => interrupt(vector, frame),
    }
    x86_64::instructions::interrupts::disable();
    if frame.vector() >= 32 || frame.is_user() {
        preempt::on_interrupt_exit();
    }
    if frame.is_user() {
        syscall::deliver_signals(frame, None);
    }
    profiling::leave(frame, before);
}

/// A breakpoint. `true` if a probe has caused it; everything is done then. Its own entry, because no function that is
/// called before the profiler may have a probe.
#[unsafe(no_mangle)]
extern "C" fn breakpoint_enter(frame: &mut TrapFrame) -> bool {
    !frame.is_user() && profiling::on_breakpoint(frame)
}

#[inline(never)]
fn interrupt(vector: u8, frame: &TrapFrame) {
    // The cost of counting depends on the number of tasks, so interrupts of work whose instructions are counted are
    // not counted here.
    if vector != truth::VECTOR {
        profiling::count_interrupt();
    }
    let cpu = super::this();
    match vector {
        apic::SPURIOUS => return,
        boot::early::VECTOR => {
            boot::early::on_interrupt();
            // This interrupt does not come from the local APIC, so it is not acknowledged there.
            return profiling::on_boot_timer(frame);
        }
        apic::TIMER => {
            profiling::on_timer(frame);
            if cpu.schedules.load(Ordering::Relaxed) {
                scheduler::on_timer();
            }
        }
        apic::SAMPLE => profiling::on_nmi(frame),
        apic::RESCHEDULE => cpu.need_resched.store(true, Ordering::Relaxed),
        apic::FIRST_DEVICE => boot::on_device_interrupt(),
        _ => {}
    }
    apic::end_of_interrupt();
}

fn exception(vector: u8, frame: &mut TrapFrame) {
    if vector == BREAKPOINT && !frame.is_user() {
        // An `int3` in kernel code has no effect other than its `iret`, which allows NMIs again.
        return;
    }
    #[cfg(feature = "profiling")]
    if vector == DEBUG && !frame.is_user() {
        return super::steps::on_step(frame);
    }
    if !frame.is_user() {
        if vector == DOUBLE_FAULT && stacks::is_guard(frame.rsp.wrapping_sub(8)) {
            panic!("kernel stack overflow at {:#x}", frame.rip);
        }
        panic!("exception {vector} in the kernel at {:#x}, error {:#x}, rsp {:#x}", frame.rip, frame.error, frame.rsp);
    }
    let number = match vector {
        0 | 16 | 19 => signal::SIGFPE,
        1 | 3 => signal::SIGTRAP,
        6 => signal::SIGILL,
        17 => signal::SIGBUS,
        _ => signal::SIGSEGV,
    };
    signal::raise_fault(frame, number, frame.rip);
}

/// Does what an NMI has to do besides taking a tick. Returns the registers that the profiler must take for the
/// interrupted ones.
#[cold]
#[inline(never)]
fn ordered(order: u8, frame: &TrapFrame) -> &TrapFrame {
    if order == STOP {
        loop {
            x86_64::instructions::hlt();
        }
    }
    #[cfg(feature = "profiling")]
    if order == LINGER {
        super::this_in_handler().nmi_order.store(NOTHING, Ordering::Relaxed);
        workload::stuck::linger_in_nmi();
        return frame;
    }
    #[cfg(feature = "profiling")]
    let frame = super::alarm::on_nmi(order, frame);
    frame
}

/// Handles NMIs. Interrupts are off and stay off. No lock may be taken from here on.
#[unsafe(no_mangle)]
extern "C" fn nmi_enter(frame: &TrapFrame) {
    let cpu = super::this_in_handler();
    let order = cpu.nmi_order.load(Ordering::Relaxed);
    let frame = if order == NOTHING { frame } else { ordered(order, frame) };
    profiling::on_nmi(frame);
    cpu.nmi_pending.store(false, Ordering::Relaxed);
}
