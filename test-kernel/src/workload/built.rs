//! Builds stacks of every kind: chains of every length for which the handler's fast path behaves differently, and every
//! way in which a walk can end.
//!
//! In: the number of plain frames, the end that follows them, the lowest word of the stack, and a closure that orders
//! an NMI. Out: nothing; code spins on the stack until the NMI has come. Interrupts must be off.

use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering};

use kprof::format::marker::MARKER_PAGE;

use super::dice::{WORDS, call_forms_ends, lowest, spin};
use crate::cpu::{NMI_STACK, STACKS};
use crate::memory::{paging, stacks};

/// The number of ways in which a stack of [`build`] can end. The handler's fast path can meet the first [`PLAIN_ENDS`]
/// of them.
pub const ENDS: usize = 16;
/// How many ends are tried after chains of every length.
pub const PLAIN_ENDS: usize = 6;
/// The number of values for the lowest word of a stack of [`build`]: zero, a code address, or the address after a call
/// of each form.
pub const TOPS: usize = 12;

/// The number of places on the stack at which chains are built.
const PLACES: usize = 64;

/// Builds a chain of `depth` plain frames with the end number `end`, and with the lowest word number `top`. Then spins
/// on it.
#[inline(never)]
pub fn build(depth: usize, end: usize, top: usize, armed: impl FnOnce()) {
    let mut stack = [0; 2 * PLACES + WORDS];
    // Each place is used twice in a row, and then the next one: the handler's frame cache knows every second stack.
    static BUILT: AtomicUsize = AtomicUsize::new(0);
    let number = BUILT.fetch_add(1, Ordering::Relaxed);
    let stack = &mut stack[2 * (number / 2 % PLACES)..];
    let base = black_box(&mut *stack)[1..].as_mut_ptr() as u64;
    let address = paging::text_range().0 + 0x2000;
    let place = |at: usize| base + 8 * at as u64;
    stack[0] = match top {
        0 => 0,
        1 => address,
        form => call_forms_ends()[form - 2],
    };
    let words = &mut stack[1..];
    for at in (0..2 * depth).step_by(2) {
        (words[at], words[at + 1]) = (place(at + 2), address);
    }
    let at = 2 * depth;
    let other = lowest(NMI_STACK);
    let top = lowest(STACKS - 1) - 64 + stacks::STACK_BYTES;
    let (syscall, interrupt, fault) = (MARKER_PAGE | 0x300, MARKER_PAGE | 0x121, MARKER_PAGE | 0x20e);
    // The address of the interrupted code's frame, which follows the hardware frame at the next higher addresses.
    let above = place(at + 8);
    let frame: &[u64] = match end {
        0 => &[0, address],
        1 => &[place(at + 2), 0],
        2 => &[base + 3, address],
        3 => &[place(at + 2), 7],
        4 => &[0, syscall, 0x40_0000, 0x2b, 0x202, 0x7000, 0x23],
        5 => &[0, interrupt, 0x40_0000, 0x2b, 0x202, 0x7000, 0x23],
        6 => &[above, fault, address, 0x08, 0x202, place(at + 7), 0x10, 0, 0, address],
        7 => &[above, fault, 7, 0x08, 0x202, place(at + 7), 0x10],
        8 => &[0, fault, 0, 0x2b, 0x202, 0x7000, 0x23],
        9 => &[0, MARKER_PAGE | 0x401],
        10 => &[other, address],
        11 => &[base, address],
        12 => &[above, fault, address, 0x08, 0x202, base, 0x10],
        13 => &[lowest(NMI_STACK + 1), address],
        14 => &[top - 16, address],
        _ => &[other, interrupt, address, 0x08, 0x202, other, 0x10],
    };
    words[at..at + frame.len()].copy_from_slice(frame);
    // On each stack a frame that leads to the next stack; the one on the last stack leads back to this stack.
    for (from, to) in (NMI_STACK..STACKS).zip((NMI_STACK + 1..STACKS).map(lowest).chain([base])) {
        let from = lowest(from);
        for (index, word) in [from + 16, address, to, address].into_iter().enumerate() {
            // SAFETY: these are this CPU's own stacks. On the NMI stack, the words are far below those that NMIs use.
            unsafe { ((from + 8 * index as u64) as *mut u64).write_volatile(word) };
        }
    }
    // An entry frame in the last two words of a stack, so that its hardware frame would be outside of the stack.
    for (place, word) in [(top - 16, 0), (top - 8, syscall)] {
        // SAFETY: these are unused words of this CPU's own stack.
        unsafe { (place as *mut u64).write_volatile(word) };
    }
    black_box(&mut *stack);
    armed();
    spin(base - 8, base);
    black_box(stack);
}
