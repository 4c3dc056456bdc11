//! PVH boot: QEMU loads the ELF by `-kernel` and jumps to `pvh_start` in 32-bit mode with `ebx` = start_info.
//!
//! In: the start_info block (command line, memory map, initrd, RSDP). Out: 64-bit mode, the first GiB mapped at 0, at
//! the direct map and at the kernel's own addresses, and a call of `kmain`. Source of the layout: the Xen PVH boot
//! ABI, `hvm/start_info.h`. Runs once, on the boot CPU, before anything else.

use core::arch::global_asm;
use core::slice;

use crate::info::BootInfo;
use crate::memory::phys_to_virt;

global_asm!(
    r#"
.section .note.Xen, "a", @note
.align 4
    .long 4                 // name size
    .long 4                 // descriptor size
    .long 18                // XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_start

.section .boot, "awx", @progbits
.code32
.global pvh_start
pvh_start:
    cld
    mov esp, offset boot_low_stack_top
    mov esi, ebx

    // One page directory of 2 MiB pages for the first GiB, used by all three windows.
    xor ecx, ecx
1:  mov eax, ecx
    shl eax, 21
    or eax, 0x83
    mov [boot_pd + ecx * 8], eax
    mov dword ptr [boot_pd + ecx * 8 + 4], 0
    inc ecx
    cmp ecx, 512
    jne 1b
    mov eax, offset boot_pd
    or eax, 3
    mov [boot_pdpt_low], eax
    mov [boot_pdpt_high + 510 * 8], eax
    mov eax, offset boot_pdpt_low
    or eax, 3
    mov [boot_pml4], eax
    mov [boot_pml4 + 256 * 8], eax
    mov eax, offset boot_pdpt_high
    or eax, 3
    mov [boot_pml4 + 511 * 8], eax

    mov eax, offset boot_pml4
    mov cr3, eax
    mov eax, cr4
    or eax, 0x6a0           // PAE, PGE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov ecx, 0xc0000080     // EFER
    rdmsr
    or eax, 0x901           // SCE, LME, NXE
    wrmsr
    mov eax, cr0
    and eax, ~4             // EM off
    or eax, 0x80010003      // PG, WP, MP, PE
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    mov eax, 8
    push eax
    mov eax, offset boot_long_mode
    push eax
    retf

.code64
boot_long_mode:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov edi, esi
    lea rsp, [boot_stack + {stack_size} - 64]
    xor ebp, ebp
    push 0
    movabs rax, offset kmain
    jmp rax

.align 8
boot_gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
boot_gdt_pointer:
    .word 23
    .quad boot_gdt

.align 4096
.global boot_pml4
boot_pml4:      .skip 4096
boot_pdpt_low:  .skip 4096
boot_pdpt_high: .skip 4096
boot_pd:        .skip 4096
boot_low_stack: .skip 256
boot_low_stack_top:
.text
"#,
    stack_size = const crate::memory::stacks::STACK_BYTES,
);

/// `struct hvm_start_info`, version 1.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    module_count: u32,
    modules: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// `struct hvm_modlist_entry`.
#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

/// `struct hvm_memmap_table_entry`.
#[repr(C)]
struct MemoryMapEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;

/// Reads start_info.
///
/// # Panics
/// If the block has no magic number or lists no usable RAM, because the kernel cannot run then.
pub fn read(start_info: u64) -> BootInfo {
    // SAFETY: the boot code has mapped the first GiB at PHYSICAL_MAP. QEMU puts start_info and everything that it
    // points to below 1 GiB. Nothing was written there yet.
    unsafe {
        let info = &*(phys_to_virt(start_info) as *const StartInfo);
        assert_eq!(info.magic, MAGIC, "no PVH start_info: boot this kernel with -kernel");
        let map = slice::from_raw_parts(
            phys_to_virt(info.memory_map) as *const MemoryMapEntry,
            info.memory_map_entries as usize,
        );
        let ram = map.iter().filter(|entry| entry.kind == 1).max_by_key(|entry| entry.size).expect("no RAM is listed");
        let initrd = match info.module_count {
            0 => &[][..],
            _ => {
                let module = &*(phys_to_virt(info.modules) as *const Module);
                slice::from_raw_parts(phys_to_virt(module.address) as *const u8, module.size as usize)
            }
        };
        let line = phys_to_virt(info.command_line) as *const u8;
        let length = match info.command_line {
            0 => 0,
            _ => (0..4096).find(|i| *line.add(*i) == 0).unwrap_or(4096),
        };
        let command_line = core::str::from_utf8(slice::from_raw_parts(line, length)).unwrap_or("");
        BootInfo { command_line, initrd, rsdp: info.rsdp, ram: (ram.address, ram.address + ram.size) }
    }
}
