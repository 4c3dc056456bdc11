//! A guest of aarch64 or riscv64: code and a stack that the test has made.

use crate::plugin::records::exit::Exits;
use crate::plugin::records::{self, Known, Processor, Registers};
use crate::plugin::walk::half::{Half, UPPER};
use crate::plugin::walk::{End, Stack, Tables};
use std::collections::BTreeMap;

pub const TEXT: u64 = 0xffff_ff80_4008_0000;
/// A return address in a function that never returns; its frame record is the outermost one.
pub const CALL: u64 = TEXT + 0x1000;
pub const OUTER: u64 = 0xffff_ff80_4100_0100;
pub const SP: u64 = OUTER - 0x100;
/// What a register may have that the code has used for something else.
pub const JUNK: u64 = TEXT + 0x1004;

/// What is on the stack of return address and frame pointer.
#[derive(Clone, Copy)]
pub enum Saved {
    None,
    Link,
    Both,
}
pub const NONE: Saved = Saved::None;
pub const LINK: Saved = Saved::Link;
pub const BOTH: Saved = Saved::Both;

pub struct Guest {
    pub of: &'static Processor,
    memory: BTreeMap<u64, u8>,
    pub tables: Option<Tables>,
}

impl Guest {
    /// With `code` at [`TEXT`], a call and an endless loop around [`CALL`], and the outermost record.
    pub fn new(of: &'static Processor, code: &[u32], call: [u32; 2]) -> Self {
        let mut guest = Self { of, memory: BTreeMap::new(), tables: None };
        for (at, word) in (TEXT..).step_by(4).zip(code) {
            guest.bytes(at, &word.to_le_bytes());
        }
        for (at, word) in (CALL - 4..).step_by(4).zip(call) {
            guest.bytes(at, &word.to_le_bytes());
        }
        for at in (SP - 0x400..OUTER + 0x40).step_by(8) {
            guest.word(at, 0);
        }
        guest
    }

    pub fn bytes(&mut self, at: u64, bytes: &[u8]) {
        self.memory.extend((at..).zip(bytes.iter().copied()));
    }

    pub fn word(&mut self, at: u64, word: u64) {
        self.bytes(at, &word.to_le_bytes());
    }

    pub fn walk(&self, pc: u64, sp: u64, fp: u64, link: u64) -> Stack {
        let read = |address, to: &mut [u8]| {
            to.iter_mut().zip(address..).all(|(byte, at)| self.memory.get(&at).map(|known| *byte = *known).is_some())
        };
        records::walk(
            self.of,
            &Registers { pc, sp, fp, link },
            &read,
            &read,
            Known {
                half: Half::of(pc, (0x1000, UPPER)).unwrap(),
                exits: &mut Exits::default(),
                tables: self.tables.as_ref(),
            },
        )
    }

    /// At each of these instructions: stack pointer below `SP`, frame pointer, link register; what of them is saved.
    pub fn has_callers(&mut self, record: u64, cases: &[(u64, u64, u64, u64, Saved)], callers: &[u64], end: End) {
        for (at, used, fp, link, saved) in cases {
            let saved = match saved {
                Saved::None => [JUNK, JUNK],
                Saved::Link => [JUNK, CALL],
                Saved::Both => [OUTER, CALL],
            };
            self.word(record, saved[0]);
            self.word(record + 8, saved[1]);
            let stack = self.walk(TEXT + at, SP - used, *fp, *link);
            assert_eq!((&stack.callers[..], stack.end, stack.candidate), (callers, end, 0), "at {at:#x}");
        }
    }
}
