//! Preemption: a count per thread of reasons not to switch. On the ground floor, because every lock counts here.
//!
//! The running thread is found from RSP (the head of its stack), so no question of "which CPU" arises. The count is the
//! first thing in a thread; the scheduler says once how to switch ([`install`]).

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

use x86_64::instructions::interrupts;

use crate::cpu;
use crate::memory::layout::{HEAD_POINTER_BYTES, STACK_BYTES};

/// How many reasons there are not to switch away from a thread. The first field of each thread.
pub struct Count(AtomicU32);

impl Count {
    /// None.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

static YIELD_NOW: spin::Once<fn()> = spin::Once::new();

/// Says what switches to another thread. Before the first thread runs; later calls change nothing.
pub fn install(yield_now: fn()) {
    YIELD_NOW.call_once(|| yield_now);
}

fn yield_now() {
    if let Some(yield_now) = YIELD_NOW.get() {
        yield_now();
    }
}

/// The count of the running thread; none before there are threads.
#[inline(always)]
fn current() -> Option<&'static Count> {
    let rsp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) };
    let head = (rsp & !(STACK_BYTES - 1)) + STACK_BYTES - HEAD_POINTER_BYTES;
    // SAFETY: every kernel stack is aligned to its size and has the pointer to its thread, which begins with the count,
    // or zero, in its head. The thread lives at least as long as it runs, and the reference is not kept beyond that.
    unsafe { (*(head as *const *const Count)).as_ref() }
}

/// One more reason not to switch.
#[inline]
pub fn disable() {
    if let Some(count) = current() {
        count.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One reason less; switches if the last one is gone and a switch was asked for meanwhile.
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

/// Switches if the interrupt just served asked for it and the interrupted code allows it. Interrupts are off.
#[inline]
pub fn on_interrupt_exit() {
    if cpu::this().need_resched.load(Ordering::Relaxed)
        && current().is_some_and(|count| count.0.load(Ordering::Relaxed) == 0)
    {
        yield_now();
    }
}
