//! Broken frame-pointer chains: code that spins while rbp has an unusable value, so that samples are taken in it.
//!
//! Each kind ends a walk for one reason: a frame pointer outside of all stacks, a misaligned one, one that does not go
//! up, a return address that is not code, a stack that is too deep. Preemption and interrupts stay on, because a switch
//! saves and restores rbp like any register.

use core::arch::asm;
use core::hint::black_box;

use crate::memory::stacks;

/// Turns of the spinning loop for each kind, which take about ten microseconds.
const SPINS: u64 = 30_000;
const DEEP: u32 = 120;
/// Number of kinds.
const KINDS: u32 = 5;

/// Spins through all kinds `rounds` times.
#[inline(never)]
pub fn spin_through(rounds: u64) {
    for round in 0..rounds {
        (0..KINDS).for_each(|kind| spin_one(kind, round, SPINS));
    }
}

/// Spins through one kind for some turns.
#[inline(always)]
fn spin_one(kind: u32, round: u64, turns: u64) {
    match kind {
        0 => wild(round, turns),
        1 => misaligned(round, turns),
        2 => looping(turns),
        3 => not_text(turns),
        _ => drop(deep(DEEP, turns)),
    }
}

/// Frame pointers outside of every stack of this CPU: null page, not canonical, unmapped, the guard of another stack,
/// the kernel image.
#[inline(never)]
fn wild(round: u64, turns: u64) {
    let values = [0x10, 0xdead_beef_0000_0000, 0xffff_d000_0000_0000, stacks::first_guard(), 0xffff_ffff_8020_0000];
    spin_with(values[round as usize % values.len()], turns);
}

/// A frame pointer in the running stack that is not a multiple of 8.
#[inline(never)]
fn misaligned(round: u64, turns: u64) {
    let frame = [0u64; 4];
    spin_with(black_box(&frame).as_ptr() as u64 + 1 + round % 7, turns);
}

/// A frame that leads to itself.
#[inline(never)]
fn looping(turns: u64) {
    let mut frame = [0u64, looping as *const () as u64 + 4];
    frame[0] = black_box(&frame).as_ptr() as u64;
    spin_with(black_box(&frame).as_ptr() as u64, turns);
}

/// A return address that is data.
#[inline(never)]
fn not_text(turns: u64) {
    let mut frames = [0u64; 4];
    frames[0] = black_box(&frames)[2..].as_ptr() as u64;
    frames[1] = black_box(&frames).as_ptr() as u64;
    spin_with(black_box(&frames).as_ptr() as u64, turns);
}

/// More frames than a sample can have.
#[inline(never)]
fn deep(depth: u32, turns: u64) -> u32 {
    if depth == 0 {
        spin(turns);
        return 0;
    }
    black_box(deep(depth - 1, turns)) + 1
}

#[inline(never)]
fn spin(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Spins with this value in rbp.
#[inline(never)]
fn spin_with(rbp: u64, turns: u64) {
    // SAFETY: rbp is saved and restored around the loop, which changes only its own registers.
    unsafe {
        asm!(
            "push rbp",
            "mov rbp, {value}",
            "2:",
            "dec {turns}",
            "jnz 2b",
            "pop rbp",
            value = in(reg) rbp,
            turns = inout(reg) turns => _,
        );
    }
}
