//! Segments and task state: one descriptor table for all CPUs, and a TSS for each CPU, so that the task register
//! identifies the CPU.
//!
//! Each TSS has separate stacks for NMI, double fault and machine check. Nothing else uses the NMI stack.

use core::cell::UnsafeCell;

use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::structures::gdt::{Descriptor, DescriptorFlags, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

use super::{CPUS, DOUBLE_FAULT_STACK, MACHINE_CHECK_STACK, MAX_CPUS, NMI_STACK};
use crate::memory::stacks;
use core::sync::atomic::Ordering;

/// Kernel code segment.
pub const KERNEL_CODE: u16 = 0x08;
/// Kernel data segment.
pub const KERNEL_DATA: u16 = 0x10;
/// User data segment, with its privilege level.
pub const USER_DATA: u16 = 0x23;
/// User code segment, with its privilege level.
pub const USER_CODE: u16 = 0x2b;
/// Selector of the TSS of CPU 0; each further CPU's is higher by 16. With this start, the middle bits of a selector are
/// the CPU's number. A CPU that has not loaded its task register has 0 in it, which means the boot CPU.
pub const FIRST_TSS: u16 = 16 * MAX_CPUS as u16;
// `super::id` takes the number from there.
static_assertions::const_assert_eq!(FIRST_TSS as usize / 16 % MAX_CPUS, 0);
/// Entries of the table.
const ENTRIES: usize = FIRST_TSS as usize / 8 + 2 * MAX_CPUS;

/// Interrupt stack table index of the NMI.
pub const IST_NMI: u16 = 0;
/// Interrupt stack table index of the double fault.
pub const IST_DOUBLE_FAULT: u16 = 1;
/// Interrupt stack table index of the machine check.
pub const IST_MACHINE_CHECK: u16 = 2;

struct TssCell(UnsafeCell<TaskStateSegment>);
// SAFETY: each TSS is written by its own CPU only.
unsafe impl Sync for TssCell {}

static TSS: [TssCell; MAX_CPUS] = [const { TssCell(UnsafeCell::new(TaskStateSegment::new())) }; MAX_CPUS];
static GDT: spin::Once<GlobalDescriptorTable<ENTRIES>> = spin::Once::new();

/// Builds the tables (once) and loads them on this CPU.
pub fn init(cpu: usize) {
    let gdt = GDT.call_once(|| {
        let mut gdt = GlobalDescriptorTable::empty();
        gdt.append(Descriptor::kernel_code_segment());
        gdt.append(Descriptor::kernel_data_segment());
        gdt.append(Descriptor::UserSegment(DescriptorFlags::USER_CODE32.bits()));
        gdt.append(Descriptor::user_data_segment());
        gdt.append(Descriptor::user_code_segment());
        for _ in gdt.entries().len()..FIRST_TSS as usize / 8 {
            gdt.append(Descriptor::UserSegment(0));
        }
        for tss in &TSS {
            // SAFETY: the TSS lives in a static.
            gdt.append(unsafe { Descriptor::tss_segment_unchecked(tss.0.get()) });
        }
        gdt
    });
    let nmi = stacks::allocate_nmi();
    let (fault, check) = (stacks::allocate(), stacks::allocate());
    for (place, base) in [(NMI_STACK, nmi), (DOUBLE_FAULT_STACK, fault), (MACHINE_CHECK_STACK, check)] {
        CPUS[cpu].stacks[place].store(base, Ordering::Relaxed);
    }
    // SAFETY: this CPU's own TSS, not loaded yet.
    unsafe {
        let tss = &mut *TSS[cpu].0.get();
        tss.interrupt_stack_table[IST_NMI as usize] = VirtAddr::new(nmi + stacks::STACK_BYTES);
        tss.interrupt_stack_table[IST_DOUBLE_FAULT as usize] = VirtAddr::new(fault + stacks::STACK_BYTES);
        tss.interrupt_stack_table[IST_MACHINE_CHECK as usize] = VirtAddr::new(check + stacks::STACK_BYTES);
    }
    gdt.load();
    // SAFETY: the selectors are those of the table just loaded; each TSS is loaded once, by its own CPU.
    unsafe {
        CS::set_reg(SegmentSelector(KERNEL_CODE));
        SS::set_reg(SegmentSelector(KERNEL_DATA));
        DS::set_reg(SegmentSelector(0));
        ES::set_reg(SegmentSelector(0));
        load_tss(SegmentSelector(FIRST_TSS + 16 * cpu as u16));
    }
}

/// Runs `work` with the number of a CPU that the machine does not have: the TSS is that CPU's, but its stacks are those
/// of this CPU. Interrupts must be off.
#[cfg(feature = "profiling")]
pub fn as_cpu(cpu: usize, work: impl FnOnce()) {
    let selector = |cpu: usize| SegmentSelector(FIRST_TSS + 16 * cpu as u16);
    let own = super::id();
    // SAFETY: no CPU has this number, and this CPU does not change its stacks while `work` runs, so both TSSs name the
    // same stacks. The processor marks a TSS busy when it is loaded (bit 41, SDM volume 3A, 8.2.3); the bit is cleared
    // here before the TSS is loaded again. The table is a static.
    unsafe {
        *TSS[cpu].0.get() = *TSS[own].0.get();
        let table = x86_64::instructions::tables::sgdt().base.as_mut_ptr::<u64>();
        let load = |cpu: usize| {
            let entry = table.add(selector(cpu).0 as usize / 8);
            entry.write_volatile(entry.read_volatile() & !(1 << 41));
            load_tss(selector(cpu));
        };
        load(cpu);
        work();
        load(own);
    }
}

/// Sets the stack that interrupts and system calls from user mode use on this CPU. Interrupts must be off.
pub fn set_kernel_stack(cpu: usize, top: u64) {
    CPUS[cpu].kernel_stack_top.store(top, Ordering::Relaxed);
    // SAFETY: this CPU's own TSS; the processor reads it only on entry from user mode.
    unsafe { (*TSS[cpu].0.get()).privilege_stack_table[0] = VirtAddr::new(top) };
}
