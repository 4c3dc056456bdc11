# QEMU starts here in machine mode, with physical addresses. Both halves of supervisor mode's address space get the
# same 1 GiB pages: devices from 0 on, memory from 0x80000000 on. The first function has no caller.
.section .boot, "ax"
.global start
start:
    li t0, -1
    csrw pmpaddr0, t0
    csrw medeleg, t0
    li t0, 0x1f
    csrw pmpcfg0, t0
    lla t0, table
    srli t0, t0, 12
    li t1, 8 << 60
    or t0, t0, t1
    csrw satp, t0
    sfence.vma
    lla t0, first
    ld t0, 0(t0)
    csrw mepc, t0
    li t0, 1 << 11
    csrw mstatus, t0
    mret
.balign 8
first: .quad upper

upper:
    lla sp, stack_top
    lla t0, stub
    csrw stvec, t0
    li s0, 0
    li ra, 0
    tail kmain

# a0 times two instructions, without a frame.
.global turn
turn:
    addi a0, a0, -1
    bnez a0, turn
    ret

# An exception of the kernel itself.
.global trap
trap:
    .word 0x00100073
    ret

.global power_off
power_off:
    li t0, 0xffffffc000100000
    li t1, 0x5555
    sw t1, 0(t0)
    # QEMU may end later: until then nothing more is executed.
    wfi
    j power_off

# The stub of exceptions: what a call may change is saved, the frame pointer stays that of the interrupted code.
.balign 4
stub:
    addi sp, sp, -128
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd a0, 32(sp)
    sd a1, 40(sp)
    sd a2, 48(sp)
    sd a3, 56(sp)
    sd a4, 64(sp)
    sd a5, 72(sp)
    sd a6, 80(sp)
    sd a7, 88(sp)
    sd t3, 96(sp)
    sd t4, 104(sp)
    sd t5, 112(sp)
    sd t6, 120(sp)
    call handler
    csrr t0, sepc
    addi t0, t0, 4
    csrw sepc, t0
    ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld a0, 32(sp)
    ld a1, 40(sp)
    ld a2, 48(sp)
    ld a3, 56(sp)
    ld a4, 64(sp)
    ld a5, 72(sp)
    ld a6, 80(sp)
    ld a7, 88(sp)
    ld t3, 96(sp)
    ld t4, 104(sp)
    ld t5, 112(sp)
    ld t6, 120(sp)
    addi sp, sp, 128
    sret

.section .data
.balign 4096
table:
    .quad 0xc7, 0, 0x200000cf
    .fill 253, 8, 0
    .quad 0xc7, 0, 0x200000cf
    .fill 253, 8, 0
