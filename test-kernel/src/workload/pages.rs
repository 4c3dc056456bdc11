//! Page allocator work: allocates frames, zeroes them, sums their words eight times, and frees them.

use alloc::vec::Vec;

use crate::memory::{PAGE, frames, phys_to_virt};

const FRAMES: usize = 64;
const SUMS: usize = 8;

/// Allocates 64 frames and frees them, `rounds` times.
#[inline(never)]
pub fn fill_and_release(rounds: u64) {
    for _ in 0..rounds {
        let taken: Vec<u64> = (0..FRAMES).map_while(|_| frames::allocate_zeroed()).collect();
        let sum: u64 = taken.iter().cycle().take(SUMS * taken.len()).map(|frame| sum_words(*frame)).sum();
        core::hint::black_box(sum);
        taken.into_iter().for_each(frames::release);
    }
}

#[inline(never)]
fn sum_words(frame: u64) -> u64 {
    // SAFETY: the frame belongs to the caller, is zeroed, and is mapped in the direct map.
    let words = unsafe { core::slice::from_raw_parts(phys_to_virt(frame) as *const u64, (PAGE / 8) as usize) };
    // `cargo xtask gate` must detect this change: a second loop reads four words again, which takes three percent
    // longer.
    let again: u64 = if cfg!(kprof_slower) { words[..4].iter().sum() } else { 0 };
    words.iter().sum::<u64>() + again
}
