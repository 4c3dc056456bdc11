//! From QEMU's 32-bit entry (PVH), and from the second CPU's real mode, to `kmain(cpu)` in 64-bit mode. The first 4 GiB
//! are mapped at 0, the first GiB also at the kernel's addresses. Sources: Xen's PVH boot ABI; Intel SDM volume 3A,
//! 9.4.4 (start of CPUs).

use crate::machine;
use core::arch::global_asm;
use kprof_port::command::Start;
use x86_64::instructions::port::Port;

global_asm!(
    r#"
.section .note.Xen, "a", @note
    .long 4, 4, 18                              // sizes of name and value; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_start
.section .boot, "awx", @progbits
.global trampoline, trampoline_end, started, pvh_start, stacks
.set copied_gdt_pointer, 0x8000 + boot_gdt_pointer - trampoline
.code16;  trampoline: cli;  xor ax, ax;  mov ds, ax
    lgdt [copied_gdt_pointer];  mov eax, cr0;  or al, 1;  mov cr0, eax
    .byte 0x66, 0xea;  .long secondary;  .word 0x18    // far jump, 32-bit offset
boot_gdt_pointer: .word 31;  .long boot_gdt, 0
trampoline_end:
.code32;  secondary: mov ax, 0x10;  mov ds, ax;  mov edi, 1;  lock xadd [started], edi;  jmp 1f
pvh_start: xor edi, edi
1:  mov eax, offset boot_pml4;  mov cr3, eax
    mov eax, cr4;  or eax, 0x620;  mov cr4, eax        // PAE, OSFXSR, OSXMMEXCPT
    mov ecx, 0xc0000080;  rdmsr;  or eax, 0x900;  wrmsr // EFER: LME, NXE
    mov eax, cr0;  or eax, 0x80010001;  mov cr0, eax   // PG, WP, PE
    lgdt [boot_gdt_pointer];  .byte 0xea;  .long long_mode;  .word 8   // far jump
.code64;  long_mode: mov eax, 0x10;  mov ss, eax;  mov ds, eax;  mov es, eax
    lea eax, [edi + 1];  imul eax, eax, {stack_bytes};  movabs rsp, offset stacks;  add rsp, rax
    xor ebp, ebp;  push 0                              // where the chain of frame pointers ends
    movabs rax, offset kmain;  jmp rax
.align 8;  boot_gdt: // null, 64-bit code, data, 32-bit code
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff, 0x00cf9a000000ffff
.align 4096;  boot_pml4:  .quad low + 3;  .skip 510 * 8;  .quad high + 3
low:        .quad 0x83, 0x40000083, 0x80000083, 0xc0000083;  .skip 508 * 8     // pages of 1 GiB
high:       .skip 510 * 8;  .quad 0x83, 0
.align 4;  started: .long 1                             // CPUs that have come here
.bss;  .align 4096
stacks: .skip {stack_bytes} * {stacks}                 // those of the CPUs, then their NMIs', in the same order
"#,
    stack_bytes = const machine::STACK_BYTES, stacks = const 2 * machine::MAX_CPUS,
);

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
    static started: u32;
}

/// Starts all CPUs with the APIC ids 1, 2 and so on, which QEMU gives to CPUs of one socket. Returns the number of
/// CPUs, including this one.
pub fn start_others() -> usize {
    let (start, end) = (&raw const trampoline, &raw const trampoline_end);
    // SAFETY: low memory is identity-mapped, and the page at 0x8000 is RAM that is not used otherwise.
    unsafe { (0x8000 as *mut u8).copy_from_nonoverlapping(start, end as usize - start as usize) };
    // SAFETY: a word that each CPU adds to.
    let cpus = || unsafe { (&raw const started).read_volatile() as usize };
    // QEMU tells the number of CPUs (fw_cfg, item 5), because a busy host may start one late. Else all bits are 1.
    // SAFETY: an index register and its data, which nothing else uses.
    let told = unsafe { (Port::<u16>::new(0x510).write(5), [(); 2].map(|()| Port::new(0x511).read())).1 };
    // One after the other, because a CPU's number is how many started before it. It waits for CPU 0 in `begin`.
    (1..machine::MAX_CPUS.min(u16::from_le_bytes(told).into())).all(|cpu| {
        // INIT, then SIPI twice, because the first one may be lost. A CPU that has already started ignores it.
        for command in [Start::Init, Start::StartUp(8), Start::StartUp(8)] {
            // SAFETY: that CPU runs nothing yet; the trampoline is at page 8.
            unsafe { machine::APIC.start(cpu as u32, command) };
            machine::wait_ns(10_000_000);
        }
        (0..60_000).any(|_| cpus() > cpu || (machine::wait_ns(1_000_000), false).1)
    });
    cpus()
}
