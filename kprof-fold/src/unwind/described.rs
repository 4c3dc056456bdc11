//! Reads what a compiler says of frames, at each instruction of each function. Stage: unwind tables.
//!
//! In: an ELF file for x86_64, aarch64 or riscv64 with `.eh_frame` or `.debug_frame` (DWARF 5, section 6.4; the
//! registers' numbers are those of each processor's ABI). Out: rows by function. Of two descriptions of a function,
//! that in `.debug_frame` counts. Damaged descriptions are left out.

use gimli::{
    AArch64, BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule,
    RiscV, UnwindContext, UnwindSection, UnwindTableRow, Vendor, X86_64,
};
use object::{Architecture, Object, ObjectSection};
use std::collections::BTreeMap;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Where a call of x86_64 has left the return address, from the canonical frame address (CFA) on.
const PUSHED: i64 = -8;

/// The CFA, which on x86_64 is the caller's stack pointer after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// The stack pointer and so many bytes.
    Stack(i64),
    /// The frame pointer and so many bytes.
    Frame(i64),
    /// There is no caller.
    Outermost,
    /// Another register, an expression, or the return address is elsewhere than it should be.
    Unknown,
}

/// Where a register of the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its register.
    Same,
    /// So many bytes from the CFA on.
    At(i64),
    /// Not known.
    Lost,
}

/// What holds from an instruction on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The address of the instruction in the file.
    pub start: u64,
    /// The CFA.
    pub cfa: Cfa,
    /// The caller's frame pointer.
    pub frame: Place,
    /// The return address.
    pub link: Place,
}

/// What a file describes.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// By first address of a function: one past its last, and its rows.
    pub functions: BTreeMap<u64, (u64, Vec<Row>)>,
}

impl Described {
    /// Reads an ELF file.
    ///
    /// # Errors
    /// If this is no object file.
    pub fn read(data: &[u8]) -> Result<Self, object::Error> {
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

    /// Adds the functions of a section.
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
                rows.push(registers.row(row));
            }
            // What the linker has thrown away is at 0.
            if start != 0 && start < end && !rows.is_empty() {
                self.functions.entry(start).or_insert((end, rows));
            }
        }
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

    fn row(&self, row: &UnwindTableRow<usize>) -> Row {
        let place = |register| match row.register(register) {
            None | Some(RegisterRule::SameValue) => Place::Same,
            Some(RegisterRule::Offset(offset)) => Place::At(offset),
            _ => Place::Lost,
        };
        let link = place(self.link);
        let is_known = if self.has_link { link != Place::Lost } else { link == Place::At(PUSHED) };
        let cfa = match *row.cfa() {
            _ if matches!(row.register(self.link), Some(RegisterRule::Undefined)) => Cfa::Outermost,
            CfaRule::RegisterAndOffset { register, offset } if register == self.stack && is_known => Cfa::Stack(offset),
            CfaRule::RegisterAndOffset { register, offset } if register == self.frame && is_known => Cfa::Frame(offset),
            _ => Cfa::Unknown,
        };
        Row { start: row.start_address(), cfa, frame: place(self.frame), link }
    }
}
