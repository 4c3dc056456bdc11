// QEMU starts here in EL1, with physical addresses. Both halves of the address space get the same 1 GiB blocks:
// devices from 0 on, memory from 0x40000000 on. The first function has no caller.
.section .boot, "ax"
.global start
start:
    adrp x0, table
    msr ttbr0_el1, x0
    msr ttbr1_el1, x0
    mov x1, #0xff
    msr mair_el1, x1
    ldr x1, =0x80190019
    msr tcr_el1, x1
    isb
    mrs x1, sctlr_el1
    orr x1, x1, #1
    msr sctlr_el1, x1
    isb
    ldr x1, =stack_top
    mov sp, x1
    ldr x1, =vectors
    msr vbar_el1, x1
    mov x29, #0
    mov x30, #0
    ldr x1, =kmain
    br x1

// x0 times two instructions, without a frame.
.global turn
turn:
    subs x0, x0, #1
    b.ne turn
    ret

// A system call of the kernel itself.
.global trap
trap:
    svc #0
    ret

.global power_off
power_off:
    ldr x0, =0x84000008
    hvc #0
    b power_off

// The stub of exceptions: what a call may change is saved, the frame pointer stays that of the interrupted code.
stub:
    sub sp, sp, #192
    stp x0, x1, [sp]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    bl handler
    ldp x18, x30, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp]
    add sp, sp, #192
    eret

// An exception of EL1 with its own stack pointer enters at 0x200.
.balign 2048
vectors:
    .fill 128, 4, 0
    b stub

.section .data
.balign 4096
table:
    .quad 0x405, 0x40000701
    .fill 510, 8, 0
