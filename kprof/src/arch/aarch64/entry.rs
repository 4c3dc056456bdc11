//! What an entry from interrupted code leaves on the stack. The processor pushes nothing, so this order is kprof's;
//! each entry stub stores these words above its frame record (docs/porting-processors.md).
//!
//! ```text
//!   + 24 │ x30      │   the link register
//!   + 16 │ SP       │   of the interrupted code
//!   + 8  │ SPSR_EL1 │   bits 3 to 0: 0 is EL0; bit 7: IRQs were masked
//!   + 0  │ ELR_EL1  │   the interrupted instruction
//! ```
//!
//! In: a reader of the words, by their offset. Out: the interrupted registers. Pure. (Arm Architecture Reference
//! Manual, C5.2.19: SPSR_EL1.)

use crate::kernel::Registers;

/// The bytes of these words.
pub(crate) const BYTES: u64 = 32;
/// The mask bit of IRQs.
const IRQ_MASKED: u64 = 1 << 7;

/// The interrupted registers; `fp` is the interrupted code's.
#[inline(always)]
pub(crate) fn interrupted(word: impl Fn(u64) -> u64, fp: u64) -> Registers {
    let [pc, spsr, sp, link] = [0, 8, 16, 24].map(word);
    Registers { pc, sp, fp, link, from_user: is_user(spsr), interrupts_on: spsr & IRQ_MASKED == 0 }
}

/// The interrupted instruction, if user code was interrupted.
#[inline(always)]
pub(crate) fn user_pc(word: impl Fn(u64) -> u64) -> Option<u64> {
    let [pc, spsr] = [0, 8].map(word);
    is_user(spsr).then_some(pc)
}

/// Whether the exception came from EL0. (Bit 4 says that it was in the 32-bit state.)
#[inline(always)]
const fn is_user(spsr: u64) -> bool {
    spsr & 0xf == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_read_in_this_order() {
        let words = |spsr| move |offset: u64| [0x40_1000, spsr, 0x7fff_0000, 0x40_2000][offset as usize / 8];
        // EL0, nothing masked; the same in the 32-bit state; EL1 on its own stack with IRQs masked, and not masked.
        for (spsr, from_user, interrupts_on) in
            [(0x6000_0000, true, true), (0x10, true, true), (0x3c5, false, false), (0x5, false, true)]
        {
            let (sp, fp, link) = (0x7fff_0000, 0x7fff_0010, 0x40_2000);
            let expected = Registers { pc: 0x40_1000, sp, fp, link, from_user, interrupts_on };
            assert_eq!(interrupted(words(spsr), fp), expected, "{spsr:x}");
            assert_eq!(user_pc(words(spsr)), from_user.then_some(0x40_1000), "{spsr:x}");
        }
    }
}
