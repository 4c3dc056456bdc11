//! The compact unwind table of a kernel without frame pointers: where the caller is, at each instruction.
//!
//! ```text
//! offset bytes                          all numbers little endian; the table of docs/format.md, version 1
//!   0     8    89 6b 70 72 75 77 0d 0a  magic
//!   8     4    version: 1
//!  12     4    CRC-32/ISO-HDLC over the bytes from 16 on
//!  16     4    bytes of the table
//!  20     1    processor: 1 x86_64
//!  21     1    bytes of the build id
//!  22     2    rules
//!  24     8    address of block 0 in the kernel's file, a multiple of 256
//!  32     4    blocks of 256 bytes of code
//!  36     4    rows
//!  40    32    build id
//!  72     .    rules, 4 bytes each (see `Rule`)
//!   .     .    for each 128 blocks, the number of their first row, 4 bytes each
//!   .     .    for each block and one more, its first row, counted from there, 2 bytes each
//!   .     .    rows, 3 bytes each: place in the block; number of the rule, bit 15: a stair
//! ```
//!
//! In: bytes. Out: the rule of an address, or what is wrong with the bytes. Runs in: any; [`Table::rule`] in an NMI.
//! [`Table::new`] checks the whole table once. A lookup reads two entries of the index and the few rows of one block.
//!
//! A row is valid up to the next one. Nearly half of all rows would be those of a prologue that pushes registers, or of
//! an epilogue that pops them. Such a run is one row, a *stair*: within it, each push and each pop moves the stack
//! pointer by eight, and the lookup counts them in the code. A stair that began in an earlier block has ended.
//!
//! No row says that `pushfq` has pushed what the next instruction pops: [`Table::rule_at`] sees it in the code. Where
//! the code only looks so, a row begins.

use crate::checksum::Crc32;
use core::fmt;

/// The bytes that every table begins with.
pub const MAGIC: [u8; 8] = *b"\x89kpruw\r\n";
/// The version written by this crate.
pub const VERSION: u32 = 1;
/// The processor x86_64.
pub const X86_64: u8 = 1;
/// Bytes before the rules.
pub const HEADER_BYTES: usize = 72;
/// Where the checked bytes begin.
pub const CHECKED_FROM: usize = 16;
/// The longest build id.
pub const MAX_BUILD_ID: usize = 32;
/// Bytes of code in a block.
pub const BLOCK: u64 = 256;
/// Blocks that share one entry of four bytes.
pub const GROUP: usize = 128;
/// Bytes of a row.
pub const ROW_BYTES: usize = 3;
/// The bit of a row's rule that says that the row is a stair.
pub const STAIR: u16 = 1 << 15;
/// The name of the section that a kernel reserves for its table.
pub const SECTION: &str = ".kprof.unwind";

/// Where the caller's stack pointer is, after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Base {
    /// Nothing is known of this code.
    None,
    /// So many bytes above the stack pointer.
    Stack(u32),
    /// So many bytes above the frame pointer.
    Frame(u32),
    /// This function has no caller.
    Outermost,
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Saved {
    /// In its register.
    Same,
    /// So many bytes below the caller's stack pointer.
    Below(u32),
    /// Nobody knows.
    Lost,
}

/// How the caller is found at an instruction. The return address is always the word below the caller's stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// The caller's stack pointer.
    pub base: Base,
    /// The caller's frame pointer.
    pub frame: Saved,
}

impl Rule {
    /// Code of which nothing is known.
    pub const NONE: Self = Self { base: Base::None, frame: Saved::Lost };

