//! Page allocator work: frames taken, zeroed, summed eight times, given back.

use alloc::vec::Vec;

use crate::memory::{PAGE, frames, phys_to_virt};

const FRAMES: usize = 64;
const SUMS: usize = 8;

/// Takes 64 frames `rounds` times and gives them back.
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
    // SAFETY: the frame is the caller's, zeroed, in the direct map.
    let words = unsafe { core::slice::from_raw_parts(phys_to_virt(frame) as *const u64, (PAGE / 8) as usize) };
    // What `cargo xtask gate` must find: four words are read twice by a second loop, which takes three percent longer.
    let again: u64 = if cfg!(kprof_slower) { words[..4].iter().sum() } else { 0 };
    words.iter().sum::<u64>() + again
}
