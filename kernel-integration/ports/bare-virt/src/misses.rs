//! riscv64: work with known shares of the loads that miss the data TLB, and other shares of the time. In: nothing. Out:
//! for each round 500, 300 and 200 misses in three functions, and in a fourth one none, which takes most of the time.

use crate::work;
use core::arch::asm;
use core::cell::UnsafeCell;

const PAGE_BYTES: usize = 4096;
const PAGES: usize = 512;

/// Memory that is only loaded from.
struct Pages(UnsafeCell<[[u8; PAGE_BYTES]; PAGES]>);

// SAFETY: nothing writes there.
unsafe impl Sync for Pages {}

static MEMORY: Pages = Pages(UnsafeCell::new([[0; PAGE_BYTES]; PAGES]));

/// All of the work once.
#[inline(never)]
pub fn round() {
    for _ in 0..10 {
        half();
        third();
        fifth();
    }
    without();
}

macro_rules! touches {
    ($($name:ident $pages:literal),*) => {$(
        #[inline(never)]
        fn $name() {
            touch($pages);
        }
    )*};
}

touches!(half 500, third 300, fifth 200);

#[inline(never)]
fn without() {
    work::short();
}

/// Loads a word of this many pages, none of which is in the TLB.
#[inline(always)]
fn touch(pages: usize) {
    let first = MEMORY.0.get() as usize;
    // SAFETY: empties the TLB, and loads from the memory above.
    unsafe {
        asm!("sfence.vma", "2: ld {0}, ({1})", "add {1}, {1}, {2}", "bltu {1}, {3}, 2b",
            out(reg) _, inout(reg) first => _, in(reg) PAGE_BYTES, in(reg) first + pages * PAGE_BYTES,
            options(nostack, readonly));
    }
}
