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

/// What the call before this address may call: a direct one (`E8 rel32`), or one through a word at a fixed place
/// (`FF 15 disp32`), as the linker's table of addresses has it. The bytes may be read as either.
pub fn called(address: u64, read: Read<'_>) -> impl Iterator<Item = u64> {
    let (mut bytes, mut word) = ([0; 6], [0; 8]);
    let is_read = read(address.wrapping_sub(6), &mut bytes);
    let [.., a, b, c, d] = bytes;
    let place = address.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
    let direct = is_read && bytes[1] == 0xe8;
    let by_word = is_read && bytes[..2] == [0xff, 0x15] && read(place, &mut word);
    [direct.then_some(place), by_word.then(|| u64::from_le_bytes(word))].into_iter().flatten()
}

/// Whether a call precedes this address whose target is the beginning of a function that this code may be in.
pub fn calls_to(address: u64, code: u64, read: Read<'_>) -> bool {
    called(address, read).any(|function| code.wrapping_sub(function) < MAX_FUNCTION_BYTES)
}

/// The same, or a call of an address in a register or elsewhere, of which nothing is known: not a call of other code.
pub fn may_call(address: u64, code: u64, read: Read<'_>) -> bool {
    let mut bytes = [0; 6];
    let is_other = read(address.wrapping_sub(6), &mut bytes) && bytes[1] != 0xe8 && bytes[..2] != [0xff, 0x15];
    calls_to(address, code, read) || (is_other && follows_a_call(address, read))
}

/// Whether the instruction before this address is a far return, `REX.W CB` (SDM volume 2, RET).
pub fn follows_a_far_return(address: u64, read: Read<'_>) -> bool {
    let mut code = [0; 2];
    read(address.wrapping_sub(2), &mut code) && code == [0x48, 0xcb]
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
