//! Alarms: a tick's NMI a chosen number of instructions from now, so that a sweep can have one at every instruction.
//!
//! In: a count. Out: an NMI from this CPU's own APIC timer, exact where instructions are counted. Nested: each NMI but
//! the last has a breakpoint at the beginning of its handler, whose `iret` lets NMIs in, and the next one comes a
//! number of instructions later. Works in QEMU only (see [`apic::set_timer_nmi`]), for one CPU at a time. While an
//! alarm is due the timer is nobody else's; afterwards it fires once, and the scheduler sets it anew.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::entry::TrapFrame;
use super::trap::NOTHING;
use super::{apic, steps, this, this_in_handler};
use crate::memory::stacks::STACK_BYTES;
use crate::{profiling, random};

/// Orders to a CPU's next NMI, beside those in `trap.rs`.
const FIRST: u8 = 2;
const FURTHER: u8 = 3;
const STEP: u8 = 4;
const LATCH: u8 = 5;

/// Ticks of the timer after which the scheduler has it back.
const TIMER_BACK: u32 = 1000;
/// The profiler measures the cost of each tick whose number is a multiple of this.
const MEASURED: u64 = 64;

/// How long after the first NMI the second one comes, and the third after that; 0: none.
static DELAYS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
/// Whether the last NMI has interrupted the handler of one before it.
static WAS_NESTED: AtomicBool = AtomicBool::new(false);
/// The first NMI's tick is one that is measured.
static IS_MEASURED: AtomicBool = AtomicBool::new(false);
/// What the first NMI is to have interrupted, if not what it has; null: that.
static PRETENDED: AtomicPtr<TrapFrame> = AtomicPtr::new(ptr::null_mut());
/// One in so many NMIs that are gone through in steps has no tick.
const FOREIGN: u64 = 16;
/// Further NMIs have no tick: they are somebody else's.
static IS_FOREIGN: AtomicBool = AtomicBool::new(false);
/// Ticks numbered here.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// An NMI after `count` ticks of the timer. Preemption off.
pub fn after(count: u32) {
    nested_after(count, [0; 2]);
}

/// The same, and further ones, each so many ticks after the one before it.
pub fn nested_after(count: u32, delays: [u32; 2]) {
    x86_64::instructions::interrupts::without_interrupts(|| {
        // What it still counts for somebody else would come as an NMI, too early.
        apic::start_timer(0);
        let cpu = super::id();
        // Some of those that are gone through in steps are somebody else's NMIs: the handler finds no tick.
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

/// From now on the ticks of first NMIs are such that are measured, or not.
pub fn set_measured(measured: bool) {
    IS_MEASURED.store(measured, Ordering::Relaxed);
}

/// From now on the NMIs after a first one are somebody else's, as a watchdog's are; or ticks' again.
pub fn set_foreign(foreign: bool) {
    IS_FOREIGN.store(foreign, Ordering::Relaxed);
}

/// Two ticks with an NMI each: the second NMI comes while the first one's handler runs, and waits there, as the
/// processor keeps one.
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

/// The first NMI in `work` says that it has interrupted something else.
pub fn pretend(interrupted: &TrapFrame, work: impl FnOnce()) {
    PRETENDED.store(ptr::from_ref(interrupted).cast_mut(), Ordering::Relaxed);
    work();
    PRETENDED.store(ptr::null_mut(), Ordering::Relaxed);
}

fn raise_tick(cpu: usize) {
    // One that is no CPU of this machine has none (see `gdt::as_cpu`).
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

/// Does what was ordered; what the profiler is to take for interrupted. NMI context.
pub fn on_nmi(order: u8, frame: &TrapFrame) -> &TrapFrame {
    // SAFETY: null, or what `pretend` has borrowed while its work runs, in which this NMI has come.
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
        // Its tick is numbered now: the handlers before it may have taken theirs.
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

/// The last NMI has come: the timer is the scheduler's again. NMI context.
pub fn end() {
    this_in_handler().nmi_order.store(NOTHING, Ordering::Relaxed);
    apic::set_timer_nmi(false);
    apic::start_timer(TIMER_BACK);
}
