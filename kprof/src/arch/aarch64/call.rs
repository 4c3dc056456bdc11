//! Tells whether a call instruction ends at an address. In: the four bytes before the address. Out: the kind of call,
//! and its target. Pure. Encodings: Arm Architecture Reference Manual, C6.2 (BL, BLR, BLRA). Runs in: NMI.

use crate::arch::view::Call;

/// The call that ends at `address`, judged by the instruction before it.
pub(crate) fn ending_at(address: u64, before: u32) -> Option<Call> {
    if before & 0xfc00_0000 == 0x9400_0000 {
        // The distance is in the lowest 26 bits, in instructions, from the call itself.
        let distance = i64::from((before << 6) as i32 >> 6).wrapping_mul(4);
        return Some(Call::Direct(address.wrapping_sub(4).wrapping_add_signed(distance)));
    }
    // BLR; BLRAAZ and BLRABZ; BLRAA and BLRAB.
    let is_indirect = before & 0xffff_fc1f == 0xd63f_0000
        || before & 0xffff_f81f == 0xd63f_081f
        || before & 0xffff_f800 == 0xd73f_0800;
    is_indirect.then_some(Call::Indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_every_form_are_known() {
        assert_eq!(ending_at(0x1004, 0x9400_0004), Some(Call::Direct(0x1010)), "bl .+16");
        assert_eq!(ending_at(0x1004, 0x97ff_fffe), Some(Call::Direct(0xff8)), "bl .-8");
        // blr x8, blraaz x8, blrabz x30, blraa x8, x9, blrab x0, sp
        for instruction in [0xd63f_0100, 0xd63f_091f, 0xd63f_0fdf, 0xd73f_0909, 0xd73f_0c1f] {
            assert_eq!(ending_at(0x1000, instruction), Some(Call::Indirect), "{instruction:x}");
        }
    }

    #[test]
    fn other_instructions_are_no_calls() {
        // b .+16, br x8, ret, nop, stp x29, x30, [sp, #-16]!, nothing
        for instruction in [0x1400_0004, 0xd61f_0100, 0xd65f_03c0, 0xd503_201f, 0xa9bf_7bfd, 0] {
            assert_eq!(ending_at(0x1000, instruction), None, "{instruction:x}");
        }
    }
}