    /// The rule in four bytes: bits 0 and 1 the base, 2 and 3 the frame pointer, 8 to 15 its distance and 16 to 31 that
    /// of the stack pointer, in words. `None` if a distance is no number of words, or too large.
    pub fn encode(self) -> Option<u32> {
        let words = |bytes: u32, most: u32| (bytes.is_multiple_of(8) && bytes / 8 <= most).then_some(bytes / 8);
        let (base, distance) = match self.base {
            Base::None => (0, 0),
            Base::Stack(bytes) => (1, words(bytes, 0xffff)?),
            Base::Frame(bytes) => (2, words(bytes, 0xffff)?),
            Base::Outermost => (3, 0),
        };
        let (frame, below) = match self.frame {
            Saved::Same => (0, 0),
            Saved::Below(bytes) => (1, words(bytes, 0xff)?),
            Saved::Lost => (2, 0),
        };
        Some(base | frame << 2 | below << 8 | distance << 16)
    }

    /// The rule in these four bytes.
    #[inline(always)]
    pub const fn decode(word: u32) -> Self {
        let distance = (word >> 16) * 8;
        let base = match word & 3 {
            0 => Base::None,
            1 => Base::Stack(distance),
            2 => Base::Frame(distance),
            _ => Base::Outermost,
        };
        let frame = match word >> 2 & 3 {
            0 => Saved::Same,
            1 => Saved::Below((word >> 8 & 0xff) * 8),
            _ => Saved::Lost,
        };
        Self { base, frame }
    }
}

/// The instruction `pushfq`.
pub const PUSHFQ: u8 = 0x9c;

/// The length of a push or a pop at the beginning of these bytes, and by how much it moves the caller away. `None` for
/// any other instruction. (A breakpoint is a push: dynamic probes replace nothing else.)
#[inline]
pub const fn step(code: [u8; 2]) -> Option<(u64, i32)> {
    let (opcode, length) = if code[0] == 0x41 { (code[1], 2) } else { (code[0], 1) };
    match opcode {
        0x50..=0x57 => Some((length, 8)),
        0xcc if length == 1 => Some((length, 8)),
        0x58..=0x5f => Some((length, -8)),
        _ => None,
    }
}

/// Why bytes cannot be used as the table of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// All zero: the reserved section was never filled.
    Empty,
    /// They do not begin with the magic.
    NotATable,
    /// Another version, this one.
    Version(u32),
    /// Another processor, with this number.
    Processor(u8),
    /// The table of another build.
    OtherBuild,
    /// The kernel's build id is empty, so nothing shows that the table is of this build.
    NoBuildId,
    /// Damaged, here.
    Damaged(&'static str),
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(
                f,
                "the unwind table is empty: fill section {SECTION} after linking, by `kprof-fold tables` and objcopy"
            ),
            Self::NotATable => f.write_str("this is no unwind table: make one with `kprof-fold tables KERNEL`"),
            Self::Version(version) => write!(
                f,
                "the unwind table has version {version}, this kernel reads {VERSION}: make it with the kprof-fold of \
                 the same version"
            ),
            Self::Processor(number) => write!(f, "the unwind table is for another processor (number {number})"),
            Self::OtherBuild => f.write_str(
                "the unwind table is of another build of the kernel (its build id differs): make it again from this \
                 one",
            ),
            Self::NoBuildId => f.write_str(
                "the kernel gives no build id, so its unwind table cannot be checked: link with --build-id, and give \
                 the id",
            ),
            Self::Damaged(what) => write!(f, "the unwind table is damaged: {what}"),
        }
    }
}

impl core::error::Error for BadTable {}

/// The first bytes of a table: the address of block 0, the numbers of blocks, of rows and of rules, the build id. The
/// rest follows, then [`seal`].
pub fn header(start: u64, blocks: u32, rows: u32, rules: u16, build_id: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let [rules_low, rules_high] = rules.to_le_bytes();
    put(&mut header, 0, &MAGIC);
    put(&mut header, 8, &VERSION.to_le_bytes());
    put(&mut header, 20, &[X86_64, build_id.len() as u8, rules_low, rules_high]);
    put(&mut header, 24, &start.to_le_bytes());
    put(&mut header, 32, &blocks.to_le_bytes());
    put(&mut header, 36, &rows.to_le_bytes());
    put(&mut header, 40, build_id);
    header
}

