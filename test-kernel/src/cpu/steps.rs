//! An NMI at each instruction of an NMI's handler that none has hit yet.
//!
//! In: an NMI whose handler is to be gone through ([`begin`], in it). The handler runs in single steps: a debug
//! exception before each instruction, which lets NMIs in as an `int3` does. Where an instruction has no hit yet, the
//! exception orders an NMI that comes behind its own `iret`, before that instruction runs. Out: hits for each
//! instruction of the kernel. Each of these NMIs is a tick, and a nested one. One CPU at a time; NMI context, but for
//! [`report`].

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
/// Whether the last one of ordered NMIs is gone through in steps.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The instruction that an NMI is on its way to; 0: none is.
static TARGET: AtomicU64 = AtomicU64::new(0);
/// Whether an NMI since the last question has hit an instruction without hits.
static HAS_NEWS: AtomicBool = AtomicBool::new(false);
/// Whether an NMI since the last question has missed an instruction without hits.
static HAS_MISSED: AtomicBool = AtomicBool::new(false);
/// How many NMIs in a row have missed their targets.
static MISSES: AtomicU32 = AtomicU32::new(0);
/// The NMI on its way is the last: its target was the handler's last instruction.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Ticks of the timer from its start in the exception to the first instruction behind it: found out by trying,
/// downwards.
static DELAY: AtomicU32 = AtomicU32::new(MOST_DELAY);
const MOST_DELAY: u32 = 100;
/// So many misses are QEMU's: its NMIs now and then come late.
const FEW_MISSES: u32 = 3;
/// Of so many steps one has an NMI although there was one already: the end of a handler depends on it.
const ANYWHERE: u64 = 32;
/// But not among the first, behind which the handler looks at its tick: each of these NMIs brings another.
const FIRST_STEPS: u32 = 100;
/// Steps so far.
static STEPS: AtomicU32 = AtomicU32::new(0);
/// Bit 8 of RFLAGS.
const TRAP_FLAG: u64 = 1 << 8;
/// The first bytes of `iretq`.
const IRETQ: [u8; 2] = [0x48, 0xcf];

/// From now on the last one of ordered NMIs is gone through in steps, or not. Ordinary code.
pub fn set_wanted(wanted: bool) {
    IS_WANTED.store(wanted, Ordering::Relaxed);
}

/// Whether it is.
pub fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}

/// Whether an NMI has missed an instruction without hits since this was asked last: the same once more, then. Ordinary
/// code.
pub fn has_missed() -> bool {
    HAS_MISSED.swap(false, Ordering::Relaxed)
}

/// Whether an NMI has hit an instruction that none had hit before, since this was asked last. Ordinary code.
pub fn has_news() -> bool {
    HAS_NEWS.swap(false, Ordering::Relaxed)
}

/// Makes room for the hits, the first time. Ordinary code.
pub fn init() {
    let (start, end) = paging::text_range();
    HITS.call_once(|| (start..end).map(|_| AtomicU16::new(0)).collect());
}

fn hits_at(address: u64) -> Option<&'static AtomicU16> {
    HITS.get()?.get(address.checked_sub(paging::text_range().0)? as usize)
}

/// Whether none has hit it yet.
fn is_new(address: u64) -> bool {
    hits_at(address).is_some_and(|hits| hits.load(Ordering::Relaxed) == 0)
}

/// Counts an NMI that has interrupted the instruction there.
pub fn count(address: u64) {
    if let Some(hits) = hits_at(address) {
        HAS_NEWS.fetch_or(hits.load(Ordering::Relaxed) == 0, Ordering::Relaxed);
        hits.store(hits.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }
}

/// The hits since the last report, to the log. Ordinary code.
pub fn report() {
    let hits = HITS.get().map_or(&[][..], Vec::as_slice);
    for (address, hits) in (paging::text_range().0..).zip(hits) {
        match hits.swap(0, Ordering::Relaxed) {
            0 => {}
            hits => log!("nested: {address:x} {hits}"),
        }
    }
}

/// The rest of the NMI that this is called in runs in steps.
#[inline(always)]
pub fn begin() {
    TARGET.store(0, Ordering::Relaxed);
    STEPS.store(0, Ordering::Relaxed);
    IS_ENDING.store(false, Ordering::Relaxed);
    // SAFETY: the trap flag: a debug exception behind each instruction, which changes nothing for the code that is
    // interrupted; the `iret` of this NMI takes the flag back.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {trap}", "popfq", trap = const TRAP_FLAG) };
}

/// A debug exception in kernel code: before the instruction that it has interrupted.
pub fn on_step(frame: &mut TrapFrame) {
    // SAFETY: the code that runs is there.
    let is_last = unsafe { (frame.rip as *const [u8; 2]).read() } == IRETQ;
    if is_last {
        IS_ENDING.store(true, Ordering::Relaxed);
        // What comes behind is not the handler's any more. (QEMU traps once more behind an instruction that clears the
        // flag.)
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

/// The NMI ordered by a step has come.
pub fn on_nmi(frame: &TrapFrame) {
    count(frame.rip);
    let target = TARGET.swap(0, Ordering::Relaxed);
    let has_hit = target == frame.rip;
    HAS_MISSED.fetch_or(!has_hit && is_new(target), Ordering::Relaxed);
    let misses = if has_hit { 0 } else { MISSES.load(Ordering::Relaxed) + 1 };
    MISSES.store(misses, Ordering::Relaxed);
    if misses > FEW_MISSES {
        let delay = DELAY.load(Ordering::Relaxed);
        DELAY.store(if delay > 1 { delay - 1 } else { MOST_DELAY }, Ordering::Relaxed);
    }
    if IS_ENDING.load(Ordering::Relaxed) {
        alarm::end();
    }
}
