//! Reads words of the running program's memory, without a fault and without a lock.
//!
//! In: an address that the program has chosen. Out: the word, or nothing. Runs in: NMI. The tables
//! are walked once for each page of a sample, not for each word.

use core::sync::atomic::{AtomicU64, Ordering};

use rmm::PageMapper;

use crate::{
    arch::CurrentRmmArch,
    memory::{areas, PhysicalAddress, RmmA, RmmArch, TableKind, VirtualAddress, PAGE_SIZE},
};

const OFFSET_BITS: u64 = PAGE_SIZE as u64 - 1;
/// A word's place in its page.
const WORD_BITS: u64 = OFFSET_BITS & !7;
/// No page: pages are aligned.
const NO_PAGE: u64 = 8;

/// The page that this CPU has read last in the present NMI, and its distance to where the kernel can
/// read it.
pub struct LastPage {
    page: AtomicU64,
    distance: AtomicU64,
}

impl LastPage {
    pub const fn new() -> Self {
        Self {
            page: AtomicU64::new(NO_PAGE),
            distance: AtomicU64::new(0),
        }
    }

    /// At the start of each NMI: the tables may have changed since the last one.
    #[inline(always)]
    pub fn forget(&self) {
        self.page.store(NO_PAGE, Ordering::Relaxed);
    }

    /// Where the kernel can read the word at `address`, if it is in that page.
    #[inline(always)]
    pub fn known(&self, address: u64) -> Option<u64> {
        // The lowest three bits stay: an address that is not aligned is in no page.
        let is_there = address & !WORD_BITS == self.page.load(Ordering::Relaxed);
        is_there.then(|| address.wrapping_add(self.distance.load(Ordering::Relaxed)))
    }

    /// The same for another page, which is then the last one. `translate` gives its place.
    pub fn learn(&self, address: u64, translate: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
        let page = address & !WORD_BITS;
        if page & OFFSET_BITS != 0 {
            return None;
        }
        let distance = translate(page)?.wrapping_sub(page);
        self.distance.store(distance, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        Some(address.wrapping_add(distance))
    }
}

/// The word at `address`, if the program could read it.
#[inline(always)]
pub fn read(last: &LastPage, address: u64) -> Option<u64> {
    let Some(place) = last.known(address) else {
        return read_other_page(last, address);
    };
    // SAFETY: `translate` has found ordinary memory there, and the word is aligned.
    Some(unsafe { (place as *const u64).read_volatile() })
}

/// (A separate function, so that the usual word needs no registers saved.)
#[cold]
#[inline(never)]
fn read_other_page(last: &LastPage, address: u64) -> Option<u64> {
    let place = last.learn(address, translate)?;
    // SAFETY: as above.
    Some(unsafe { (place as *const u64).read_volatile() })
}

/// The place of a page in the linear map, if the tables map it for the user and it is ordinary
/// memory: the linear map does not contain all devices, and reads of devices can have effects.
fn translate(page: u64) -> Option<u64> {
    if page >= crate::USER_END_OFFSET as u64 {
        return None;
    }
    // SAFETY: this only reads tables. Those of the user half do not change while a CPU uses them,
    // because code that changes them waits for this CPU's answer to a TLB shootdown.
    let mapper = unsafe { PageMapper::<CurrentRmmArch, ()>::current(TableKind::User, ()) };
    let (frame, flags) = mapper.translate(VirtualAddress::new(page as usize))?;
    let is_memory = |frame: PhysicalAddress| {
        let inside = |start: usize, size| frame.data().wrapping_sub(start) < size;
        areas()
            .iter()
            .any(|area| inside(area.base.data(), area.size))
    };
    let is_readable = flags.has_user() && is_memory(frame);
    is_readable.then(|| RmmA::phys_to_virt(frame).data() as u64)
}
