//! Memory: page frames, page tables, kernel stacks, heap, user address spaces, copies to and from user memory.
//!
//! ```text
//! 0000_0000_0000_0000  user
//! ffff_8000_0000_0000  direct map of physical memory
//! ffff_c000_0000_0000  kernel stacks, each above an unmapped range
//! ffff_ffff_8020_0000  the kernel image
//! ```

pub mod fault;
pub mod frames;
pub mod heap;
pub mod layout;
pub mod module;
pub mod paging;
pub mod space;
pub mod stacks;
pub mod user;

use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::info::BootInfo;
pub use layout::{PAGE, PHYSICAL_MAP, USER_END};

/// The kernel address of a physical one.
pub const fn phys_to_virt(physical: u64) -> u64 {
    PHYSICAL_MAP + physical
}

/// The physical address of an address in the direct map.
pub const fn virt_to_phys(address: u64) -> u64 {
    address - PHYSICAL_MAP
}

/// `address` rounded down to a page.
pub const fn page_floor(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// `address` rounded up to a page.
pub const fn page_ceil(address: u64) -> u64 {
    (address + PAGE - 1) & !(PAGE - 1)
}

/// Sets up frames, page tables and heap, in this order. Called once, on the boot CPU.
#[inline(never)]
pub fn init(info: &BootInfo, heap: &heap::Heap) {
    frames::init(info);
    paging::init(info.ram.1);
    heap::init(heap);
}

/// Allocates words in the direct map that are never freed. Their contents are undefined.
///
/// # Panics
/// If there is not enough contiguous memory.
pub fn allocate_words(words: usize) -> &'static mut [MaybeUninit<u64>] {
    match frames::allocate_contiguous((words as u64 * 8).div_ceil(PAGE)) {
        // SAFETY: these frames are in the direct map, no other code uses them, and they are never freed.
        Some(start) => unsafe { slice::from_raw_parts_mut(phys_to_virt(start) as *mut MaybeUninit<u64>, words) },
        // The frame allocator is not set up yet.
        None => early_words(words).expect("no memory for the profiler"),
    }
}

/// Allocates words from a static array, for a profile of the boot: the meta stream and the boot CPU's rings.
fn early_words(words: usize) -> Option<&'static mut [MaybeUninit<u64>]> {
    const WORDS: usize = 73 * 1024;
    static mut MEMORY: [MaybeUninit<u64>; WORDS] = [MaybeUninit::zeroed(); WORDS];
    static USED: AtomicUsize = AtomicUsize::new(0);
    let from = USED.fetch_add(words, Ordering::Relaxed);
    // SAFETY: each part is given out only once, and no code uses the array as a whole.
    (from + words <= WORDS)
        .then(|| unsafe { slice::from_raw_parts_mut((&raw mut MEMORY).cast::<MaybeUninit<u64>>().add(from), words) })
}
