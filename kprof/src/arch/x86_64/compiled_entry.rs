//! Entries that the compiler has made: `extern "x86-interrupt"` functions with a frame pointer.
//!
//! ```text
//!   SS RSP RFLAGS CS RIP     by the processor, which has aligned the stack to 16 bytes
//!   error code, register     only for vectors with an error code: `push rax` aligns the stack again
//!   rbp                      <- rbp
//! ```
//!
//! In: words, code. Out: where the words of the processor are, and whether they can be such words. Pure.

use crate::format::marker::Marker;
use crate::kernel::CompiledEntry;

/// `endbr64`, which may be the first instruction of a function.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The entry of a vector, if its code begins as a function with a frame pointer.
pub(crate) fn of(vector: u8, code: &[u8; 8]) -> Option<CompiledEntry> {
    let first = if code[..4] == ENDBR64 { &code[4..] } else { &code[..] };
    let is_compiled = matches!(first, [0x55, 0x48, 0x89, 0xe5, ..] | [0x50, 0x55, 0x48, 0x89, ..]);
    // Intel SDM volume 3A, table 6-1, and AMD APM volume 2, 8.4: exceptions with an error code.
    let has_error_code = matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
    let marker = if vector < 32 { Marker::Exception(vector) } else { Marker::Interrupt(vector) };
    is_compiled.then_some(CompiledEntry { marker, has_error_code })
}

/// Whether these words can be what the processor has pushed: two selectors, and flags whose fixed bits are right (Intel
/// SDM volume 1, 3.4.3: bit 1 is set; 3, 5, 15 and all from 22 on are clear).
pub(crate) fn is_pushed(word: impl Fn(u64) -> u64) -> bool {
    let [cs, rflags, ss] = [8, 16, 32].map(word);
    // The segment of code in the kernel or in user code is never the first one.
    let are_selectors = (cs | ss) >> 16 == 0 && cs >> 3 != 0 && cs & 3 == ss & 3;
    are_selectors && rflags & 0xffff_ffff_ffc0_802a == 2
}

/// How far these words lie above the frame of a compiled entry. Below an error code the compiler pushes a register, so
/// that the stack is aligned.
pub(crate) const fn above_frame(has_error_code: bool) -> u64 {
    if has_error_code { 24 } else { 8 }
}

/// How far these words lie above the stack pointer, where a compiled entry has no frame yet or no longer. `before` and
/// `here` are the code before and at the instruction. `None`: it has a frame.
pub(crate) fn without_frame(has_error_code: bool, before: &[u8; 8], here: &[u8; 8]) -> Option<u64> {
    let error_code = if has_error_code { 8 } else { 0 };
    let first = if here[..4] == ENDBR64 { &here[4..] } else { &here[..4] };
    match (before, here) {
        _ if has_error_code && first[..3] == [0x50, 0x55, 0x48] => Some(error_code),
        ([.., 0x50], [0x55, 0x48, 0x89, 0xe5, ..]) if has_error_code => Some(16),
        _ if first == [0x55, 0x48, 0x89, 0xe5] => Some(0),
        ([.., 0x55], [0x48, 0x89, 0xe5, ..]) => Some(above_frame(has_error_code)),
        (_, [0x48, 0xcf, ..]) => Some(0),
        (_, [0x48, 0x83, 0xc4, bytes, 0x48, 0xcf, ..]) => Some((*bytes).into()),
        (_, [0x58, 0x48, 0x83, 0xc4, bytes, 0x48, 0xcf, _]) => Some(u64::from(*bytes) + 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_compiled_if_it_begins_with_a_frame() {
        let of = |vector, code: [u8; 8]| of(vector, &code).map(|entry| (entry.marker, entry.has_error_code));
        let plain = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x41, 0x52];
        assert_eq!(of(32, plain), Some((Marker::Interrupt(32), false)));
        assert_eq!(of(3, plain), Some((Marker::Exception(3), false)));
        assert_eq!(of(14, [0x50, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x41]), Some((Marker::Exception(14), true)));
        assert_eq!(of(8, [0xf3, 0x0f, 0x1e, 0xfa, 0x50, 0x55, 0x48, 0x89]), Some((Marker::Exception(8), true)));
        assert_eq!(of(33, [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5]), Some((Marker::Interrupt(33), false)));
        assert_eq!(of(32, [0x50, 0x51, 0x52, 0x53, 0x48, 0x89, 0xe5, 0x90]), None, "a stub that pushes registers");
    }

    #[test]
    fn only_words_that_the_processor_can_push_are_taken() {
        let of = |words: [u64; 5]| is_pushed(|offset| words[offset as usize / 8]);
        const RIGHT: [u64; 5] = [0xffff_ffff_8020_0000, 8, 0x202, 0xffff_c000_0000_1000, 0x10];
        assert!(of(RIGHT));
        assert!(of([0x40_1000, 0x33, 0x4_0246, 0x7fff_0000, 0x2b]), "user code");
        assert!(of([RIGHT[0], 8, 2, RIGHT[3], 0]), "the stack was switched, and SS is the null segment");
        let selectors = [(1, 0), (1, 3), (1, RIGHT[0]), (4, 1 << 16), (4, 0x2b)];
        let flags = [0x200, 0x20a, 1 << 22 | 2].map(|flags| (2, flags));
        for (index, wrong) in selectors.into_iter().chain(flags) {
            let mut words = RIGHT;
            words[index] = wrong;
            assert!(!of(words), "{words:x?}");
        }
    }
}
