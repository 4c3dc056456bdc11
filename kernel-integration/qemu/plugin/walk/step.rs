//! What one instruction does to RSP and RBP. Stage: capture.
//!
//! In: an instruction, and where RSP and RBP point to before it. Out: the same after it, and what comes next. Whatever
//! writes one of the two in another way makes it unknown. Runs in: QEMU's process, and in the tool.

use super::exit::{Exit, Frame, Place};
use super::length::{Instruction, Map};

/// Registers at an instruction that is followed.
#[derive(Clone, Copy)]
pub struct State {
    /// The instruction.
    pub at: u64,
    pub rsp: Option<Place>,
    pub rbp: Frame,
    /// Where the code itself has pushed the frame pointer that it had at the beginning.
    pub saved: Option<Place>,
}

/// What comes after an instruction.
pub enum Next {
    Falls,
    Jump(u64),
    Branch(u64),
    /// The processor stops here, at an instruction that does not exist or a breakpoint.
    Stop,
    End(Option<Exit>),
}

impl State {
    /// Goes on by one instruction.
    pub fn step(&mut self, one: &Instruction, bytes: &[u8]) -> Next {
        let next = self.at.wrapping_add(one.length as u64);
        self.at = next;
        let number = match *bytes {
            [.., number] if one.immediate == 1 => i64::from(number as i8),
            [.., a, b, c, d] if one.immediate == 4 => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => 0,
        };
        let target = next.wrapping_add_signed(number);
        let modrm = one.modrm.map_or(0, |at| bytes[at]);
        let (mode, extension) = (modrm >> 6, modrm >> 3 & 7);
        let reg = extension | (one.rex & 4) << 1;
        let rm = modrm & 7 | (one.rex & 1) << 3;
        let is_wide = one.rex & 8 != 0;
        match (one.map, one.opcode) {
            (Map::One, 0x50..=0x5f | 0x68 | 0x6a | 0x8f | 0x9c | 0x9d | 0xff)
            | (Map::Two, 0xa0 | 0xa1 | 0xa8 | 0xa9)
                if one.is_short =>
            {
                (self.rsp, self.rbp) = (None, Frame::Unknown);
            }
            (Map::One, 0x70..=0x7f | 0xe0..=0xe3) | (Map::Two, 0x80..=0x8f) => return Next::Branch(target),
            (Map::One, 0xe9 | 0xeb) => return Next::Jump(target),
            (Map::One, 0xff) if extension == 4 => {
                let is_unchanged = self.rsp == Some(Place::Rsp(0)) && self.rbp == Frame::Same;
                return Next::End(is_unchanged.then_some(Exit::Jump));
            }
            (Map::One, 0xff) if matches!(extension, 3 | 5) => return Next::End(None),
            (Map::One, 0xcc) | (Map::Two, 0x0b) => return Next::Stop,
            // Other ways out.
            (Map::One, 0xca | 0xcb) | (Map::Two, 0x34 | 0x35) => return Next::End(None),
            (Map::One, 0xc2 | 0xc3) => return Next::End(self.rsp.map(|to| Exit::Return { to, rbp: self.rbp })),
            (Map::One, 0xcf) => {
                let words = self.rsp.filter(|_| is_wide);
                return Next::End(words.map(|words| Exit::Interrupt { words, rbp: self.rbp, is_syscall: false }));
            }
            (Map::Two, 0x07) => return Next::End(Some(Exit::Syscall)),
            (Map::One, 0x55) if one.rex & 1 == 0 => {
                self.add(-8);
                self.saved =
                    if self.rbp == Frame::Same { self.rsp } else { self.saved.filter(|at| Some(*at) != self.rsp) };
            }
            (Map::One, 0x50..=0x57 | 0x68 | 0x6a | 0x9c) | (Map::Two, 0xa0 | 0xa8) => self.add(-8),
            (Map::One, 0xff) if extension == 6 => self.add(-8),
            (Map::One, 0x58..=0x5f) => {
                let (from, register) = (self.rsp, one.opcode & 7 | (one.rex & 1) << 3);
                self.add(8);
                match register {
                    4 => self.rsp = None,
                    5 => self.rbp = self.restored(from),
                    _ => {}
                }
            }
            (Map::One, 0x9d) | (Map::Two, 0xa1 | 0xa9) => self.add(8),
            (Map::One, 0x8f) => {
                self.add(8);
                self.write(mode == 3, rm);
            }
            (Map::One, 0xc8) => (self.rsp, self.rbp) = (None, Frame::Unknown),
            (Map::One, 0xc9) => {
                let frame = self.frame();
                self.rsp = frame.map(|at| at.plus(8));
                self.rbp = self.restored(frame);
            }
            (Map::One, 0x81 | 0x83) if mode == 3 && rm == 4 && is_wide && extension == 0 => self.add(number),
            (Map::One, 0x81 | 0x83) if mode == 3 && rm == 4 && is_wide && extension == 5 => self.add(-number),
            // Comparisons write nothing.
            (Map::One, 0x80..=0x83) => self.write(mode == 3 && extension != 7, rm),
            (Map::One, 0x8d | 0x8b) if is_wide && matches!(reg, 4 | 5) && mode != 3 => {
                let place = memory(&bytes[one.modrm.unwrap_or(0)..], one.rex);
                let place = place.and_then(|(base, distance)| {
                    let base = if base == 4 { self.rsp } else { self.frame() };
                    base.map(|base| base.plus(distance))
                });
                match (one.opcode, reg) {
                    (0x8d, 4) => self.rsp = place,
                    (0x8d, _) => self.rbp = place.map_or(Frame::Unknown, Frame::Is),
                    (_, 5) => self.rbp = self.restored(place),
                    _ => self.rsp = None,
                }
            }
            (Map::One, 0x89 | 0x8b) if is_wide && mode == 3 => {
                let (to, from) = if one.opcode == 0x89 { (rm, reg) } else { (reg, rm) };
                match (to, from) {
                    (4, 5) => self.rsp = self.frame(),
                    (5, 4) => self.rbp = self.rsp.map_or(Frame::Unknown, Frame::Is),
                    _ => self.write(true, to),
                }
            }
            (Map::One, 0x00..=0x37 | 0x86..=0x89) if one.modrm.is_some() => {
                let writes_rm = one.opcode & 2 == 0 || one.opcode >= 0x86;
                self.write(if writes_rm { mode == 3 } else { true }, if writes_rm { rm } else { reg });
                // `xchg` writes both.
                self.write(matches!(one.opcode, 0x86 | 0x87), reg);
            }
            (Map::One, 0x63 | 0x69 | 0x6b | 0x8a | 0x8b | 0x8d) => self.write(true, reg),
            (Map::One, 0xb0..=0xbf | 0x91..=0x97) => self.write(true, one.opcode & 7 | (one.rex & 1) << 3),
            (Map::One, 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xfe) => self.write(mode == 3, rm),
            (Map::One, 0xff) => self.write(mode == 3 && extension < 2, rm),
            (Map::One, 0xf6 | 0xf7) => self.write(mode == 3 && matches!(extension, 2 | 3), rm),
            (Map::One, 0x8c) => self.write(mode == 3, rm),
            (Map::Two, 0xc8..=0xcf) => self.write(true, one.opcode & 7 | (one.rex & 1) << 3),
            (Map::Two, 0x20 | 0x21) => self.write(true, rm),
            (Map::Two, 0x1e | 0xae) => self.write(mode == 3, rm),
            // They write no general register.
            (
                Map::Two,
                0x0d | 0x10..=0x1d | 0x1f | 0x28..=0x2b | 0x2e..=0x37 | 0x51..=0x7d | 0x7f | 0xa3 | 0xc2..=0xc4 | 0xc6,
            )
            | (Map::Two, 0xd0..=0xd6 | 0xd8..=0xff) => {}
            (Map::Three, opcode) if opcode < 0xf0 && !matches!(opcode, 0x14..=0x17) => {}
            (Map::Two | Map::Three, _) if one.modrm.is_some() => {
                self.write(mode == 3, rm);
                self.write(true, reg);
            }
            (Map::Vector, _) => (self.rsp, self.rbp) = (None, Frame::Unknown),
            _ => {}
        }
        Next::Falls
    }

