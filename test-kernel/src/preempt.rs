//! Preemption: a count per thread of reasons not to switch.
//!
//! The running thread is found from RSP (the head of its stack), so no question of "which CPU" arises.

use core::sync::atomic::Ordering;

use x86_64::instructions::interrupts;

use super::{scheduler, thread};
use crate::cpu;

/// One more reason not to switch.
#[inline]
pub fn disable() {
    if let Some(thread) = thread::current() {
        thread.preempt.fetch_add(1, Ordering::Relaxed);
    }
}

/// One reason less; switches if the last one is gone and a switch was asked for meanwhile.
#[inline]
pub fn enable() {
    if let Some(thread) = thread::current()
        && thread.preempt.fetch_sub(1, Ordering::Relaxed) == 1
        && cpu::this().need_resched.load(Ordering::Relaxed)
        && interrupts::are_enabled()
    {
        scheduler::yield_now();
    }
}

/// Switches if the interrupt just served asked for it and the interrupted code allows it. Interrupts are off.
#[inline]
pub fn on_interrupt_exit() {
    if cpu::this().need_resched.load(Ordering::Relaxed)
        && thread::current().is_some_and(|thread| thread.preempt.load(Ordering::Relaxed) == 0)
    {
        scheduler::yield_now();
    }
}
