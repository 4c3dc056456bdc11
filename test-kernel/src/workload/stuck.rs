//! Planted lockups: a CPU, or two, are stuck for a time, so that the sampler can find them. Each lockup ends, so that a
//! scenario can go on after it.
//!
//! In: `KIND MILLISECONDS`, written to `/kernel/stuck`, with `planted ` before it if the log is to tell.
//! `interrupts-off`: a loop with interrupts off. `deadlock`: two CPUs take two locks in opposite order. `livelock`: two
//! CPUs give way to each other again and again. `lock`: one CPU holds a lock, and another waits for it. `in-nmi`: a CPU
//! stays inside the handler of an NMI, so that it takes no further NMI. Out: in the log, for each CPU that was stuck,
//! from which TSC to which. Runs in: a system call, and for the second CPU a kernel thread; both with preemption off.
//! The functions have the names that a report should show.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use x86_64::instructions::interrupts;

use crate::cpu::order::LINGER;
use crate::cpu::{self, clock};
use crate::errno::{Errno, Result};
use crate::profiling::RawNamedLock;
use crate::task::thread;
use crate::{log, preempt};

/// A lock that notes on which CPU it was taken.
static HELD: lock_api::Mutex<RawNamedLock, ()> = lock_api::Mutex::new(());
static LOCK_A: spin::Mutex<()> = spin::Mutex::new(());
static LOCK_B: spin::Mutex<()> = spin::Mutex::new(());
/// How many CPUs have begun the present lockup.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Whose turn it is in the livelock.
static TURN: AtomicUsize = AtomicUsize::new(0);
/// Until when a CPU stays inside an NMI.
static LINGERS_UNTIL: AtomicU64 = AtomicU64::new(0);
/// The log is to say which CPUs were stuck.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
/// A lockup is planted now.
static IS_PLANTED: AtomicBool = AtomicBool::new(false);

/// Plants a lockup. Returns when it is over.
pub fn run(text: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let (text, is_told) = text.strip_prefix("planted ").map_or((text, false), |text| (text, true));
    let (kind, ms) = text.split_once(' ').ok_or(Errno::EINVAL)?;
    let ms: u64 = ms.parse().map_err(|_| Errno::EINVAL)?;
    let ticks = clock::tsc_hz() / 1000 * ms;
    if IS_PLANTED.swap(true, Ordering::AcqRel) {
        return Err(Errno::EBUSY);
    }
    BEGUN.store(0, Ordering::Release);
    IS_TOLD.store(is_told, Ordering::Release);
    let done = match kind {
        "interrupts-off" => {
            one_side("spin_with_interrupts_off", ticks, spin_with_interrupts_off);
            Ok(())
        }
        "deadlock" => {
            thread::spawn_kernel("stuck", move || one_side("take_b_then_a", ticks, take_b_then_a));
            one_side("take_a_then_b", ticks, take_a_then_b);
            Ok(())
        }
        "livelock" => {
            thread::spawn_kernel("stuck", move || one_side("give_way_to_first", ticks, give_way_to_first));
            one_side("give_way_to_second", ticks, give_way_to_second);
            Ok(())
        }
        "lock" => {
            thread::spawn_kernel("stuck", move || one_side("wait_for_lock", ticks, wait_for_lock));
            one_side("hold_lock", ticks, hold_lock);
            Ok(())
        }
        "in-nmi" => {
            one_side("wait_for_nmi", ticks, wait_for_nmi);
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    };
    IS_PLANTED.store(false, Ordering::Release);
    done
}

/// Runs one side of a lockup on this CPU for `ticks` of the TSC.
fn one_side(name: &str, ticks: u64, side: fn(u64)) {
    preempt::disable();
    let (cpu, from) = (cpu::id(), clock::tsc());
    side(from + ticks);
    preempt::enable();
    if IS_TOLD.load(Ordering::Acquire) {
        log!("stuck: {name} on cpu {cpu} from {from:x} to {:x}", clock::tsc());
    }
}

#[inline(never)]
fn spin_with_interrupts_off(end: u64) {
    interrupts::without_interrupts(|| spin_until(end, || false));
}

#[inline(never)]
fn take_a_then_b(end: u64) {
    let _first = LOCK_A.lock();
    meet(end);
    spin_until(end, || LOCK_B.try_lock().is_some());
}

#[inline(never)]
fn take_b_then_a(end: u64) {
    let _first = LOCK_B.lock();
    meet(end);
    spin_until(end, || LOCK_A.try_lock().is_some());
}

#[inline(never)]
fn hold_lock(end: u64) {
    let _held = HELD.lock();
    meet(end);
    spin_until(end, || false);
}

#[inline(never)]
fn wait_for_lock(end: u64) {
    spin_until(end, || HELD.is_locked());
    meet(end);
    drop(HELD.lock());
}

#[inline(never)]
fn give_way_to_second(end: u64) {
    meet(end);
    spin_until(end, || {
        TURN.store(2, Ordering::Release);
        TURN.load(Ordering::Acquire) == 1 && is_over(end)
    });
}

#[inline(never)]
fn give_way_to_first(end: u64) {
    meet(end);
    spin_until(end, || {
        TURN.store(1, Ordering::Release);
        TURN.load(Ordering::Acquire) == 2 && is_over(end)
    });
}

/// Whether the lockup is over. The two sides may each get the turn by chance, if both write at the same time.
#[inline(always)]
fn is_over(end: u64) -> bool {
    clock::tsc() >= end
}

#[inline(never)]
fn wait_for_nmi(end: u64) {
    // Before the NMI the CPU is sampled here.
    spin_until(clock::tsc() + clock::tsc_hz() / 1000 * 3, || false);
    LINGERS_UNTIL.store(end, Ordering::Release);
    cpu::this().nmi_order.store(LINGER, Ordering::Release);
    spin_until(end, || false);
}

/// Waits inside an NMI until the lockup is over. Runs in: NMI.
#[inline(never)]
pub fn linger_in_nmi() {
    spin_until(LINGERS_UNTIL.load(Ordering::Acquire), || false);
}

/// Waits until both CPUs have come here.
#[inline(always)]
fn meet(end: u64) {
    BEGUN.fetch_add(1, Ordering::AcqRel);
    spin_until(end, || BEGUN.load(Ordering::Acquire) == 2);
}

/// Spins until a condition holds, or until this TSC. It pauses rarely, because where instructions are counted each
/// pause takes the time of thousands of instructions on the host.
#[inline(always)]
fn spin_until(end: u64, is_done: impl Fn() -> bool) {
    for round in 0_u64.. {
        if is_over(end) || is_done() {
            return;
        }
        if round % 1024 == 0 {
            core::hint::spin_loop();
        }
    }
}
