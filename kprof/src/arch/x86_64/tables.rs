//! Reads the descriptor tables of the calling CPU: gates, and the stacks that they name.
//!
//! In: a vector, an entry of the interrupt stack table. Out: the contents of the tables. Runs in: ordinary code. The
//! tables are the memory that the processor itself reads at every interrupt. In a user program (a test) nothing is
//! read, and the result is `None`. Source: Intel SDM volume 3A, chapters 3, 6.14 and 7.7.

use super::interrupts::is_kernel;
use crate::arch::gate::Gate;

/// The NMI's vector, because this processor has a table of entries that can be checked.
pub(crate) const NMI_VECTOR: Option<u8> = Some(2);
/// What to look at if an NMI does not arrive.
pub(crate) const WHY_NO_NMI: &str = "does the gate of vector 2 lead to on_nmi?";

/// The gate in these 16 bytes, if they are a gate that is present.
pub(crate) fn decode(bytes: u128) -> Option<Gate> {
    let is_present = bytes >> 47 & 1 == 1;
    // Interrupt gate or trap gate.
    let is_gate = bytes >> 41 & 0b1111 == 0b0111;
    let handler = (bytes & 0xffff) as u64 | (bytes >> 48 << 16) as u64;
    (is_present && is_gate).then_some(Gate { handler, ist: (bytes >> 32) as u8 & 7 })
}

/// The base address in a descriptor of 16 bytes, if it describes a task state segment.
fn tss_base(bytes: u128) -> Option<u64> {
    let is_tss = bytes >> 40 & 0b1_1101 == 0b0_1001 && bytes >> 47 & 1 == 1;
    let [low, middle, high] =
        [bytes >> 16 & 0xff_ffff, bytes >> 56 & 0xff, bytes >> 64 & 0xffff_ffff].map(|part| part as u64);
    is_tss.then_some(low | middle << 24 | high << 32)
}

#[repr(C, packed)]
#[derive(Default)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// The gate of a vector.
pub(crate) fn gate(vector: u8) -> Option<Gate> {
    let mut table = Pointer::default();
    if !is_kernel() {
        return None;
    }
    // SAFETY: writes ten bytes to `table`.
    unsafe { core::arch::asm!("sidt [{}]", in(reg) &raw mut table, options(nostack, preserves_flags)) };
    decode(entry(&table, 16 * u32::from(vector))?)
}

/// The end of the interrupt stack `ist`, 1 to 7; `None` without a task state segment.
pub(crate) fn interrupt_stack(ist: u8) -> Option<u64> {
    let (mut table, selector): (_, u16) = (Pointer::default(), task_register()?);
    // SAFETY: writes ten bytes to `table`.
    unsafe { core::arch::asm!("sgdt [{}]", in(reg) &raw mut table, options(nostack, preserves_flags)) };
    let base = tss_base(entry(&table, u32::from(selector & !7))?)?;
    let place = base.wrapping_add(0x24 + 8 * u64::from(ist.wrapping_sub(1) & 7)) as *const u64;
    // SAFETY: the processor reads the segment at interrupts, so it is mapped; the table of stacks is inside it.
    Some(unsafe { place.read_unaligned() })
}

fn task_register() -> Option<u16> {
    let selector: u16;
    if !is_kernel() {
        return None;
    }
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("str {0:x}", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    (selector & !7 != 0).then_some(selector)
}

/// 16 bytes of a table, if they are within its limit.
fn entry(table: &Pointer, offset: u32) -> Option<u128> {
    let Pointer { limit, base } = *table;
    // SAFETY: the processor reads the table, so it is mapped up to its limit. It need not be aligned.
    let read = || unsafe { (base.wrapping_add(u64::from(offset)) as *const u128).read_unaligned() };
    (offset + 15 <= u32::from(limit)).then(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_has_its_address_in_three_parts() {
        let bytes = 0x8123_8e03_0008_4567 | 0xffff_ffff << 64;
        assert_eq!(decode(bytes), Some(Gate { handler: 0xffff_ffff_8123_4567, ist: 3 }));
        assert_eq!(decode(bytes | 1 << 40), decode(bytes), "a trap gate");
        assert_eq!(decode(bytes & !(1 << 47)), None, "not present");
        assert_eq!(decode(bytes & !(1 << 42)), None, "no gate");
    }

    #[test]
    fn a_task_state_segment_has_its_base_in_three_parts() {
        // The types of an available and of a busy segment.
        for kind in [0x89, 0x8b] {
            let bytes = 0x8100_0023_4567_0067 | kind << 40 | 0xffff_ffff << 64;
            assert_eq!(tss_base(bytes), Some(0xffff_ffff_8123_4567));
        }
        assert_eq!(tss_base(0x00af_9a00_0000_ffff), None, "a code segment");
    }

    #[test]
    fn a_user_program_has_no_tables() {
        assert_eq!((gate(2), interrupt_stack(1)), (None, None));
    }
}
