//! Tells whether a call instruction ends at an address. In: the four bytes before the address. Out: the kind of call,
//! and its target. Pure. Encodings: the RISC-V Instruction Set Manual, volume I (JAL, JALR, C.JALR). Runs in: NMI.

use crate::arch::view::Call;

/// The call that ends at `address`, judged by the four bytes before it.
///
/// A far call is `auipc ra` and `jalr ra`; it counts as an indirect one. The lower half of some other instruction may
/// look like `c.jalr`, so this test alone proves nothing.
pub(crate) fn ending_at(address: u64, before: u32) -> Option<Call> {
    if before & 0xfff == 0x0ef {
        // The distance from the call itself: bits 20, 10 to 1, 11 and 19 to 12 of it, from the highest bit down.
        let sign = i64::from(before as i32 >> 31) << 20;
        let [low, middle, high] =
            [before >> 20 & 0x7fe, before >> 9 & 0x800, before & 0xf_f000].map(i64::from);
        let distance = sign | low | middle | high;
        return Some(Call::Direct(address.wrapping_sub(4).wrapping_add_signed(distance)));
    }
    let half = before >> 16;
    let is_indirect = before & 0x7fff == 0x00e7 || half & 0xf07f == 0x9002 && half & 0xf80 != 0;
    is_indirect.then_some(Call::Indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_every_form_are_known() {
        assert_eq!(ending_at(0x1004, 0x0100_00ef), Some(Call::Direct(0x1010)), "jal ra, .+16");
        assert_eq!(ending_at(0x1004, 0xff9f_f0ef), Some(Call::Direct(0xff8)), "jal ra, .-8");
        assert_eq!(ending_at(0x10_0004, 0x0010_00ef), Some(Call::Direct(0x10_0800)), "bit 11");
        assert_eq!(ending_at(0x10_0004, 0x0000_10ef), Some(Call::Direct(0x10_1000)), "bit 12");
        // jalr ra, 16(a0); jalr ra, -8(ra); c.jalr a5 after any two bytes
        for instruction in [0x0105_00e7, 0xff80_80e7, 0x9782_0001] {
            assert_eq!(ending_at(0x1000, instruction), Some(Call::Indirect), "{instruction:x}");
        }
    }

    #[test]
    fn other_instructions_are_no_calls() {
        // j .+16; jr a0; ret; c.ret; c.jr a5; c.ebreak; nop; nothing
        for instruction in
            [0x0100_006f, 0x0005_0067, 0x0000_8067, 0x8082_0001, 0x8782_0001, 0x9002_0001, 0x0000_0013, 0]
        {
            assert_eq!(ending_at(0x1000, instruction), None, "{instruction:x}");
        }
    }
}
