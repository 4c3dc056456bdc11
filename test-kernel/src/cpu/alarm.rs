//! Alarms: the NMI of a tick comes after a chosen number of instructions, so that a sweep can interrupt every
//! instruction.
//!
//! In: a count. Out: an NMI from this CPU's own APIC timer; it is exact if instructions are counted (`-icount`). NMIs
//! can be nested: each NMI except the last has a breakpoint at the beginning of its handler, whose `iret` allows NMIs
//! again, and the next NMI comes a number of instructions later. This works only in QEMU (see
//! [`apic::set_timer_nmi`]), for one CPU at a time. While an alarm is due, no other code may use the timer. Afterwards
//! the timer fires once, and the scheduler sets it again.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::entry::TrapFrame;
use super::order::{FIRST, FURTHER, LATCH, NOTHING, STEP};
use super::{apic, steps, this, this_in_handler};
use crate::memory::stacks::STACK_BYTES;
use crate::{profiling, random};

/// Ticks of the timer until it fires for the scheduler again.
const TIMER_BACK: u32 = 1000;
/// The profiler measures the cost of each tick whose number is a multiple of this.
const MEASURED: u64 = 64;

/// Timer ticks from the first NMI to the second, and from the second to the third; 0: there is none.
static DELAYS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
/// Whether the last NMI has interrupted the handler of one before it.
static WAS_NESTED: AtomicBool = AtomicBool::new(false);
/// Whether the tick of the first NMI is one whose cost the profiler measures.
static IS_MEASURED: AtomicBool = AtomicBool::new(false);
/// The registers that the first NMI reports instead of those that it has interrupted; null: none.
static PRETENDED: AtomicPtr<TrapFrame> = AtomicPtr::new(ptr::null_mut());
/// One in this many single-stepped NMIs has no tick.
const FOREIGN: u64 = 16;
/// Whether the NMIs after the first one have no tick, so that they are foreign.
static IS_FOREIGN: AtomicBool = AtomicBool::new(false);
/// The number of ticks that this file has raised.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// Orders an NMI after `count` ticks of the timer. Preemption must be off.
pub fn after(count: u32) {
    nested_after(count, [0; 2]);
}

/// As [`after`], with further NMIs: `delays` are the ticks from each NMI to the next.
pub fn nested_after(count: u32, delays: [u32; 2]) {
    x86_64::instructions::interrupts::without_interrupts(|| {
        // The timer may still be counting for the scheduler. It would then fire as an NMI, and too early.
        apic::start_timer(0);
        let cpu = super::id();
        // Some of the single-stepped NMIs are foreign: their handler finds no tick.
        if steps::is_wanted() && random::next().is_multiple_of(FOREIGN) {
            profiling::use_up_coalesced();
        } else {
            raise_tick(cpu);
        }
        while IS_MEASURED.load(Ordering::Relaxed) && !TICKS.load(Ordering::Relaxed).is_multiple_of(MEASURED) {
            raise_tick(cpu);
        }
        DELAYS.iter().zip(delays).for_each(|(place, delay)| place.store(delay, Ordering::Relaxed));
        WAS_NESTED.store(false, Ordering::Relaxed);
        this().nmi_order.store(FIRST, Ordering::Relaxed);
        apic::set_timer_nmi(true);
        apic::start_timer(count);
    });
}

/// Sets whether the ticks of first NMIs are ones whose cost the profiler measures.
pub fn set_measured(measured: bool) {
    IS_MEASURED.store(measured, Ordering::Relaxed);
}

/// Sets whether the NMIs after the first one are foreign, as those of a watchdog, or have ticks.
pub fn set_foreign(foreign: bool) {
    IS_FOREIGN.store(foreign, Ordering::Relaxed);
}

/// Sends two ticks with an NMI each. The second NMI comes while the handler of the first one runs. The processor
/// latches it until that handler returns.
pub fn latched() {
    x86_64::instructions::interrupts::without_interrupts(|| {
        raise_tick(super::id());
        this().nmi_order.store(LATCH, Ordering::Relaxed);
        apic::send_nmi(this().apic_id.load(Ordering::Relaxed));
        while is_due() {
            core::hint::spin_loop();
        }
    });
}

/// Runs `work`. The first NMI in it reports the registers `interrupted` instead of the real ones.
pub fn pretend(interrupted: &TrapFrame, work: impl FnOnce()) {
    PRETENDED.store(ptr::from_ref(interrupted).cast_mut(), Ordering::Relaxed);
    work();
    PRETENDED.store(ptr::null_mut(), Ordering::Relaxed);
}

fn raise_tick(cpu: usize) {
    // A CPU number that this machine does not have gets no ticks (see `gdt::as_cpu`).
    TICKS.fetch_add(u64::from(cpu < super::count()), Ordering::Relaxed);
    profiling::raise_tick(cpu);
}

/// Whether an NMI is still to come.
pub fn is_due() -> bool {
    this().nmi_order.load(Ordering::Relaxed) != NOTHING
}

/// Whether the last of several NMIs has interrupted the handler of another one.
pub fn was_nested() -> bool {
    WAS_NESTED.load(Ordering::Relaxed)
}

/// Does what was ordered. Returns the registers that the profiler must take for the interrupted ones. Runs in: NMI.
pub fn on_nmi(order: u8, frame: &TrapFrame) -> &TrapFrame {
    // SAFETY: the pointer is null, or it comes from the reference that `pretend` holds while its work runs. This NMI
    // has interrupted that work.
    let pretended = unsafe { PRETENDED.swap(ptr::null_mut(), Ordering::Relaxed).as_ref() };
    obey(order, frame);
    pretended.unwrap_or(frame)
}

#[inline(always)]
fn obey(order: u8, frame: &TrapFrame) {
    let cpu = this_in_handler();
    if order == LATCH {
        cpu.nmi_order.store(NOTHING, Ordering::Relaxed);
        raise_tick(super::id_in_handler());
        return apic::send_nmi(cpu.apic_id.load(Ordering::Relaxed));
    }
    if order == STEP {
        raise_tick(super::id_in_handler());
        return steps::on_nmi(frame);
    }
    if order == FURTHER {
        let stack = |address: u64| address & !(STACK_BYTES - 1);
        let is_nested = !frame.is_user() && stack(frame.rsp) == stack(core::ptr::from_ref(frame) as u64);
        steps::count(frame.rip);
        WAS_NESTED.store(is_nested, Ordering::Relaxed);
        // The tick is raised now, after the handlers before it may have taken their own ticks.
        if !IS_FOREIGN.load(Ordering::Relaxed) {
            raise_tick(super::id_in_handler());
        }
    }
    let [next, then] = &DELAYS;
    let delay = next.load(Ordering::Relaxed);
    next.store(then.load(Ordering::Relaxed), Ordering::Relaxed);
    then.store(0, Ordering::Relaxed);
    if delay == 0 && steps::is_wanted() {
        cpu.nmi_order.store(STEP, Ordering::Relaxed);
        return steps::begin();
    }
    if delay == 0 {
        return end();
    }
    cpu.nmi_order.store(FURTHER, Ordering::Relaxed);
    apic::start_timer(delay);
    x86_64::instructions::interrupts::int3();
}

/// Called after the last NMI: the timer belongs to the scheduler again. Runs in: NMI.
pub fn end() {
    this_in_handler().nmi_order.store(NOTHING, Ordering::Relaxed);
    apic::set_timer_nmi(false);
    apic::start_timer(TIMER_BACK);
}