/// Writes the length and the checksum into a table that is complete otherwise.
pub fn seal(table: &mut [u8]) {
    let length = table.len() as u32;
    put(table, 16, &length.to_le_bytes());
    let checksum = Crc32::default().with(table.get(CHECKED_FROM..).unwrap_or_default()).end();
    put(table, 12, &checksum.to_le_bytes());
}

fn put(table: &mut [u8], at: usize, bytes: &[u8]) {
    table.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// A table that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The address at which block 0 runs.
    start: u64,
    rules: &'a [[u8; 4]],
    groups: &'a [[u8; 4]],
    blocks: &'a [[u8; 2]],
    rows: &'a [[u8; ROW_BYTES]],
}

impl<'a> Table<'a> {
    /// Checks the bytes; what follows the table is ignored. `build_id` is that of the kernel that runs, and `slide` how
    /// much higher it runs than its file says: 0 if it was not moved.
    ///
    /// # Errors
    /// If the table is damaged, or that of another build.
    pub fn new(bytes: &'a [u8], build_id: &[u8], slide: u64) -> Result<Self, BadTable> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Err(BadTable::NotATable) };
        if !header.starts_with(&MAGIC) {
            return Err(if header.iter().all(|byte| *byte == 0) { BadTable::Empty } else { BadTable::NotATable });
        }
        let word =
            |at: usize| header.get(at..).and_then(|part| part.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        if word(8) != VERSION {
            return Err(BadTable::Version(word(8)));
        }
        let [processor, id_bytes, low, high] = word(20).to_le_bytes();
        let (length, rules) = (word(16) as usize, usize::from(u16::from_le_bytes([low, high])));
        let checked = bytes.get(CHECKED_FROM..length).ok_or(BadTable::Damaged("it is cut off"))?;
        if Crc32::default().with(checked).end() != word(12) {
            return Err(BadTable::Damaged("its checksum differs"));
        }
        if processor != X86_64 {
            return Err(BadTable::Processor(processor));
        }
        match header.get(40..).and_then(|ids| ids.get(..usize::from(id_bytes))) {
            _ if build_id.is_empty() => return Err(BadTable::NoBuildId),
            Some(id) if id == build_id => {}
            _ => return Err(BadTable::OtherBuild),
        }
        let (blocks, rows) = (word(32) as usize, word(36) as usize);
        let sizes = Damaged("its sizes do not fit together");
        let rest = rest.get(..length.wrapping_sub(HEADER_BYTES)).ok_or(sizes)?;
        let (rules, rest) = pieces(rest, rules).ok_or(sizes)?;
        let (groups, rest) = pieces(rest, blocks / GROUP + 1).ok_or(sizes)?;
        let (blocks, rest) = pieces(rest, blocks.wrapping_add(1)).ok_or(sizes)?;
        let (rows, rest) = pieces(rest, rows).ok_or(sizes)?;
        let start = u64::from(word(24)) | u64::from(word(28)) << 32;
        if !rest.is_empty() || start % BLOCK != 0 {
            return Err(sizes);
        }
        let table = Self { start: start.wrapping_add(slide), rules, groups, blocks, rows };
        table.check().map(|()| table)
    }

    /// Checks that the rows of each block are sorted, and that each has a rule.
    fn check(&self) -> Result<(), BadTable> {
        let mut before = 0;
        for block in 1..self.blocks.len() {
            let after = self.first_row(block).filter(|after| (before..=self.rows.len()).contains(after));
            let after = after.ok_or(Damaged("its index is not sorted"))?;
            let rows = self.rows.get(before..after).unwrap_or_default();
            if !rows.is_sorted_by(|a, b| a[0] < b[0]) {
                return Err(Damaged("its rows are not sorted"));
            }
            before = after;
        }
        let has_rule = |row: &[u8; ROW_BYTES]| usize::from(rule_of(*row) & !STAIR) < self.rules.len();
        if before != self.rows.len() || !self.rows.iter().all(has_rule) {
            return Err(Damaged("a row has no block or no rule"));
        }
        Ok(())
    }

    /// The first row of a block.
    #[inline(always)]
    fn first_row(&self, block: usize) -> Option<usize> {
        let group = u32::from_le_bytes(*self.groups.get(block / GROUP)?);
        Some((group as usize).wrapping_add(u16::from_le_bytes(*self.blocks.get(block)?).into()))
    }

    /// The rule of any byte of an instruction. `code` gives two bytes of code; it is asked about the code before
    /// `address` within the same block.
    #[inline(always)]
    pub fn rule(&self, address: u64, code: impl Fn(u64) -> [u8; 2]) -> Rule {
        self.found(address, code).0
    }

    /// The rule of the instruction at `address`, which was interrupted before it was executed.
    #[inline(always)]
    pub fn rule_at(&self, address: u64, code: impl Fn(u64) -> [u8; 2] + Copy) -> Rule {
        let (rule, begins_here) = self.found(address, code);
        match rule.base {
            Base::Stack(bytes) if !begins_here && is_after_pushed_flags(address, code) => {
                Rule { base: Base::Stack(bytes.wrapping_add(8)), ..rule }
            }
            _ => rule,
        }
    }

    /// The rule of an address, and whether its row begins there.
    #[inline(always)]
    fn found(&self, address: u64, code: impl Fn(u64) -> [u8; 2]) -> (Rule, bool) {
        let distance = address.wrapping_sub(self.start);
        let (block, place) = ((distance / BLOCK) as usize, (distance % BLOCK) as u8);
        self.row(block, place).map_or((Rule::NONE, true), |(row, is_here)| {
            let number = rule_of(row);
            let rule = self.rules.get(usize::from(number & !STAIR)).map_or(Rule::NONE, decoded);
            let before = place.wrapping_sub(row[0]);
            if number & STAIR == 0 || !is_here {
                return (rule, is_here && before == 0);
            }
            (climb(rule, address.wrapping_sub(before.into()), address, code), before == 0)
        })
    }

    /// The last row at or before a place, and whether it is in the same block.
    #[inline(always)]
    fn row(&self, block: usize, place: u8) -> Option<([u8; ROW_BYTES], bool)> {
        let (first, after) = (self.first_row(block)?, self.first_row(block.wrapping_add(1))?);
        let rows = self.rows.get(first..after)?;
        let mut found = None;
        for row in rows {
            if row[0] > place {
                break;
            }
            found = Some((*row, true));
        }
        found.or_else(|| Some((*self.rows.get(first.wrapping_sub(1))?, false)))
    }
}

use BadTable::Damaged;

#[inline(always)]
fn decoded(word: &[u8; 4]) -> Rule {
    Rule::decode(u32::from_le_bytes(*word))
}

#[inline(always)]
fn rule_of([_, low, high]: [u8; ROW_BYTES]) -> u16 {
    u16::from_le_bytes([low, high])
}

/// The first `count` pieces of the bytes, and the rest.
fn pieces<const N: usize>(bytes: &[u8], count: usize) -> Option<(&[[u8; N]], &[u8])> {
    let (first, rest) = bytes.split_at_checked(count.checked_mul(N)?)?;
    Some((first.as_chunks().0, rest))
}

/// Whether the instruction pops what the one before, `pushfq`, has pushed. This is how kernels read the interrupt flag,
/// in inline assembly, which nothing describes.
#[inline(never)]
fn is_after_pushed_flags(address: u64, code: impl Fn(u64) -> [u8; 2]) -> bool {
    code(address.wrapping_sub(1))[0] == PUSHFQ && matches!(step(code(address)), Some((_, -8)))
}

/// The rule at `to` of a stair that begins at `at`.
#[inline(never)]
fn climb(rule: Rule, mut at: u64, to: u64, code: impl Fn(u64) -> [u8; 2]) -> Rule {
    let Base::Stack(mut distance) = rule.base else { return rule };
    while at < to {
        let Some((length, moved)) = step(code(at)) else { break };
        at = at.wrapping_add(length);
        distance = distance.wrapping_add_signed(moved);
    }
    Rule { base: Base::Stack(distance), ..rule }
}

#[cfg(test)]
mod tests;
