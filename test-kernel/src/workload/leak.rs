//! Allocations of which one of a hundred is never freed. The log gets what the kernel itself has counted, without
//! asking the profiler.
//!
//! The log gets a line `known: leak ALLOCATIONS BYTES FORGOTTEN-BYTES`.

use alloc::vec::Vec;
use core::hint::black_box;

use crate::log;

/// Of this many allocations one is forgotten.
const ONE_OF: u64 = 100;

/// Makes a hundred times `rounds` blocks of 64 to 8 Ki bytes, and forgets `rounds` of them.
#[inline(never)]
pub fn allocate(rounds: u64) {
    let (mut allocations, mut bytes, mut forgotten) = (0, 0, 0);
    for round in 0..rounds {
        for number in 0..ONE_OF {
            // Sizes without a rhythm that a hundred could be in step with.
            let size = 64 << (((round * ONE_OF + number) * 0x9e37_79b9) >> 8 & 7);
            allocations += 1;
            bytes += size;
            if number == 41 {
                forgotten += size;
                forget(size);
            } else {
                keep_for_a_while(size);
            }
        }
    }
    log!("known: leak {allocations} {bytes} {forgotten}");
}

/// Allocates a block that nobody frees.
#[inline(never)]
fn forget(size: u64) {
    Vec::leak(block(size));
}

/// Allocates a block and frees it.
#[inline(never)]
fn keep_for_a_while(size: u64) {
    drop(black_box(block(size)));
}

fn block(size: u64) -> Vec<u8> {
    black_box(Vec::with_capacity(size as usize))
}
