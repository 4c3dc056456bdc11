//! Unwind tables of a kernel without frame pointers. Stage: symbolize.
//!
//! In: the ELF file of a kernel for x86_64, aarch64 or riscv64 with `.eh_frame` or `.debug_frame` (DWARF 5, section
//! 6.4; the registers' numbers are those of each processor's ABI). Out: rows for the walk, by which the return address
//! is found at each instruction; or nothing if the kernel keeps frame pointers. Rules that the walk does not know
//! become rows at which a stack ends. Of two descriptions of a function, that in `.debug_frame` counts.

use crate::walk::Tables;
use crate::walk::tables::{LOST, PUSHED, Row, Rule, SAME};
use crate::{framed, orc};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use gimli::{
    AArch64, BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule,
    RiscV, UnwindContext, UnwindSection, UnwindTableRow, Vendor, X86_64,
};
use object::{Architecture, Object, ObjectSection};
use std::collections::BTreeMap;
use std::fs;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A kernel has frame pointers if this many of 100 functions that build a frame use RBP for it.
const FRAME_POINTERS_PERCENT: usize = 50;
/// A function has built a frame if its return address is further away than this: a pushed register or two.
const MIN_FRAME: i64 = 24;

/// How stacks are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// By the tables if the kernel's file has some, and most of its functions have no frame pointer; else by frames.
    Auto,
    /// By frame pointers.
    Frames,
    /// By the unwind tables (`.eh_frame`, `.debug_frame`) of the kernel's file.
    Tables,
}

/// What a file describes.
#[derive(Debug, Default)]
struct Described {
    /// By first address of a function: one past its last, and its rows.
    functions: BTreeMap<u64, (u64, Vec<Row>)>,
}

/// The tables, if stacks are to be found by them: of the kernel's file, or of another one. Says so.
///
/// # Errors
/// If they are asked for and the file has none.
pub fn choose(kernel: &str, other: Option<&str>, unwind: Unwind) -> Result<Option<Tables>> {
    if unwind == Unwind::Frames {
        return Ok(None);
    }
    let file = other.unwrap_or(kernel);
    let unwind = if other.is_some() { Unwind::Tables } else { unwind };
    let data = fs::read(file).with_context(|| format!("{file}: cannot read"))?;
    if let Some(rows) = orc::rows(&data).with_context(|| format!("{file}: its ORC tables"))? {
        eprintln!("kprof-qemu: stacks are found by the ORC tables of {file}, which have {} rows", rows.len());
        return Ok(Some(Tables::new(rows)));
    }
    let described = if data.starts_with(b"\x7fELF") { Described::read(&data)? } else { Described::default() };
    let (with, all) = described.with_frame_pointers();
    match unwind {
        _ if described.functions.is_empty() && unwind == Unwind::Tables => {
            bail!(
                "{file}: has neither .eh_frame nor .debug_frame nor ORC tables; build it with \
                 -C force-unwind-tables=yes, and keep .eh_frame in the linker script"
            )
        }
        Unwind::Auto if described.functions.is_empty() => {
            if let Some(said) = framed::warning(file, &data) {
                eprintln!("kprof-qemu: {said}");
            }
            return Ok(None);
        }
        Unwind::Auto if all == 0 || with * 100 >= all * FRAME_POINTERS_PERCENT => return Ok(None),
        _ => {}
    }
    eprintln!(
        "kprof-qemu: stacks are found by the unwind tables of {file}, which describe {} functions; {with} of the {all} \
         that build a frame have a frame pointer",
        described.functions.len()
    );
    Ok(Some(Tables::new(described.rows())))
}

/// As a file for the plugin.
pub fn bytes(tables: &Tables) -> Vec<u8> {
    let words = |row: &Row| [row.start, row.rule as u64, row.offset as u64, row.rbp as u64, row.link as u64];
    tables.rows.iter().flat_map(words).flat_map(u64::to_le_bytes).collect()
}

impl Described {
    fn read(data: &[u8]) -> Result<Self> {
        let image = object::File::parse(data)?;
        let section = |name: &str| {
            let section = image.section_by_name(name)?;
            Some((section.address(), section.uncompressed_data().ok()?))
        };
        let text = section(".text").map_or(0, |(at, _)| at);
        let registers = Registers::of(image.architecture());
        let mut described = Self::default();
        if let Some((_, bytes)) = section(".debug_frame") {
            let mut frames = DebugFrame::from(EndianSlice::new(&bytes, LittleEndian));
            frames.set_address_size(8);
            frames.set_vendor(registers.vendor);
            described.add(&frames, &BaseAddresses::default().set_text(text), &registers);
        }
        if let Some((at, bytes)) = section(".eh_frame") {
            let mut frames = EhFrame::from(EndianSlice::new(&bytes, LittleEndian));
            frames.set_address_size(8);
            frames.set_vendor(registers.vendor);
            described.add(&frames, &BaseAddresses::default().set_eh_frame(at).set_text(text), &registers);
        }
        Ok(described)
    }

