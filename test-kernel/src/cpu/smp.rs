//! Starts the other CPUs: INIT, SIPI, SIPI, a real-mode trampoline, then `secondary_main`, each CPU on its own stack.
//!
//! CPUs are started one at a time, because the trampoline has one set of parameters. The second SIPI is needed, because
//! QEMU loses the first one in some runs. Source: Intel SDM volume 3A, section 9.4.4.

use core::arch::global_asm;
use core::ptr;
use core::sync::atomic::Ordering;

use super::{CPUS, apic, clock};
use crate::log;
use crate::memory::{paging, phys_to_virt, stacks};

global_asm!(
    r#"
.section .boot.trampoline, "awx", @progbits
.code16
// The parts at the addresses they are copied to.
.set copied_gdt_pointer, {at} + trampoline_gdt_pointer - trampoline_start
.set copied_64, {at} + trampoline_64 - trampoline_start
.set copied_cr3, {at} + trampoline_cr3 - trampoline_start
.set copied_stack, {at} + trampoline_stack - trampoline_start
.set copied_cpu, {at} + trampoline_cpu - trampoline_start
.global trampoline_start
trampoline_start:
    cli
    cld
    xor ax, ax
    mov ds, ax
    lgdt [copied_gdt_pointer]
    mov eax, cr4
    or eax, 0x6a0
    mov cr4, eax
    mov eax, [copied_cr3]
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x901
    wrmsr
    mov eax, cr0
    and eax, ~0x60000004
    or eax, 0x80010003
    mov cr0, eax
    .byte 0x66, 0xea                    // far jump, 32-bit offset
    .long copied_64
    .word 8
.code64
trampoline_64:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rsp, [copied_stack]
    mov edi, [copied_cpu]
    xor ebp, ebp
    push 0
    movabs rax, offset secondary_main
    jmp rax
.align 8
trampoline_gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
trampoline_gdt_pointer:
    .word 23
    .long {at} + trampoline_gdt - trampoline_start
    .align 8
.global trampoline_cr3
trampoline_cr3: .quad 0
.global trampoline_stack
trampoline_stack: .quad 0
.global trampoline_cpu
trampoline_cpu: .quad 0
.global trampoline_end
trampoline_end:
.text
"#,
    at = const TRAMPOLINE,
);

/// Where the trampoline is copied to: a page below 1 MiB.
const TRAMPOLINE: u64 = 0x8000;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_cr3: u8;
    static trampoline_stack: u8;
    static trampoline_cpu: u8;
    static trampoline_end: u8;
}

/// Starts the CPUs in `apic_ids` (all but the boot CPU's) as CPU 1, 2, ... and waits for each.
#[inline(never)]
pub fn start_all(apic_ids: &[u32]) {
    // SAFETY: the symbols are addresses in the boot section, which is identity-mapped below 1 GiB. The page at
    // TRAMPOLINE is low RAM that is not used otherwise.
    let parameter = |symbol: &u8, value: u64| unsafe {
        let offset = symbol as *const u8 as u64 - (&raw const trampoline_start) as u64;
        ptr::write_volatile(phys_to_virt(TRAMPOLINE + offset) as *mut u64, value);
    };
    // SAFETY: as above.
    unsafe {
        let start = &raw const trampoline_start;
        let bytes = (&raw const trampoline_end) as usize - start as usize;
        ptr::copy_nonoverlapping(phys_to_virt(start as u64) as *const u8, phys_to_virt(TRAMPOLINE) as *mut u8, bytes);
    }
    for (index, &apic_id) in apic_ids.iter().enumerate() {
        let cpu = index + 1;
        CPUS[cpu].apic_id.store(apic_id, Ordering::Relaxed);
        let stack = stacks::allocate();
        CPUS[cpu].stacks[0].store(stack, Ordering::Relaxed);
        CPUS[cpu].stacks[1].store(stack, Ordering::Relaxed);
        // SAFETY: the symbols are valid for reading.
        unsafe {
            parameter(&trampoline_cr3, paging::boot_tables());
            parameter(&trampoline_stack, stack + stacks::STACK_BYTES - stacks::HEAD_BYTES);
            parameter(&trampoline_cpu, cpu as u64);
        }
        apic::send_init(apic_id);
        clock::wait_ns(10_000_000);
        for _ in 0..2 {
            apic::send_startup(apic_id, (TRAMPOLINE >> 12) as u8);
            clock::wait_ns(200_000);
            if wait_online(cpu, 20) {
                break;
            }
        }
        assert!(wait_online(cpu, 1000), "CPU {cpu} (APIC id {apic_id}) did not start");
    }
    log!("apic: {} mode", apic::mode());
    log!("smp: {} CPUs run", apic_ids.len() + 1);
}

fn wait_online(cpu: usize, milliseconds: u32) -> bool {
    for _ in 0..milliseconds {
        if CPUS[cpu].online.load(Ordering::Acquire) {
            return true;
        }
        clock::wait_ns(1_000_000);
    }
    false
}
