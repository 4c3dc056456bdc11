//! Reads words of the running program's memory, without a fault and without a lock.
//!
//! In: an address that the program has chosen. Out: the word, or nothing. Runs in: NMI. The tables
//! are walked once for each page of a sample, not for each word.

use core::{
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::memory::{areas, RmmA, RmmArch, TableKind, PAGE_SIZE};

const OFFSET_BITS: u64 = PAGE_SIZE as u64 - 1;
/// A word's place in its page.
const WORD_BITS: u64 = OFFSET_BITS & !7;
/// No page: pages are aligned.
const NO_PAGE: u64 = 8;

/// The page that this CPU has read last in the present NMI, and its distance to where the kernel can
/// read it. Also the area of ordinary memory that the page was in, which the next one is in mostly.
pub struct LastPage {
    page: AtomicU64,
    distance: AtomicU64,
    area_start: AtomicU64,
    area_bytes: AtomicU64,
}

impl LastPage {
    pub const fn new() -> Self {
        Self {
            page: AtomicU64::new(NO_PAGE),
            distance: AtomicU64::new(0),
            area_start: AtomicU64::new(0),
            area_bytes: AtomicU64::new(0),
        }
    }

    /// Called at the start of each NMI, because the tables may have changed since the last one. (Areas do not change.)
    #[inline(always)]
    pub fn forget(&self) {
        self.page.store(NO_PAGE, Ordering::Relaxed);
    }

    /// Where the kernel can read the word at `address`, if it is in that page.
    #[inline(always)]
    pub fn known(&self, address: u64) -> Option<NonZero<u64>> {
        // The lowest three bits stay: an address that is not aligned is in no page.
        let is_there = address & !WORD_BITS == self.page.load(Ordering::Relaxed);
        let place = address.wrapping_add(self.distance.load(Ordering::Relaxed));
        NonZero::new(place).filter(|_| is_there)
    }

    /// Stores the page of `address` as the page read last. The kernel can read this page at `place`. Returns where the
    /// kernel can read the word at `address`.
    #[inline(always)]
    pub fn keep(&self, address: u64, place: u64) -> Option<NonZero<u64>> {
        let page = address & !WORD_BITS;
        let distance = place.wrapping_sub(page);
        self.distance.store(distance, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        NonZero::new(address.wrapping_add(distance))
    }

    #[inline(always)]
    fn is_in_area(&self, frame: u64) -> bool {
        let start = self.area_start.load(Ordering::Relaxed);
        frame.wrapping_sub(start) < self.area_bytes.load(Ordering::Relaxed)
    }
}

/// The word at `address`, if the program could read it.
#[inline(always)]
pub fn read(last: &LastPage, address: u64) -> Option<u64> {
    let place = last.known(address).or_else(|| translate(last, address))?;
    // SAFETY: `translate` has found ordinary memory there, and the word is aligned.
    Some(unsafe { (place.get() as *const u64).read_volatile() })
}

/// The word at `frame` and the next one, if the program could read them. RSP is a multiple of 16 when
/// a function is called, so the usual frame does not reach into another page.
#[inline(always)]
pub fn read_frame(last: &LastPage, frame: u64) -> Option<[u64; 2]> {
    if frame & 15 != 0 {
        return read_unusual_frame(last, frame);
    }
    let place = last.known(frame).or_else(|| translate(last, frame))?;
    // SAFETY: `translate` has found ordinary memory there. The words are aligned, and both are in one page, because
    // `frame` is a multiple of 16.
    Some(unsafe { (place.get() as *const [u64; 2]).read_volatile() })
}

#[cold]
#[inline(never)]
fn read_unusual_frame(last: &LastPage, frame: u64) -> Option<[u64; 2]> {
    Some([read(last, frame)?, read(last, frame.wrapping_add(8))?])
}

/// The place of a word in the linear map, if the tables map its page for the user and it is ordinary
/// memory: the linear map does not contain all devices, and reads of devices can have effects.
///
/// (A separate function, so that the usual word needs no registers saved.)
#[cold]
#[inline(never)]
fn translate(last: &LastPage, address: u64) -> Option<NonZero<u64>> {
    if address & 7 != 0 || address >= crate::USER_END_OFFSET as u64 {
        return None;
    }
    let root = RmmA::table(TableKind::User).data() as u64;
    // SAFETY: `walk` asks only for words of the tables that the processor uses, which the linear map contains. Those of
    // the user half do not change while a CPU uses them, because code that changes them waits for this CPU's answer to
    // a TLB shootdown.
    let word = |place: u64| unsafe { (linear(place) as *const u64).read_volatile() };
    let frame = walk(root, address, word)?;
    if last.is_in_area(frame) {
        last.keep(address, linear(frame))
    } else {
        keep_area(last, address, frame)
    }
}

/// Looks for the area that contains the frame. (Called last, so that `translate` saves no registers.)
#[cold]
#[inline(never)]
fn keep_area(last: &LastPage, address: u64, frame: u64) -> Option<NonZero<u64>> {
    for area in areas() {
        let (start, bytes) = (area.base.data() as u64, area.size as u64);
        last.area_start.store(start, Ordering::Relaxed);
        last.area_bytes.store(bytes, Ordering::Relaxed);
        if last.is_in_area(frame) {
            return last.keep(address, linear(frame));
        }
    }
    None
}

/// Where the kernel can read physical memory.
#[inline(always)]
fn linear(physical: u64) -> u64 {
    physical.wrapping_add(RmmA::PHYS_OFFSET as u64)
}

/// Bits that each entry must have: the next table, or the page, is present, and the user may access
/// it.
const USER_PRESENT: u64 = 1 | 1 << 2;
/// In the entries of all tables but the last: the entry maps a large page. This kernel gives programs no large pages.
const LARGE: u64 = 1 << 7;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// The physical address of the user page that contains `address`, by four levels of tables that begin
/// at `root`. `word` reads the word at a physical address.
#[inline(always)]
pub fn walk(root: u64, address: u64, word: impl Fn(u64) -> u64) -> Option<u64> {
    let mut frame = root & FRAME;
    for (shift, refused) in [(36, LARGE), (27, LARGE), (18, LARGE), (9, 0)] {
        let entry = word(frame | (address >> shift & WORD_BITS));
        if entry & (USER_PRESENT | refused) != USER_PRESENT {
            return None;
        }
        frame = entry & FRAME;
    }
    Some(frame)
}
