//! Code of aarch64 and riscv64, as an assembler has made it of what is beside each instruction.

/// Of aarch64.
pub const ARM: [u32; 25] = [
    0xa9bd_7bfd, // 00 stp x29, x30, [sp, #-48]!
    0x9100_03fd, // 04 mov x29, sp
    0xa901_53f3, // 08 stp x19, x20, [sp, #16]
    0x9400_0006, // 0c bl 24
    0xb400_0080, // 10 cbz x0, 20
    0xa941_53f3, // 14 ldp x19, x20, [sp, #16]
    0xa8c3_7bfd, // 18 ldp x29, x30, [sp], #48
    0xd65f_03c0, // 1c ret
    0x97ff_fff8, // 20 bl 0, which never returns
    0xd101_03ff, // 24 sub sp, sp, #64
    0xf900_13f3, // 28 str x19, [sp, #32]
    0xa903_7bfd, // 2c stp x29, x30, [sp, #48]
    0x9100_c3fd, // 30 add x29, sp, #48
    0x1400_0000, // 34 b 34
    0x9400_0003, // 38 bl 44, in an entry stub
    0x9100_43ff, // 3c add sp, sp, #16
    0xd69f_03e0, // 40 eret
    0xb400_0040, // 44 cbz x0, 4c
    0x1400_0002, // 48 b 50
    0xd65f_03c0, // 4c ret
    0xd503_233f, // 50 paciasp
    0xf81f_0ffe, // 54 str x30, [sp, #-16]!
    0xd63f_0100, // 58 blr x8
    0xf841_07fe, // 5c ldr x30, [sp], #16
    0xd65f_0bff, // 60 retaa
];
/// bl, b to itself.
pub const ARM_CALL: [u32; 2] = [0x9400_0001, 0x1400_0000];

/// Of riscv64.
pub const RISCV: [u32; 27] = [
    0xfd01_0113, // 00 addi sp, sp, -48
    0x0211_3423, // 04 sd ra, 40(sp)
    0x0281_3023, // 08 sd s0, 32(sp)
    0x0301_0413, // 0c addi s0, sp, 48
    0x0091_3c23, // 10 sd s1, 24(sp)
    0x0200_00ef, // 14 jal ra, 34
    0x0005_1c63, // 18 bnez a0, 30
    0x0281_3083, // 1c ld ra, 40(sp)
    0x0201_3403, // 20 ld s0, 32(sp)
    0x0181_3483, // 24 ld s1, 24(sp)
    0x0301_0113, // 28 addi sp, sp, 48
    0x0000_8067, // 2c ret
    0xfd1f_f0ef, // 30 jal ra, 0, which never returns
    0xc001_0113, // 34 addi sp, sp, -1024
    0x3e11_3c23, // 38 sd ra, 1016(sp)
    0x3e81_3823, // 3c sd s0, 1008(sp)
    0x4001_0413, // 40 addi s0, sp, 1024
    0x0000_006f, // 44 j 44
    0x00c0_00ef, // 48 jal ra, 54, in an entry stub
    0x0101_0113, // 4c addi sp, sp, 16
    0x1020_0073, // 50 sret
    0x0005_0663, // 54 beqz a0, 60
    0x0000_0317, // 58 auipc t1, 0
    0x00c3_0067, // 5c jr 12(t1)
    0x0000_8067, // 60 ret
    0x0015_0513, // 64 addi a0, a0, 1
    0x0000_8067, // 68 ret
];
/// The same function as at 0, in instructions of two bytes, with a call of c.jalr.
pub const SHORT: [u16; 13] = [
    0x7179, // 00 addi sp, sp, -48
    0xf406, // 02 sd ra, 40(sp)
    0xf022, // 04 sd s0, 32(sp)
    0x1800, // 06 addi s0, sp, 48
    0xec26, // 08 sd s1, 24(sp)
    0x9782, // 0a jalr a5
    0xe511, // 0c bnez a0, 18
    0x70a2, // 0e ld ra, 40(sp)
    0x7402, // 10 ld s0, 32(sp)
    0x64e2, // 12 ld s1, 24(sp)
    0x6145, // 14 addi sp, sp, 48
    0x8082, // 16 ret
    0xa001, // 18 j 18
];
/// jal ra, j to itself.
pub const RISCV_CALL: [u32; 2] = [0x0040_00ef, 0x0000_006f];
