//! The interrupt flag, IF.
//!
//! In: nothing, or the flags before. Out: the flags before. Runs in: ordinary kernel code, never in an NMI. Whether
//! interrupts can be turned off is found by the privilege level (SDM volume 3, 6.5), because the name of the target
//! does not tell a kernel from a test that runs as a user program.

/// Turns interrupts off. Returns the flags before, for [`restore`]; 0 in a user program.
#[inline(always)]
pub fn off() -> u64 {
    #[cfg(not(miri))]
    if is_kernel() {
        let flags: u64;
        // SAFETY: code at privilege level 0, as was just checked, may clear IF; pushfq and pop are balanced.
        unsafe { core::arch::asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        return flags;
    }
    0
}

/// Turns interrupts on again, if they were on before [`off`].
#[inline(always)]
pub fn restore(flags: u64) {
    if flags & 1 << 9 != 0 {
        // SAFETY: IF was set before, so the kernel expects interrupts here.
        #[cfg(not(miri))]
        unsafe {
            core::arch::asm!("sti")
        };
    }
}

/// Whether a selector in CS means privilege level 0, by its two lowest bits. No processor runs with the null selector
/// in CS (SDM volume 3, 5.4.1.1): 0 comes from an emulator of user programs that has no CS, such as valgrind 3.19.
const fn is_of_kernel(cs: u64) -> bool {
    cs != 0 && cs & 3 == 0
}

/// Whether this code runs at privilege level 0.
pub(crate) fn is_kernel() -> bool {
    let cs: u64;
    // SAFETY: reads a register.
    #[cfg(not(miri))]
    unsafe {
        core::arch::asm!("mov {}, cs", out(reg) cs, options(nomem, nostack, preserves_flags))
    };
    #[cfg(miri)]
    {
        cs = 0;
    }
    is_of_kernel(cs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_known_by_its_selector_and_an_emulator_without_one_is_no_kernel() {
        // The selectors of a kernel's and of a user's code on Linux, and what valgrind shows.
        assert_eq!([0x10, 0x33, 0].map(is_of_kernel), [true, false, false]);
    }

    #[test]
    fn a_user_program_is_no_kernel_and_has_no_interrupts_to_turn_off() {
        assert!(!is_kernel());
        assert_eq!(off(), 0);
        restore(0);
    }
}
