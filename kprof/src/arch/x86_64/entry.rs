//! What an entry from interrupted code leaves on the stack: the words that the processor pushes at an interrupt or an
//! exception (Intel SDM volume 3A, 6.14.2). A system call stub pushes the same words.
//!
//! ```text
//!   + 32 │ SS     │
//!   + 24 │ RSP    │
//!   + 16 │ RFLAGS │   bit 9: interrupts were on
//!   + 8  │ CS     │   bits 0 and 1: the privilege level
//!   + 0  │ RIP    │
//! ```
//!
//! In: a reader of the words, by their offset. Out: the interrupted registers. Pure.

use crate::kernel::Registers;

/// The bytes of these words.
pub(crate) const BYTES: u64 = 40;
/// The interrupt flag.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// The interrupted registers; `fp` is the interrupted code's.
#[inline(always)]
pub(crate) fn interrupted(word: impl Fn(u64) -> u64, fp: u64) -> Registers {
    let [pc, cs, rflags, sp] = [0, 8, 16, 24].map(word);
    Registers { pc, sp, fp, link: 0, from_user: is_user(cs), interrupts_on: rflags & INTERRUPT_FLAG != 0 }
}

/// The interrupted instruction, if user code was interrupted.
#[inline(always)]
pub(crate) fn user_pc(word: impl Fn(u64) -> u64) -> Option<u64> {
    let [pc, cs] = [0, 8].map(word);
    is_user(cs).then_some(pc)
}

/// Whether this code segment belongs to user code: its privilege level is not 0.
#[inline(always)]
const fn is_user(cs: u64) -> bool {
    cs & 3 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_read_in_the_processors_order() {
        let words = |cs, rflags| move |offset: u64| [0x40_1000, cs, rflags, 0x7fff_0000, 0x2b][offset as usize / 8];
        let user = interrupted(words(0x33, 0x202), 0x7fff_0010);
        let expected = Registers {
            pc: 0x40_1000,
            sp: 0x7fff_0000,
            fp: 0x7fff_0010,
            link: 0,
            from_user: true,
            interrupts_on: true,
        };
        assert_eq!(user, expected);
        let kernel = interrupted(words(8, 2), 0x7fff_0010);
        assert_eq!(kernel, Registers { from_user: false, interrupts_on: false, ..expected });
        assert_eq!([user_pc(words(0x33, 2)), user_pc(words(8, 2))], [Some(0x40_1000), None]);
    }
}
