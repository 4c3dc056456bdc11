//! The length of an instruction and its operand bytes. Stage: capture.
//!
//! In: bytes of 64-bit x86 code (Intel SDM volume 2, appendix A). Out: opcode, prefixes, ModRM, length. `None` for what
//! is no instruction, for EVEX, and for XOP. Runs in: QEMU's process, and in the tool. It does not check that an
//! instruction exists: only its length is right if it does.

/// The opcode maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    One,
    /// After `0f`.
    Two,
    /// After `0f 38` and `0f 3a`.
    Three,
    /// After a VEX prefix.
    Vector,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub map: Map,
    pub opcode: u8,
    /// The REX prefix; 0 if there is none.
    pub rex: u8,
    /// Prefix `66`: operands of 2 bytes, also those of `push`.
    pub is_short: bool,
    /// Where the ModRM byte is.
    pub modrm: Option<usize>,
    /// The instruction ends with an immediate of this many bytes.
    pub immediate: usize,
    pub length: usize,
}

/// The longest instruction.
pub const MAX_BYTES: usize = 15;

/// Reads the instruction at the beginning of `bytes`.
pub fn instruction(bytes: &[u8]) -> Option<Instruction> {
    let (mut at, mut rex, mut is_short, mut is_narrow) = (0, 0, false, false);
    loop {
        match *bytes.get(at)? {
            0x66 => (is_short, rex) = (true, 0),
            0x67 => (is_narrow, rex) = (true, 0),
            0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => rex = 0,
            byte @ 0x40..=0x4f => rex = byte,
            _ => break,
        }
        at += 1;
    }
    let byte = |at: usize| bytes.get(at).copied();
    let (map, opcode, mut three_a) = match (byte(at)?, byte(at + 1), byte(at + 2)) {
        (0x0f, Some(0x38), Some(opcode)) => (Map::Three, opcode, false),
        (0x0f, Some(0x3a), Some(opcode)) => (Map::Three, opcode, true),
        (0x0f, Some(opcode), _) => (Map::Two, opcode, false),
        (0xc5, _, Some(opcode)) => (Map::Vector, opcode, false),
        (0xc4, Some(_), Some(_)) => (Map::Vector, byte(at + 3)?, false),
        (0x62, ..) => return None,
        (opcode, ..) => (Map::One, opcode, false),
    };
    let mut vex_map = 0;
    at += match (map, byte(at)?) {
        (Map::One, _) => 1,
        (Map::Two, _) => 2,
        (Map::Vector, 0xc4) => {
            vex_map = byte(at + 1)? & 0x1f;
            three_a = vex_map == 3;
            4
        }
        (Map::Vector, _) => {
            vex_map = 1;
            3
        }
        _ => 3,
    };
    // An immediate of the operand's size, but at most 4 bytes.
    let word = if is_short && rex & 8 == 0 { 2 } else { 4 };
    let extension = byte(at).map_or(0, |modrm| modrm >> 3 & 7);
    let (has_modrm, immediate) = match map {
        Map::One => one(opcode, extension, word, rex, is_narrow)?,
        Map::Two => two(opcode)?,
        Map::Three => (true, usize::from(three_a)),
        Map::Vector => match vex_map {
            1 => (opcode != 0x77, usize::from(matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6))),
            2 | 3 => (true, usize::from(three_a)),
            _ => return None,
        },
    };
    let modrm = has_modrm.then_some(at);
    if map == Map::Two && matches!(opcode, 0x20..=0x23) {
        // Control and debug registers: always by register.
        at += 1;
    } else if has_modrm {
        at += operand(bytes.get(at..)?)?;
    }
    let length = at + immediate;
    (length <= MAX_BYTES && length <= bytes.len()).then_some(Instruction {
        map,
        opcode,
        rex,
        is_short,
        modrm,
        immediate,
        length,
    })
}

/// The bytes of ModRM, SIB and displacement.
fn operand(bytes: &[u8]) -> Option<usize> {
    let modrm = *bytes.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && rm == 4;
    let base = if has_sib { *bytes.get(1)? & 7 } else { rm };
    let displacement = match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(1 + usize::from(has_sib) + displacement)
}

/// Whether there is a ModRM byte, and the bytes of the immediate.
fn one(opcode: u8, extension: u8, word: usize, rex: u8, is_narrow: bool) -> Option<(bool, usize)> {
    Some(match opcode {
        0..=0x3f => match opcode & 7 {
            0..=3 => (true, 0),
            4 => (false, 1),
            5 => (false, word),
            _ => return None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => (false, 0),
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => (true, 0),
        0x68 | 0xa9 => (false, word),
        0x69 | 0x81 | 0xc7 => (true, word),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => (true, 1),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => (false, 1),
        0xa0..=0xa3 => (false, if is_narrow { 4 } else { 8 }),
        0xb8..=0xbf => (false, if rex & 8 != 0 { 8 } else { word }),
        0xc2 | 0xca => (false, 2),
        0xc8 => (false, 3),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => (false, 0),
        0xe8 | 0xe9 => (false, 4),
        0xf6 => (true, usize::from(extension < 2)),
        0xf7 => (true, if extension < 2 { word } else { 0 }),
        _ => return None,
    })
}

fn two(opcode: u8) -> Option<(bool, usize)> {
    Some(match opcode {
        0x05..=0x09 | 0x0b | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => (false, 0),
        0x80..=0x8f => (false, 4),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => (true, 1),
        0x04 | 0x0a | 0x0c | 0x0e | 0x0f | 0x24..=0x27 | 0x39 | 0x3b..=0x3f | 0x78 | 0xa6 | 0xa7 => return None,
        _ => (true, 0),
    })
}
