//! The kernel heap: the allocator talc on contiguous frames, protected by a lock that keeps interrupts off.

use core::sync::atomic::{AtomicBool, Ordering};

use talc::lock_api::{GuardNoSend, RawMutex};
use talc::{TalcLock, source::Manual};
use x86_64::instructions::interrupts;

use super::{frames, phys_to_virt};

const HEAP_BYTES: u64 = 64 << 20;

/// A raw spin lock that keeps interrupts off while it is held.
pub struct RawIrqLock {
    held: AtomicBool,
    interrupts_were_on: AtomicBool,
}

// SAFETY: `held` is set in only one place, by a compare-and-exchange with Acquire, and cleared with Release.
unsafe impl RawMutex for RawIrqLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { held: AtomicBool::new(false), interrupts_were_on: AtomicBool::new(false) };
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            core::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        let were_on = interrupts::are_enabled();
        interrupts::disable();
        if self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.interrupts_were_on.store(were_on, Ordering::Relaxed);
            return true;
        }
        if were_on {
            interrupts::enable();
        }
        false
    }

    unsafe fn unlock(&self) {
        let were_on = self.interrupts_were_on.load(Ordering::Relaxed);
        self.held.store(false, Ordering::Release);
        if were_on {
            interrupts::enable();
        }
    }
}

/// The allocator. The global one is this, or one around it (`profiling/heap.rs`).
pub type Heap = TalcLock<RawIrqLock, Manual>;

/// A heap without memory.
pub const fn new() -> Heap {
    TalcLock::new(Manual)
}

/// Gives the heap its memory. Once, before the first allocation.
#[inline(never)]
pub fn init(heap: &Heap) {
    let start = frames::allocate_contiguous(HEAP_BYTES / super::PAGE).expect("not enough RAM for the heap");
    // SAFETY: from now on only the heap uses these frames. They are mapped in the direct map.
    let claimed = unsafe { heap.lock().claim(phys_to_virt(start) as *mut u8, HEAP_BYTES as usize) };
    assert!(claimed.is_some(), "the heap was refused");
}
