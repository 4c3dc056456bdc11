//! What an instruction does to the flow of control, from its bytes. Stage: capture.
//!
//! In: the bytes of one x86 instruction, as QEMU has translated it. Out: how a block that ends with it goes on, and
//! whether it is sure to complete. Runs in: QEMU's process, once per translated block. Only 64-bit code is read right;
//! in other modes an instruction may be taken for one that may not complete, never the other way round.

/// How the last instruction of a block goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// To the next instruction.
    Falls,
    /// To the target or to the next instruction: conditional jumps, loops, and repeated string instructions.
    Branch,
    /// To the target.
    Jump,
    /// To an address in a register or in memory.
    JumpIndirect,
    /// A call of the target.
    Call,
    /// A call of an address in a register or in memory.
    CallIndirect,
    /// To the return address on the stack.
    Return,
    /// `iret`.
    InterruptReturn,
    /// To user code: `sysret`, `sysexit`.
    ToUser,
    /// From user code to the kernel's entry: `syscall`, `sysenter`.
    ToKernel,
}

/// An instruction after its prefixes.
struct Parts<'a> {
    has_lock: bool,
    repeats: bool,
    /// The opcode, with 0x0f00 added for those of two bytes.
    opcode: u16,
    /// What follows the opcode.
    rest: &'a [u8],
}

impl Parts<'_> {
    /// The field `reg` of the byte after the opcode.
    fn extension(&self) -> u8 {
        self.rest.first().map_or(0, |byte| byte >> 3 & 7)
    }

    /// Whether the operand is a register, not memory.
    fn has_register(&self) -> bool {
        self.rest.first().is_some_and(|byte| *byte >= 0xc0)
    }
}

fn parts(bytes: &[u8]) -> Option<Parts<'_>> {
    let (mut has_lock, mut repeats) = (false, false);
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            0xf0 => has_lock = true,
            0xf2 | 0xf3 => repeats = true,
            0x40..=0x4f | 0x66 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 => {}
            _ => break,
        }
        at += 1;
    }
    let first = *bytes.get(at)?;
    let (opcode, after) =
        if first == 0x0f { (0x0f00 | u16::from(*bytes.get(at + 1)?), at + 2) } else { (u16::from(first), at + 1) };
    Some(Parts { has_lock, repeats, opcode, rest: &bytes[after..] })
}

/// How a block goes on whose last instruction this is, and the target, given the address of the instruction.
pub fn ending(bytes: &[u8], address: u64) -> (Ending, u64) {
    let Some(parts) = parts(bytes) else { return (Ending::Falls, 0) };
    let next = address.wrapping_add(bytes.len() as u64);
    let near = || next.wrapping_add(parts.rest.first().map_or(0, |byte| *byte as i8 as u64));
    let far = || {
        let word = parts.rest.first_chunk::<4>().map_or(0, |word| i32::from_le_bytes(*word));
        next.wrapping_add(i64::from(word) as u64)
    };
    match parts.opcode {
        0x70..=0x7f | 0xe0..=0xe3 => (Ending::Branch, near()),
        0x0f80..=0x0f8f => (Ending::Branch, far()),
        0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf if parts.repeats => (Ending::Branch, address),
        0xe8 => (Ending::Call, far()),
        0xe9 => (Ending::Jump, far()),
        0xeb => (Ending::Jump, near()),
        0xff if parts.extension() == 2 || parts.extension() == 3 => (Ending::CallIndirect, 0),
        0xff if parts.extension() == 4 || parts.extension() == 5 => (Ending::JumpIndirect, 0),
        0xc2 | 0xc3 | 0xca | 0xcb => (Ending::Return, 0),
        0xcf => (Ending::InterruptReturn, 0),
        0x0f07 | 0x0f35 => (Ending::ToUser, 0),
        0x0f05 | 0x0f34 => (Ending::ToKernel, 0),
        _ => (Ending::Falls, 0),
    }
}

/// Whether an instruction is sure to complete once it has begun: it touches no memory and no device, divides nothing
/// and needs no privilege. Where it is unknown, the answer is no.
pub fn is_sure(bytes: &[u8]) -> bool {
    let Some(parts) = parts(bytes) else { return false };
    if parts.has_lock || parts.repeats {
        return false;
    }
    match parts.opcode {
        // Arithmetic by registers, and with the accumulator and a number.
        opcode @ 0..=0x3f => match opcode & 7 {
            0..=3 => parts.has_register(),
            4 | 5 => true,
            _ => false,
        },
        // lea; a register in its place is no instruction.
        0x8d => !parts.has_register(),
        0x63 | 0x69 | 0x6b | 0x80 | 0x81 | 0x83..=0x85 | 0x88..=0x8b | 0xc0 | 0xc1 | 0xd0..=0xd3 => {
            parts.has_register()
        }
        0xc6 | 0xc7 => parts.has_register() && parts.extension() == 0,
        // Not div and idiv.
        0xf6 | 0xf7 => parts.has_register() && parts.extension() < 6,
        0xfe | 0xff => parts.has_register() && parts.extension() < 2,
        0x90 | 0x98 | 0x99 | 0xa8 | 0xa9 | 0xb0..=0xbf => true,
        0x0f40..=0x0f4f | 0x0f90..=0x0f9f | 0x0faf | 0x0fb6 | 0x0fb7 | 0x0fbe | 0x0fbf => parts.has_register(),
        0x0f1f => true,
        _ => false,
    }
}
