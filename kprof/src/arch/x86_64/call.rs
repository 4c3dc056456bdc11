//! Tells whether a call instruction ends at an address. In: the bytes before the address. Out: the kind of call, and
//! its target. Pure.
//!
//! Encodings: Intel SDM volume 2, CALL, and table 2-2 (ModR/M with a base register; 64-bit forms). Runs in: NMI.

use crate::arch::view::Call;

/// The call that ends at `address`, judged by the eight bytes before it.
///
/// If the same bytes can be read as a direct and as an indirect call, the direct one is returned. About one word of
/// text in fifty looks like the end of a call by chance, so this test alone proves nothing.
pub(crate) fn ending_at(address: u64, before: [u8; 8]) -> Option<Call> {
    if before[3] == 0xe8 {
        let distance = i32::from_le_bytes([before[4], before[5], before[6], before[7]]);
        return Some(Call::Direct(address.wrapping_add_signed(i64::from(distance))));
    }
    // FF /2: its ModR/M byte may lie at several distances from the end. Accept a distance only if the rest of the
    // instruction has exactly that length.
    let before = u64::from_le_bytes(before);
    let indirect = [1, 2, 3, 4, 5, 6].into_iter().any(|rest: u32| {
        let distance = 7_u32.wrapping_sub(rest);
        is_indirect(before.wrapping_shr(distance.wrapping_mul(8)), rest)
    });
    indirect.then_some(Call::Indirect)
}

/// Whether these bytes begin with FF /2 and its remaining part has `rest` bytes.
#[inline(never)]
fn is_indirect(bytes: u64, rest: u32) -> bool {
    let [opcode, modrm, sib, ..] = bytes.to_le_bytes();
    opcode == 0xff && modrm_is_call(modrm) && operand_bytes(modrm, sib) == rest
}

/// Whether the middle bits of a ModR/M byte are 2, the opcode extension of a near call.
fn modrm_is_call(modrm: u8) -> bool {
    modrm >> 3 & 7 == 2
}

/// The number of bytes from the ModR/M byte (included) to the end of the instruction.
fn operand_bytes(modrm: u8, sib: u8) -> u32 {
    let (mode, base) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && base == 4;
    let displacement: u32 = match mode {
        0 if base == 5 => 4,
        0 if has_sib && sib & 7 == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    u32::from(has_sib).wrapping_add(displacement).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(instruction: &[u8]) -> [u8; 8] {
        let mut before = [0x90; 8];
        before[8 - instruction.len()..].copy_from_slice(instruction);
        before
    }

    #[test]
    fn calls_of_every_form_are_known() {
        let direct = ending_at(0x1005, bytes(&[0xe8, 0xfb, 0xff, 0xff, 0xff]));
        assert_eq!(direct, Some(Call::Direct(0x1000)));
        let indirect: [&[u8]; 9] = [
            &[0xff, 0xd0],                   // call rax
            &[0x41, 0xff, 0xd3],             // call r11
            &[0xff, 0x10],                   // call [rax]
            &[0xff, 0x50, 0x18],             // call [rax+24]
            &[0xff, 0x54, 0x24, 0x08],       // call [rsp+8]
            &[0xff, 0x15, 1, 2, 3, 4],       // call [rip+x]
            &[0xff, 0x90, 1, 2, 3, 4],       // call [rax+x]
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call [rax*8+x]
            &[0xff, 0x94, 0x24, 1, 2, 3, 4], // call [rsp+x]
        ];
        for instruction in indirect {
            assert_eq!(ending_at(0x1000, bytes(instruction)), Some(Call::Indirect), "{instruction:x?}");
        }
    }

    #[test]
    fn other_instructions_are_no_calls() {
        let others: [&[u8]; 5] = [
            &[0xff, 0xe0],       // jmp rax
            &[0xff, 0x30],       // push [rax]
            &[0x48, 0x89, 0xe5], // mov rbp, rsp
            &[0xe9, 0, 0, 0, 0], // jmp rel32
            &[0xff, 0x50],       // call [rax+?], one byte short
        ];
        for instruction in others {
            assert_eq!(ending_at(0x1000, bytes(instruction)), None, "{instruction:x?}");
        }
    }
}
