//! The task state segment of the current CPU, which is found by `sgdt` and `str`, and the interrupt stacks in it.
//!
//! In: the kernel's loaded tables. Out: an entry of the interrupt stack table. Runs in: ordinary code, on each CPU,
//! after it has loaded GDT and task register. Source: Intel SDM volume 3A, 3.5 and 7.7.

use x86_64::instructions::tables::sgdt;

/// Why no task state segment was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTss {
    /// The task register is 0: no segment has been loaded (`ltr`).
    NotLoaded,
    /// The task register's selector is outside the descriptor table: another table has been loaded since.
    Outside(u16),
    /// The descriptor is not that of a 64-bit task state segment.
    NotTss(u16),
}

impl core::fmt::Display for NoTss {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotLoaded => f.write_str("this CPU has loaded no task state segment (ltr)"),
            Self::Outside(selector) => write!(f, "the task register, {selector:#x}, lies outside of the GDT"),
            Self::NotTss(selector) => write!(f, "the descriptor {selector:#x} is not that of a task state segment"),
        }
    }
}

/// The task register's selector. The result is right at any instruction, also in an NMI. If all CPUs share one GDT, the
/// selector is different on each CPU and identifies it: [`number`]. If each CPU has its own GDT, the selector is mostly
/// the same on all CPUs: use the address of the segment ([`find`]) or the APIC id instead.
#[inline(always)]
pub fn selector() -> u16 {
    let selector: u16;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("str {0:x}", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    selector
}

/// The number of a CPU in a GDT that all CPUs share, whose segments follow each other from `first` on (16 bytes each).
#[inline(always)]
pub const fn number(selector: u16, first: u16) -> usize {
    (selector.wrapping_sub(first) >> 4) as usize
}

/// The base address in a descriptor of 16 bytes, if it is that of a 64-bit task state segment.
pub const fn base(low: u64, high: u64) -> Option<u64> {
    // Type 9 or 11 (busy), present, a system segment.
    if low >> 40 & 0b1_1101 != 0b0_1001 || low >> 47 & 1 == 0 {
        return None;
    }
    Some(low >> 16 & 0xff_ffff | (low >> 56) << 24 | high << 32)
}

/// The address of this CPU's task state segment.
///
/// # Errors
/// [`NoTss`] says what was found instead.
///
/// # Safety
/// This is kernel code. This CPU's descriptor table is mapped where it was loaded from.
pub unsafe fn find() -> Result<u64, NoTss> {
    let (table, selector) = (sgdt(), selector());
    if selector & !7 == 0 {
        return Err(NoTss::NotLoaded);
    }
    if selector & 4 != 0 || u32::from(selector & !7) + 15 > u32::from(table.limit) {
        return Err(NoTss::Outside(selector));
    }
    let place = (table.base.as_u64() + u64::from(selector & !7)) as *const u64;
    // SAFETY: the caller promises that the table is mapped, and 16 bytes from there on are within its limit.
    let [low, high] = [0, 1].map(|word| unsafe { place.add(word).read_unaligned() });
    base(low, high).ok_or(NoTss::NotTss(selector))
}

/// The address of the entry `ist` (1 to 7) of the interrupt stack table.
fn place(tss: u64, ist: u8) -> *mut u64 {
    assert!((1..=7).contains(&ist), "the interrupt stack table has the entries 1 to 7, no {ist}");
    (tss + 0x24 + 8 * u64::from(ist - 1)) as *mut u64
}

/// The end of this CPU's interrupt stack `ist` (1 to 7); 0 if there is none.
///
/// # Errors
/// [`NoTss`]: this CPU has no task state segment.
///
/// # Safety
/// As of [`find`], and the segment is mapped too.
pub unsafe fn stack(ist: u8) -> Result<u64, NoTss> {
    // SAFETY: the caller's promise. The word is not aligned.
    Ok(unsafe { place(find()?, ist).read_unaligned() })
}

/// Sets this CPU's interrupt stack `ist` (1 to 7) to the stack that ends at `end`.
///
/// # Errors
/// [`NoTss`]: this CPU has no task state segment; nothing is changed.
///
/// # Safety
/// `end` is a multiple of 16, and below it is a stack that is mapped, large enough for the handlers that use
/// it, and used by nothing else and by no other CPU. As of [`find`]; the segment is mapped writable, and no interrupt
/// that uses this entry comes during this call.
pub unsafe fn set_stack(ist: u8, end: u64) -> Result<(), NoTss> {
    // SAFETY: the segment of this CPU, found by its own registers; the caller promises the rest.
    unsafe { place(find()?, ist).write_unaligned(end) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86_64::structures::gdt::Descriptor;
    use x86_64::structures::tss::TaskStateSegment;

    #[test]
    fn a_descriptor_of_the_x86_64_crate_leads_to_its_segment() {
        static TSS: TaskStateSegment = TaskStateSegment::new();
        let Descriptor::SystemSegment(low, high) = Descriptor::tss_segment(&TSS) else { panic!("a system segment") };
        assert_eq!(base(low, high), Some(&raw const TSS as u64));
        // A loaded segment is marked busy: type 11.
        assert_eq!(base(low | 2 << 40, high), Some(&raw const TSS as u64));
        assert_eq!(base(low & !(1 << 47), high), None, "not present");
        let Descriptor::UserSegment(code) = Descriptor::kernel_code_segment() else { panic!("no system segment") };
        assert_eq!(base(code, 0), None);
    }

    #[test]
    fn every_bit_of_the_base_is_put_together() {
        assert_eq!(base(0x8100_8923_4567_0067, 0xffff_ffff), Some(0xffff_ffff_8123_4567));
    }

    #[test]
    fn the_entries_are_where_the_crate_has_them() {
        let mut tss = TaskStateSegment::new();
        tss.interrupt_stack_table[6] = x86_64::VirtAddr::new(0x1234_5670);
        let address = &raw const tss as u64;
        // SAFETY: an entry of the segment above.
        let [first, last] = [1, 7].map(|ist| unsafe { place(address, ist).read_unaligned() });
        assert_eq!((first, last), (0, 0x1234_5670));
    }

    #[test]
    fn cpus_of_one_table_are_numbered_by_their_segments() {
        assert_eq!([0x28, 0x38, 0x48].map(|selector| number(selector, 0x28)), [0, 1, 2]);
        assert_eq!(NoTss::NotTss(0x28).to_string(), "the descriptor 0x28 is not that of a task state segment");
    }
}
