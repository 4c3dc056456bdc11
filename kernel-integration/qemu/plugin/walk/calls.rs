//! Return addresses by the code around them. Stage: capture.
//!
//! In: an address, and a function that reads code. Out: whether a call precedes it; and where the return address is at
//! the instructions at which a function has no frame of its own.

use super::{Read, Registers};

/// Functions are smaller than this, nearly all.
const MAX_FUNCTION_BYTES: u64 = 16 * 1024;

/// Where the return address is if the instruction is one of those at which a function has no frame of its own: the
/// two at its beginning, and `ret`.
pub fn place_of_return_address(at: &Registers, read: Read<'_>) -> Option<u64> {
    let mut code = [0; 5];
    let has_before = read(at.rip.wrapping_sub(1), &mut code);
    match code {
        // push rbp
        [_, 0x55, ..] if has_before => Some(at.rsp),
        // endbr64, which precedes it
        [_, 0xf3, 0x0f, 0x1e, 0xfa] if has_before => Some(at.rsp),
        // push rbp was done; mov rbp, rsp (both encodings)
        [0x55, 0x48, 0x89, 0xe5, _] | [0x55, 0x48, 0x8b, 0xec, _] if has_before => Some(at.rsp + 8),
        // ret
        [_, 0xc3, ..] if has_before => Some(at.rsp),
        _ => None,
    }
}

/// Whether a direct call precedes this address, and its target is the beginning of a function that this code may be in.
pub fn calls_to(address: u64, code: u64, read: Read<'_>) -> bool {
    let mut bytes = [0; 5];
    if !read(address.wrapping_sub(5), &mut bytes) || bytes[0] != 0xe8 {
        return false;
    }
    let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    let target = address.wrapping_add_signed(i64::from(distance));
    code.wrapping_sub(target) < MAX_FUNCTION_BYTES
}

/// Whether the instruction before this address is a call (SDM volume 2, CALL): `E8 rel32`, or `FF /2` with any operand.
pub fn follows_a_call(address: u64, read: Read<'_>) -> bool {
    let mut code = [0; 7];
    if !read(address.wrapping_sub(7), &mut code) {
        return false;
    }
    // The length of `FF /2` by its operand: register or memory, then with 8 or 32 bits of displacement.
    let is_indirect = |bytes: usize| {
        let [opcode, operand, ..] = code[7 - bytes..] else { return false };
        let (mode, has_sib) = (operand >> 6, operand & 7 == 4 && operand >> 6 != 3);
        let displacement = match mode {
            0 if operand & 7 == 5 || has_sib && code[7 - bytes + 2..].first().is_some_and(|sib| sib & 7 == 5) => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        opcode == 0xff && operand >> 3 & 7 == 2 && bytes == 2 + usize::from(has_sib) + displacement
    };
    code[2] == 0xe8 || (2..=7).any(is_indirect)
}
