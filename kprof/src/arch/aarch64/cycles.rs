//! The cycle counter of the performance monitors, PMCCNTR_EL0, by which the self cost is measured where the
//! clock is too coarse for this (Arm Architecture Reference Manual, D8 and D19.5). In: nothing. Out: cycles of this
//! CPU. Runs in: any, NMI included. The kernel starts the counter; nothing is written here.

/// Whether this processor has a cycle counter besides its clock.
pub(crate) const EXISTS: bool = true;

/// Whether the counter is enabled, by ID_AA64DFR0_EL1, PMCR_EL0 and PMCNTENSET_EL0.
///
/// - PMUVer, bits 8 to 11, is 0 without performance monitors, and 15 where they are not those of the architecture.
/// - PMCR_EL0.E, bit 0: counters are enabled. PMCR_EL0.D, bit 3: it counts every 64th cycle only.
/// - PMCNTENSET_EL0.C, bit 31: the cycle counter is enabled.
fn is_enabled(id: u64, read: impl Fn() -> (u64, u64)) -> bool {
    // The other registers exist only with performance monitors.
    if matches!(id >> 8 & 0xf, 0 | 0xf) {
        return false;
    }
    let (control, enabled) = read();
    control & 0b1001 == 1 && enabled & 1 << 31 != 0
}

/// Whether the counter can be read on this CPU, and counts cycles. A counter that does not count this exception level
/// (PMCCFILTR_EL0) stands still.
#[cfg(target_arch = "aarch64")]
pub(crate) fn is_counting() -> bool {
    let id: u64;
    // SAFETY: reads an identification register, which EL1 can always read.
    unsafe { core::arch::asm!("mrs {}, id_aa64dfr0_el1", out(reg) id, options(nomem, nostack, preserves_flags)) };
    let registers = || {
        let (control, enabled): (u64, u64);
        // SAFETY: reads registers, which exist: `is_enabled` has checked it.
        unsafe {
            core::arch::asm!("mrs {}, pmcr_el0", "mrs {}, pmcntenset_el0", out(reg) control, out(reg) enabled,
                options(nomem, nostack, preserves_flags));
        }
        (control, enabled)
    };
    is_enabled(id, registers) && crate::arch::moves(read)
}

/// The count of now. The read is not ordered with neighboring instructions, which does not matter here.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub(crate) fn read() -> u64 {
    let count: u64;
    // SAFETY: reads a register. It is used only where `is_counting` has said that the counter is there.
    unsafe { core::arch::asm!("mrs {}, pmccntr_el0", out(reg) count, options(nostack, preserves_flags)) };
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_used_only_if_it_exists_is_enabled_and_counts_every_cycle() {
        let with = |control, enabled| is_enabled(0x1000_0600, || (control, enabled));
        assert!(with(0x41, 0x8000_0000));
        assert!(!with(0x40, 0x8000_0000), "disabled");
        assert!(!with(0x49, 0x8000_0000), "every 64th");
        assert!(!with(0x41, 0x7fff_ffff), "others only");
    }

    #[test]
    fn a_counter_that_stands_still_is_not_used() {
        let count = core::cell::Cell::new(0);
        assert!(crate::arch::moves(|| count.replace(count.get() + 1) / 64), "a step for every 64th read");
        assert!(!crate::arch::moves(|| 7));
    }

    #[test]
    fn without_performance_monitors_their_registers_are_not_read() {
        for id in [0, 0xf00] {
            assert!(!is_enabled(id, || panic!("read")));
        }
    }
}
