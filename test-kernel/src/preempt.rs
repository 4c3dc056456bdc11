//! Preemption: each thread has a count of reasons not to switch away from it. This is one of the lowest modules,
//! because every lock uses it.
//!
//! The running thread is found from RSP (the head of its stack), so the code does not depend on the number of the CPU.
//! The count is the first field of a thread. The scheduler sets the function that switches ([`install`]).

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

use x86_64::instructions::interrupts;

use crate::cpu;
use crate::memory::layout::{HEAD_POINTER_BYTES, STACK_BYTES};

/// The number of reasons not to switch away from a thread. It is the first field of each thread.
pub struct Count(AtomicU32);

impl Count {
    /// A count of 0.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

static YIELD_NOW: spin::Once<fn()> = spin::Once::new();

/// Sets the function that switches to another thread. Called before the first thread runs; later calls have no effect.
pub fn install(yield_now: fn()) {
    YIELD_NOW.call_once(|| yield_now);
}

fn yield_now() {
    if let Some(yield_now) = YIELD_NOW.get() {
        yield_now();
    }
}

/// The count of the running thread; `None` before there are threads.
#[inline(always)]
fn current() -> Option<&'static Count> {
    let rsp: u64;
    // SAFETY: this only reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) };
    let head = (rsp & !(STACK_BYTES - 1)) + STACK_BYTES - HEAD_POINTER_BYTES;
    // SAFETY: every kernel stack is aligned to its size. Its head has the pointer to its thread, which begins with the
    // count, or 0. The thread exists at least as long as it runs, and the reference is not kept longer.
    unsafe { (*(head as *const *const Count)).as_ref() }
}

/// Adds one reason not to switch.
#[inline]
pub fn disable() {
    if let Some(count) = current() {
        count.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes one reason not to switch. If it was the last one and a switch was requested in the meantime, switches now.
#[inline]
pub fn enable() {
    if let Some(count) = current()
        && count.0.fetch_sub(1, Ordering::Relaxed) == 1
        && cpu::this().need_resched.load(Ordering::Relaxed)
        && interrupts::are_enabled()
    {
        yield_now();
    }
}

/// Switches if the interrupt that was just handled has requested it and the interrupted code allows it. Interrupts are
/// off.
#[inline]
pub fn on_interrupt_exit() {
    if cpu::this().need_resched.load(Ordering::Relaxed)
        && current().is_some_and(|count| count.0.load(Ordering::Relaxed) == 0)
    {
        yield_now();
    }
}
