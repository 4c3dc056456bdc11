//! Single-steps an NMI handler, and sends a nested NMI to each instruction that no NMI has hit yet.
//!
//! In: an NMI whose handler calls [`begin`]. From there on a debug exception comes before each instruction of the
//! handler; its `iret` allows NMIs again, as that of an `int3` does. If the next instruction has no hit yet, the
//! exception orders an NMI that comes after its own `iret`, before that instruction runs. Out: the number of hits for
//! each instruction of the kernel. Each of these NMIs is nested and has a tick. Works for one CPU at a time. Runs in:
//! NMI, except functions marked "ordinary code".

use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::entry::TrapFrame;
use super::{alarm, apic};
use crate::log;
use crate::memory::paging;
use crate::random;

/// Hits, by the distance from the beginning of the kernel's code.
static HITS: spin::Once<Vec<AtomicU16>> = spin::Once::new();
/// Whether the last one of ordered NMIs is single-stepped.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The instruction at which the ordered NMI should come; 0: none is ordered.
static TARGET: AtomicU64 = AtomicU64::new(0);
/// Whether an NMI since the last call of [`has_news`] has hit an instruction that had no hits.
static HAS_NEWS: AtomicBool = AtomicBool::new(false);
/// Whether an NMI since the last call of [`has_missed`] has missed an instruction that had no hits.
static HAS_MISSED: AtomicBool = AtomicBool::new(false);
/// How many NMIs in a row have missed their targets.
static MISSES: AtomicU32 = AtomicU32::new(0);
/// Whether the ordered NMI is the last one, because its target is the handler's last instruction.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Ticks of the timer from its start in the exception to the first instruction after the exception. The value is found
/// by trying smaller and smaller ones.
static DELAY: AtomicU32 = AtomicU32::new(MAX_DELAY);
const MAX_DELAY: u32 = 100;
/// Up to this many misses in a row are caused by QEMU, whose NMIs are sometimes late.
const FEW_MISSES: u32 = 3;
/// One in this many steps gets an NMI although its instruction already has a hit, because the end of a handler depends
/// on whether there was a nested NMI.
const ANYWHERE: u64 = 32;
/// The first steps do not get such NMIs: the handler has not taken its tick yet, and each of these NMIs would bring
/// another one.
const FIRST_STEPS: u32 = 100;
/// Steps so far.
static STEPS: AtomicU32 = AtomicU32::new(0);
/// Bit 8 of RFLAGS.
const TRAP_FLAG: u64 = 1 << 8;
/// The first bytes of `iretq`.
const IRETQ: [u8; 2] = [0x48, 0xcf];

/// Sets whether the last one of ordered NMIs is single-stepped. Runs in: ordinary code.
pub fn set_wanted(wanted: bool) {
    IS_WANTED.store(wanted, Ordering::Relaxed);
}

/// Whether the last one of ordered NMIs is single-stepped.
pub fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}

/// Whether an NMI has missed an instruction without hits since the last call. The caller then repeats its work. Runs
/// in: ordinary code.
pub fn has_missed() -> bool {
    HAS_MISSED.swap(false, Ordering::Relaxed)
}

/// Whether an NMI has hit an instruction without hits since the last call. Runs in: ordinary code.
pub fn has_news() -> bool {
    HAS_NEWS.swap(false, Ordering::Relaxed)
}

/// Allocates the counters in the first call. Runs in: ordinary code.
pub fn init() {
    let (start, end) = paging::text_range();
    HITS.call_once(|| (start..end).map(|_| AtomicU16::new(0)).collect());
}

fn hits_at(address: u64) -> Option<&'static AtomicU16> {
    HITS.get()?.get(address.checked_sub(paging::text_range().0)? as usize)
}

/// Whether no NMI has hit this instruction yet.
fn is_new(address: u64) -> bool {
    hits_at(address).is_some_and(|hits| hits.load(Ordering::Relaxed) == 0)
}

/// Counts an NMI that has interrupted the instruction at this address.
pub fn count(address: u64) {
    if let Some(hits) = hits_at(address) {
        HAS_NEWS.fetch_or(hits.load(Ordering::Relaxed) == 0, Ordering::Relaxed);
        hits.store(hits.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }
}

/// Writes the hits since the last report to the log. Runs in: ordinary code.
pub fn report() {
    let hits = HITS.get().map_or(&[][..], Vec::as_slice);
    for (address, hits) in (paging::text_range().0..).zip(hits) {
        match hits.swap(0, Ordering::Relaxed) {
            0 => {}
            hits => log!("nested: {address:x} {hits}"),
        }
    }
}

/// Starts single-stepping the rest of the NMI handler that calls this.
#[inline(always)]
pub fn begin() {
    TARGET.store(0, Ordering::Relaxed);
    STEPS.store(0, Ordering::Relaxed);
    IS_ENDING.store(false, Ordering::Relaxed);
    // SAFETY: the trap flag causes a debug exception after each instruction, which does not change the interrupted
    // code. The `iret` of this NMI restores the flag.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {trap}", "popfq", trap = const TRAP_FLAG) };
}

/// Handles a debug exception in kernel code. It comes before the instruction at the interrupted RIP.
pub fn on_step(frame: &mut TrapFrame) {
    // SAFETY: RIP is the address of code that is about to run, so it can be read.
    let is_last = unsafe { (frame.rip as *const [u8; 2]).read() } == IRETQ;
    if is_last {
        IS_ENDING.store(true, Ordering::Relaxed);
        // The code after this instruction no longer belongs to the handler. (QEMU traps once more after an instruction
        // that clears the flag.)
        frame.rflags &= !TRAP_FLAG;
    }
    if TARGET.load(Ordering::Relaxed) != 0 {
        return;
    }
    let is_chosen = STEPS.fetch_add(1, Ordering::Relaxed) >= FIRST_STEPS && random::next().is_multiple_of(ANYWHERE);
    if is_new(frame.rip) || is_chosen {
        TARGET.store(frame.rip, Ordering::Relaxed);
        apic::start_timer(DELAY.load(Ordering::Relaxed));
    } else if is_last {
        alarm::end();
    }
}

/// Handles the NMI that a step has ordered.
pub fn on_nmi(frame: &TrapFrame) {
    count(frame.rip);
    let target = TARGET.swap(0, Ordering::Relaxed);
    let has_hit = target == frame.rip;
    HAS_MISSED.fetch_or(!has_hit && is_new(target), Ordering::Relaxed);
    let misses = if has_hit { 0 } else { MISSES.load(Ordering::Relaxed) + 1 };
    MISSES.store(misses, Ordering::Relaxed);
    if misses > FEW_MISSES {
        let delay = DELAY.load(Ordering::Relaxed);
        DELAY.store(if delay > 1 { delay - 1 } else { MAX_DELAY }, Ordering::Relaxed);
    }
    if IS_ENDING.load(Ordering::Relaxed) {
        alarm::end();
    }
}