    /// Adds the functions of a section; what is damaged is left out.
    fn add<'a, S: UnwindSection<Reader<'a>>>(&mut self, section: &S, bases: &BaseAddresses, registers: &Registers)
    where
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut context = UnwindContext::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(S::cie_from_offset) else { continue };
            let (start, end) = (fde.initial_address(), fde.initial_address().wrapping_add(fde.len()));
            let Ok(mut table) = fde.rows(section, bases, &mut context) else { continue };
            let mut rows = Vec::new();
            while let Ok(Some(row)) = table.next_row() {
                rows.push(registers.translated(row));
            }
            if let [row] = &mut rows[..]
                && row.rule == Rule::Rsp
            {
                row.rule = Rule::Sole;
            }
            // What the linker has thrown away is at 0.
            if start != 0 && start < end && !rows.is_empty() {
                self.functions.entry(start).or_insert((end, rows));
            }
        }
    }

    /// How many functions that build a frame use RBP for it, and how many there are.
    fn with_frame_pointers(&self) -> (usize, usize) {
        let is_frame = |row: &Row| row.rule == Rule::Rbp || (row.rule == Rule::Rsp && row.offset > MIN_FRAME);
        let frames = self.functions.values().filter(|(_, rows)| rows.iter().any(is_frame));
        let all: Vec<bool> = frames.map(|(_, rows)| rows.iter().any(|row| row.rule == Rule::Rbp)).collect();
        (all.iter().filter(|has| **has).count(), all.len())
    }

    /// All rows, sorted, with one of nothing after the end of each function.
    fn rows(self) -> Vec<Row> {
        let mut all: Vec<Row> = Vec::new();
        let nothing = |start| Row::new(start, Rule::Nothing, 0, LOST);
        for (start, (end, rows)) in self.functions {
            // Functions that overlap: nobody knows.
            while all.last().is_some_and(|last| last.start >= start) {
                all.pop();
            }
            all.extend(rows);
            all.push(nothing(end));
        }
        all
    }
}

/// A processor's registers.
struct Registers {
    stack: Register,
    frame: Register,
    /// The return address, as a column of the tables.
    link: Register,
    /// Whether a call leaves it in this register, and not on the stack.
    has_link: bool,
    vendor: Vendor,
}

impl Registers {
    /// Those of x86_64 for any other architecture: a file of which nothing is known has no rows that fit.
    fn of(architecture: Architecture) -> Self {
        let (stack, frame, link, has_link) = match architecture {
            Architecture::Aarch64 => (AArch64::SP, AArch64::X29, AArch64::X30, true),
            Architecture::Riscv64 => (RiscV::SP, RiscV::S0, RiscV::RA, true),
            _ => (X86_64::RSP, X86_64::RBP, X86_64::RA, false),
        };
        let vendor = if architecture == Architecture::Aarch64 { Vendor::AArch64 } else { Vendor::Default };
        Self { stack, frame, link, has_link, vendor }
    }

    /// A row for the walk.
    fn translated(&self, row: &UnwindTableRow<usize>) -> Row {
        let place = |register| match row.register(register) {
            None | Some(RegisterRule::SameValue) => SAME,
            Some(RegisterRule::Offset(offset)) => offset,
            _ => LOST,
        };
        let link = place(self.link);
        let is_known = if self.has_link { link != LOST } else { link == PUSHED };
        let (rule, offset) = match *row.cfa() {
            _ if matches!(row.register(self.link), Some(RegisterRule::Undefined)) => (Rule::Outermost, 0),
            CfaRule::RegisterAndOffset { register, offset } if register == self.stack && is_known => {
                (Rule::Rsp, offset)
            }
            CfaRule::RegisterAndOffset { register, offset } if register == self.frame && is_known => {
                (Rule::Rbp, offset)
            }
            _ => (Rule::Unknown, 0),
        };
        Row { start: row.start_address(), rule, offset, rbp: place(self.frame), link }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_program_are_sorted_and_know_nearly_all_of_their_rows() {
        let data = fs::read(std::env::current_exe().unwrap()).unwrap();
        let described = Described::read(&data).unwrap();
        let functions = described.functions.len();
        assert!(functions > 1000, "{functions} functions");
        let rows = described.rows();
        assert!(rows.is_sorted_by_key(|row| row.start));
        let count = |rule| rows.iter().filter(|row| row.rule == rule).count();
        assert!(count(Rule::Rsp) > functions && count(Rule::Nothing) > functions / 2, "{functions} functions");
        assert!(count(Rule::Unknown) * 100 < rows.len(), "{} of {} rows", count(Rule::Unknown), rows.len());
        // The first row of a function is that of its first instruction: the return address is on top of the stack.
        let first = |pair: &&[Row]| pair[0].rule == Rule::Nothing && pair[1].rule != Rule::Nothing;
        let firsts: Vec<&Row> = rows.windows(2).filter(first).map(|pair| &pair[1]).collect();
        let on_top = firsts.iter().filter(|row| row.offset == 8 && row.rbp == SAME).count();
        assert!(on_top * 100 > firsts.len() * 95, "{on_top} of {}", firsts.len());
    }

    #[test]
    fn a_kernel_has_frame_pointers_if_most_functions_with_a_frame_use_rbp() {
        let row = |rule, offset| Row::new(1, rule, offset, SAME);
        let of = |functions: &[&[Row]]| {
            let all = (1_u64..).zip(functions).map(|(at, rows)| (at, (at + 1, rows.to_vec())));
            Described { functions: all.collect() }.with_frame_pointers()
        };
        let (leaf, framed) = ([row(Rule::Sole, 8)], [row(Rule::Rsp, 8), row(Rule::Rsp, 16), row(Rule::Rbp, 16)]);
        let (pushed, deep) = ([row(Rule::Rsp, 8), row(Rule::Rsp, 16)], [row(Rule::Rsp, 8), row(Rule::Rsp, 64)]);
        assert_eq!(of(&[&leaf, &framed, &pushed]), (1, 1));
        assert_eq!(of(&[&leaf, &framed, &deep, &deep]), (1, 3));
        assert_eq!(of(&[&leaf, &pushed]), (0, 0));
    }
}
