//! Profiling: what depends on the processor. `crate::profiling` has the rest.
//!
//! In: what an entry stub has saved, the registers of the timer. Out: the interrupted registers, the
//! clock, whether the kernel's timer is due. Runs in: the timer's interrupt, interrupts masked.

pub mod entries;

use core::{
    arch::asm,
    mem::size_of,
    sync::atomic::{AtomicBool, Ordering},
};

use kprof::Registers;

use crate::arch::{device::cpu::registers::control_regs, interrupt::InterruptStack};

/// The mask bit of IRQs in SPSR_EL1.
const IRQ_MASKED: usize = 1 << 7;
/// The bits of CNTV_CTL_EL0 and CNTP_CTL_EL0: enabled, masked, due.
const ENABLED: u32 = 1;
const MASKED: u32 = 2;
const DUE: u32 = 4;

/// Whether the kernel's timer is the virtual one. The kernel decides it the same way.
static IS_VIRTUAL: AtomicBool = AtomicBool::new(true);

/// Called once, before sampling starts.
pub fn init() {
    // SAFETY: reads an identification register.
    IS_VIRTUAL.store(!unsafe { control_regs::vhe_present() }, Ordering::Relaxed);
}

/// What an entry has interrupted. SP of EL1 is where the stub has begun to push.
pub fn registers(stack: &InterruptStack) -> Registers {
    let spsr = stack.iret.spsr_el1;
    let from_user = spsr & 0xf == 0;
    let own_sp =
        (stack as *const InterruptStack as usize).wrapping_add(size_of::<InterruptStack>());
    Registers {
        pc: stack.iret.elr_el1 as u64,
        sp: if from_user { stack.iret.sp_el0 } else { own_sp } as u64,
        fp: stack.preserved.x29 as u64,
        link: stack.preserved.x30 as u64,
        from_user,
        interrupts_on: spsr & IRQ_MASKED == 0,
    }
}

/// Whether the interrupt that has just arrived is, or comes together with, the kernel's timer's.
pub fn timer_is_due() -> bool {
    // SAFETY: reads a control register of a timer.
    let control = unsafe {
        if IS_VIRTUAL.load(Ordering::Relaxed) {
            control_regs::vtmr_ctrl()
        } else {
            control_regs::ptmr_ctrl()
        }
    };
    control & (ENABLED | MASKED | DUE) == ENABLED | DUE
}

/// The frequency of the clock and of both timers.
pub fn clock_hz() -> u64 {
    // SAFETY: reads a register.
    u64::from(unsafe { control_regs::cntfrq_el0() })
}

/// The clock that kprof stamps samples with.
pub fn timestamp() -> u64 {
    let count: u64;
    // SAFETY: reads a counter.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    count
}

/// A symbol with its address, with which symbols of another build are detected.
pub fn anchor() -> (&'static str, u64) {
    unsafe extern "C" {
        safe static exception_vector_base: u8;
    }
    let address = &raw const exception_vector_base as u64;
    ("exception_vector_base", address)
}