    fn add(&mut self, bytes: i64) {
        self.rsp = self.rsp.map(|at| at.plus(bytes));
    }

    /// The frame pointer, read from this place.
    fn restored(&self, from: Option<Place>) -> Frame {
        match from {
            Some(place) if Some(place) == self.saved => Frame::Same,
            from => from.map_or(Frame::Unknown, Frame::At),
        }
    }

    /// Where the frame pointer points to.
    fn frame(&self) -> Option<Place> {
        match self.rbp {
            Frame::Same => Some(Place::Rbp(0)),
            Frame::Is(place) => Some(place),
            Frame::At(_) | Frame::Unknown => None,
        }
    }

    /// A register has an unknown value.
    fn write(&mut self, does: bool, register: u8) {
        match register {
            4 if does => self.rsp = None,
            5 if does => self.rbp = Frame::Unknown,
            _ => {}
        }
    }
}

/// Whether the instruction has an operand below RBP, as functions have their locals there.
pub fn is_local(one: &Instruction, bytes: &[u8]) -> bool {
    let place = one.modrm.filter(|at| bytes[*at] >> 6 != 3).and_then(|at| memory(&bytes[at..], one.rex));
    place.is_some_and(|(base, distance)| base == 5 && distance < 0)
}

/// Base (RSP or RBP) and displacement of an operand in memory; `None` for any other base, and with an index.
fn memory(bytes: &[u8], rex: u8) -> Option<(u8, i64)> {
    let (modrm, mut rest) = bytes.split_first()?;
    let mut base = modrm & 7;
    if rex & 1 != 0 {
        return None;
    }
    if base == 4 {
        let (sib, after) = rest.split_first()?;
        if sib >> 3 & 7 != 4 || rex & 2 != 0 {
            return None;
        }
        (base, rest) = (sib & 7, after);
    }
    let distance = match modrm >> 6 {
        0 if base == 5 => return None,
        0 => 0,
        1 => i64::from(*rest.first()? as i8),
        _ => i64::from(i32::from_le_bytes(*rest.first_chunk()?)),
    };
    matches!(base, 4 | 5).then_some((base, distance))
}
