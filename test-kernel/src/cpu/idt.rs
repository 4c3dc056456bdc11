//! The interrupt descriptor table, one for all CPUs: every vector leads to its stub in `entry.rs`. And the order in
//! which a CPU sets up its tables.

use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

use super::gdt::{IST_DOUBLE_FAULT, IST_MACHINE_CHECK, IST_NMI};
use super::{entry, gdt};

static IDT: spin::Once<InterruptDescriptorTable> = spin::Once::new();

/// Sets up this CPU's tables. In: its number. Called once on each CPU, with interrupts off.
#[inline(never)]
pub fn init(cpu: usize) {
    gdt::init(cpu);
    load();
    entry::init_syscall(cpu);
}

/// Builds the table (once) and loads it on this CPU.
pub fn load() {
    IDT.call_once(build).load();
}

fn build() -> InterruptDescriptorTable {
    let mut idt = InterruptDescriptorTable::new();
    macro_rules! exceptions {
        ($($vector:literal $field:ident,)*) => {
            // SAFETY: each stub expects the hardware frame of its vector, and does not return to Rust code.
            unsafe { $( idt.$field.set_handler_addr(VirtAddr::new(entry::stub($vector))); )* }
        };
    }
    exceptions! {
        0 divide_error, 1 debug, 4 overflow, 5 bound_range_exceeded, 6 invalid_opcode, 7 device_not_available,
        10 invalid_tss, 11 segment_not_present, 12 stack_segment_fault, 13 general_protection_fault, 14 page_fault,
        16 x87_floating_point, 17 alignment_check, 19 simd_floating_point,
    }
    // SAFETY: as above. These vectors have their own stacks, and user code may execute `int3`.
    unsafe {
        idt.non_maskable_interrupt.set_handler_addr(VirtAddr::new(entry::stub(2))).set_stack_index(IST_NMI);
        idt.double_fault.set_handler_addr(VirtAddr::new(entry::stub(8))).set_stack_index(IST_DOUBLE_FAULT);
        idt.machine_check.set_handler_addr(VirtAddr::new(entry::stub(18))).set_stack_index(IST_MACHINE_CHECK);
        idt.breakpoint
            .set_handler_addr(VirtAddr::new(entry::stub(3)))
            .set_privilege_level(x86_64::PrivilegeLevel::Ring3);
        for vector in 32..=255u8 {
            idt[vector].set_handler_addr(VirtAddr::new(entry::stub(vector)));
        }
    }
    idt
}
