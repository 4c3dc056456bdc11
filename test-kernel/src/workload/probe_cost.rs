//! Measures what a dynamic probe costs: two breakpoint exceptions for a call, one when it begins, one when it ends.
//! Under `-icount` the difference of the TSC is the number of instructions.
//!
//! The log gets one line for each state: `cost: probe, count, 450 instructions`. `exception` is a breakpoint that no
//! probe has caused: the entry stub, the search for a probe, the kernel's own handling, the way back. A recorded call
//! has a stack of sixteen frames; if one has not, the log says so. No reader may have the streams.

use alloc::format;
use core::arch::global_asm;
use core::hint::black_box;

use super::points::{self, FRAMES, below, command, frames, set, spent};
use crate::log;

global_asm!(
    ".macro small_function name",
    "\\name:",
    "push rbp",
    "mov rbp, rsp",
    "pop rbp",
    "ret",
    ".type \\name, @function",
    ".size \\name, . - \\name",
    ".endm",
    "small_function probed_function",
    "small_function unprobed_function",
);

/// Where its `ret` is.
const EXIT: usize = 5;

unsafe extern "C" {
    safe fn probed_function();
    safe fn unprobed_function();
}

/// Measures `rounds` calls in each state.
pub fn measure(rounds: u64) {
    let function = probed_function as *const () as usize;
    let point = format!("probe.{function:016x}");
    command(&format!("probe {function:x} {EXIT:x}"));
    set(&point, "record");
    below(0, 0, call);
    let more = FRAMES.saturating_sub(frames(|_| true).unwrap_or(0));
    command("unprobe all");
    mean("not planted", rounds, more, call);
    mean("exception", rounds, more, breakpoint);
    command(&format!("probe {function:x} {EXIT:x}"));
    for state in ["off", "count", "record"] {
        set(&point, state);
        below(more, 0, call);
        mean(state, rounds, more, call);
    }
    command("unprobe all");
    match frames(|_| true) {
        Some(FRAMES) => {}
        found => log!("cost: probe: the last record has {found:?} frames"),
    }
}

/// The instructions in this state, less those of the same call without a probe.
#[inline(always)]
fn mean(state: &str, rounds: u64, more: usize, work: fn(u64) -> u64) {
    let nothing = |round| below(more, round, black_box(unprobed));
    let work = |round| below(more, round, black_box(work));
    log!("cost: probe, {state}, {} instructions", points::more(rounds, nothing, work));
}

#[inline(never)]
fn call(_: u64) -> u64 {
    spent(|| black_box(probed_function as extern "C" fn())())
}

/// A function of the same instructions that has no probe.
#[inline(never)]
fn unprobed(_: u64) -> u64 {
    spent(|| black_box(unprobed_function as extern "C" fn())())
}

#[inline(never)]
fn breakpoint(_: u64) -> u64 {
    spent(|| {
        black_box(unprobed_function as extern "C" fn())();
        x86_64::instructions::interrupts::int3();
    })
}
