//! Detects whether QEMU counts instructions (`-icount`). The TSC then is the number of instructions, and so is the
//! time.
//!
//! In: nothing. Out: what the TSC counts, for `Config::clock` and [`crate::timer::Sleep`]. Runs in: ordinary code,
//! interrupts off. If instructions are counted, a loop that reads the TSC finds the same number of ticks between any
//! two reads. No other machine does that. Emulation with a thread per CPU uses the host's TSC, which varies from read
//! to read.

use core::arch::asm;
use kprof::Clock;
use raw_cpuid::{CpuId, Hypervisor};

const READS: usize = 32;
/// The CPU's turn may end between two reads. The next try then fits into one turn.
const TRIES: usize = 8;

/// What the TSC of this machine counts. It counts instructions only under QEMU's emulation with `-icount`.
pub fn clock() -> Clock {
    if is_counted() { Clock::Instructions } else { Clock::Tsc }
}

fn is_counted() -> bool {
    let hypervisor = CpuId::new().get_hypervisor_info().map(|info| info.identify());
    matches!(hypervisor, Some(Hypervisor::QEMU)) && (0..TRIES).any(|_| is_even(&reads()))
}

/// The lower half of the TSC, read repeatedly by the same few instructions.
fn reads() -> [u32; READS] {
    let mut reads = [0_u32; READS];
    // SAFETY: writes the words of the array, one after the other, and nothing else.
    unsafe {
        asm!(
            "2: rdtsc",
            "mov [{place}], eax",
            "add {place}, 4",
            "cmp {place}, {end}",
            "jne 2b",
            place = inout(reg) reads.as_mut_ptr() => _,
            end = in(reg) reads.as_mut_ptr_range().end,
            out("eax") _, out("edx") _,
            options(nostack)
        );
    }
    reads
}

/// Whether the time between any two consecutive reads is the same.
fn is_even(reads: &[u32]) -> bool {
    let mut steps = reads.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    steps.next().is_some_and(|first| first != 0 && steps.all(|step| step == first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_that_are_all_the_same_are_counted_instructions() {
        assert!(is_even(&[u32::MAX - 9, u32::MAX - 4, 0, 5]));
        assert!(!is_even(&[0, 5, 10, 16]));
        // This clock is too slow to advance between two reads.
        assert!(!is_even(&[7, 7, 7, 7]));
        assert!(!is_even(&[7]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "runs assembly")]
    fn every_place_is_read_into() {
        let reads = reads();
        assert!(reads.iter().all(|read| *read != 0) && reads.windows(2).any(|pair| pair[0] != pair[1]), "{reads:?}");
    }
}
