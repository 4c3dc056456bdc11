//! What an entry from interrupted code leaves on the stack. The processor pushes nothing, so this order is kprof's;
//! each entry stub stores these words above its frame record (docs/porting-processors.md).
//!
//! ```text
//!   + 24 │ ra      │   the link register
//!   + 16 │ sp      │   of the interrupted code
//!   + 8  │ sstatus │   bit 8 (SPP): 0 is user mode; bit 5 (SPIE): interrupts were on
//!   + 0  │ sepc    │   the interrupted instruction
//! ```
//!
//! In: a reader of the words, by their offset. Out: the interrupted registers. Pure. (The RISC-V Instruction Set
//! Manual, volume II: Supervisor Status Register.)

use crate::kernel::Registers;

/// The bytes of these words.
pub(crate) const BYTES: u64 = 32;
/// The previous mode was the supervisor's.
const SUPERVISOR: u64 = 1 << 8;
/// Interrupts were on before.
const INTERRUPTS_ON: u64 = 1 << 5;

/// The interrupted registers; `fp` is the interrupted code's.
#[inline(always)]
pub(crate) fn interrupted(word: impl Fn(u64) -> u64, fp: u64) -> Registers {
    let [pc, status, sp, link] = [0, 8, 16, 24].map(word);
    let (from_user, interrupts_on) = (status & SUPERVISOR == 0, status & INTERRUPTS_ON != 0);
    Registers { pc, sp, fp, link, from_user, interrupts_on }
}

/// The interrupted instruction, if user code was interrupted.
#[inline(always)]
pub(crate) fn user_pc(word: impl Fn(u64) -> u64) -> Option<u64> {
    let [pc, status] = [0, 8].map(word);
    (status & SUPERVISOR == 0).then_some(pc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_read_in_this_order() {
        let words = |status| move |offset: u64| [0x40_1000, status, 0x7fff_0000, 0x40_2000][offset as usize / 8];
        for (status, from_user, interrupts_on) in [(0x20, true, true), (0x120, false, true), (0x100, false, false)] {
            let (sp, fp, link) = (0x7fff_0000, 0x7fff_0010, 0x40_2000);
            let expected = Registers { pc: 0x40_1000, sp, fp, link, from_user, interrupts_on };
            assert_eq!(interrupted(words(status), fp), expected, "{status:x}");
            assert_eq!(user_pc(words(status)), from_user.then_some(0x40_1000), "{status:x}");
        }
    }
}
