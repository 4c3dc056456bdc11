//! The words that the processor pushes at an interrupt or exception (Intel SDM volume 3, 6.14.2). Stage: capture.
//!
//! In: where they may be on the stack. Out: what was interrupted, and the marker of the entry. Words that a processor
//! does not push there are refused.

use super::half::{Half, UPPER};
use super::{INTERRUPT, Read, SYSCALL};

/// How much of a frame is searched for an interrupt's frame.
const MAX_SEARCHED_BYTES: u64 = 1024;

/// RIP, CS, RFLAGS, RSP, SS.
pub type Words = [u64; 5];

/// The words at this address, and the marker of the entry, which is only known if the stub has written one of kprof's.
pub fn entry(half: Half, at: u64, word: &dyn Fn(u64) -> Option<u64>, read_code: Read<'_>) -> Option<(Words, u64)> {
    let mut words = [0; 5];
    for (word_of, at) in words.iter_mut().zip((at..).step_by(8)) {
        *word_of = word(at)?;
    }
    let is_code = |rip: u64| read_code(rip, &mut [0]);
    if !is_entry(half, words) || (words[1] & 3 == 0 && !is_code(words[0])) {
        return None;
    }
    let marker = word(at.wrapping_sub(8)).filter(|word| (INTERRUPT..=SYSCALL).contains(word));
    Some((words, marker.unwrap_or(INTERRUPT)))
}

/// Whether these may be the five words that a processor has pushed.
pub fn is_entry(half: Half, [rip, cs, rflags, rsp, ss]: Words) -> bool {
    let is_selector = |value: u64| value < 0x200 && matches!(value & 3, 0 | 3);
    // Bit 1 is always set; bits 3, 5, 15 and those above 21 never are.
    let is_flags = rflags & 0xffff_ffff_ffc0_802a == 2;
    let is_user = cs & 3 == 3 && ss & 3 == 3 && rip < UPPER;
    let is_interrupted_kernel = cs & 3 == 0 && cs != 0 && half.has_code(rip) && half.has_stack(rsp);
    is_selector(cs) && is_selector(ss) && is_flags && (is_user || is_interrupted_kernel)
}

/// Whether such words are between two frames. A walk across them would leave out the interrupted function.
pub fn has_entry_frame(half: Half, from: u64, to: u64, word: &dyn Fn(u64) -> Option<u64>) -> bool {
    let to = to.min(from.saturating_add(MAX_SEARCHED_BYTES));
    let is_one = |at: u64| {
        let mut words = [0; 5];
        let mut read = words.iter_mut().zip((at..).step_by(8));
        read.all(|(to, at)| word(at).map(|word| *to = word).is_some()) && is_entry(half, words)
    };
    (from..to.saturating_sub(39)).step_by(8).any(is_one)
}
