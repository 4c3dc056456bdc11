//! Symbols, inlined frames and lines from an ELF file with DWARF. Stage: symbolize.
//!
//! In: the bytes of a kernel image. Out: the same [`Table`] as from `nm`, and for each address the frames that were
//! inlined there, with file and line. If DWARF is damaged or missing, only the inlined frames are lost, never the
//! functions.

use super::UNKNOWN;
use super::cfi::Cfi;
use super::debug_file;
use super::library::is_library;
use super::name::{frame_name, is_label};
use super::table::Table;
use crate::error::Error;
use crate::problems::{Kind, Problems};
use gimli::{EndianArcSlice, Reader as _, RunTimeEndian};
use object::{
    Architecture, CompressionFormat, Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags,
    SegmentFlags, SymbolKind,
};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// The first bytes of an ELF file.
pub const MAGIC: &[u8] = b"\x7fELF";

type Reader = EndianArcSlice<RunTimeEndian>;

/// A line of the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The path of the file, as given to the compiler.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
}

/// A frame at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// The name of an inlined function; `None` for the function that contains the code, whose name is in the table.
    pub name: Option<String>,
    /// The source line in this function.
    pub location: Option<Location>,
    /// Whether it is an inlined function of a library ([`super::library`]).
    pub is_library: bool,
}

/// An image with its DWARF.
pub struct Elf {
    dwarf: addr2line::Context<Reader>,
    data: Arc<[u8]>,
    /// Address, length and file offset of each piece of code.
    pub code: Vec<(u64, u64, u64)>,
    /// The same of each piece that the kernel cannot write to.
    constants: Vec<(u64, u64, u64)>,
    /// The same of each piece.
    loaded: Vec<(u64, u64, u64)>,
    /// Lowest address of the kernel's part that is loaded.
    pub base: u64,
    /// The processor.
    pub arch: Architecture,
    /// The build id.
    pub build_id: Option<String>,
    /// The compiler's call frame information.
    pub cfi: Cfi,
}

/// Reads an image. Symbols and DWARF that it lacks are taken from its debug file: `debug`, or where it is usually
/// found.
///
/// # Errors
/// If it is not a readable ELF file, or has no code symbols.
pub fn read(file: &str, data: Vec<u8>, debug: Option<&str>, problems: &mut Problems) -> Result<(Table, Elf), Error> {
    let data: Arc<[u8]> = data.into();
    let unusable = |why: String| Error::unusable(file, why);
    let image =
        object::File::parse(&*data).map_err(|error| unusable(format!("is no ELF file that can be read: {error}")))?;
    let is_complete = image.section_by_name(".debug_info").is_some() && image.symbols().next().is_some();
    if image.kind() == ObjectKind::Relocatable {
        let todo = "give the file that the linker made, or the symbols at the addresses where they ran, as \
                    /proc/kallsyms has them";
        return Err(unusable(format!("is a relocatable file (.o, .ko), whose sections have no addresses yet; {todo}")));
    }
    let found = match debug {
        None if is_complete => debug_file::Found::default(),
        _ => debug_file::find(file, &image, debug)?,
    };
    // A damaged debug file is as if there was none.
    let debug = found.file.as_ref().and_then(|(_, bytes)| object::File::parse(&**bytes).ok());
    let mut table = code_symbols(&image);
    if let (true, Some(debug)) = (table.is_empty(), &debug) {
        table = code_symbols(debug);
    }
    let missing = found.missing.as_ref();
    if table.is_empty() {
        let todo = missing.map_or_else(
            || "give the kernel as the linker made it".to_owned(),
            |missing| match &missing.other {
                None => {
                    format!("its symbols are in {}, which is not beside it; give it with --debug-file", missing.name)
                }
                Some(_) => format!("{}; give the right one with --debug-file", missing.in_words()),
            },
        );
        return Err(unusable(format!("has no code symbols (stripped?); {todo}")));
    }
    if let Some(missing) = missing {
        let why = missing.in_words();
        problems
            .add(Kind::Note, || format!("{file}: no lines and no inlined frames: {why}; give it with --debug-file"));
    }
    let endian = if image.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let damage = Cell::new(None);
    let bytes_of = |image: &object::File<'_>, name: &str| -> Option<Arc<[u8]>> {
        let bytes = content(&image.section_by_name(name)?);
        let bytes = bytes.map_err(|why| damage.set(Some(format!("its section {name} cannot be read: {why}")))).ok()?;
        if bytes.is_empty() { None } else { Some(Arc::from(&*bytes)) }
    };
    let section = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        // A debug file lists the sections that only the image has, but without their bytes.
        let bytes = bytes_of(&image, id.name()).or_else(|| bytes_of(debug.as_ref()?, id.name()));
        Ok(EndianArcSlice::new(bytes.unwrap_or_else(|| Arc::from([])), endian))
    };
    let empty = || EndianArcSlice::new(Arc::from([]), endian);
    let address_of = |name| image.section_by_name(name).map_or(0, |section| section.address());
    let cfi = Cfi::new(
        section(gimli::SectionId::DebugFrame).unwrap_or_else(|_| empty()),
        section(gimli::SectionId::EhFrame).unwrap_or_else(|_| empty()),
        address_of(".eh_frame"),
        address_of(".text"),
        image.architecture(),
    );
    let dwarf = gimli::Dwarf::load(section).inspect(|dwarf| {
        if is_split(dwarf) {
            damage
                .set(Some("its DWARF is split, and .dwo files are not read: build with -C split-debuginfo=off".into()));
        }
    });
    let dwarf = dwarf
        .and_then(addr2line::Context::from_dwarf)
        .map_err(|error| unusable(format!("its DWARF cannot be read: {error}")))?;
    if let Some(why) = damage.take() {
        problems.add(Kind::Note, || format!("{file}: lines and inlined frames may be missing: {why}"));
    }
    let segments = || image.segments().filter(|segment| segment.size() > 0);
    let has = |segment: &object::Segment<'_, '_>, flag: u32| match segment.flags() {
        SegmentFlags::Elf { p_flags, .. } => p_flags.0 & flag != 0,
        _ => false,
    };
    let piece = |segment: object::Segment<'_, '_>| (segment.address(), segment.file_range().1, segment.file_range().0);
    let code = segments().filter(|segment| has(segment, object::elf::PF_X.0)).map(piece);
    let constants = segments().filter(|segment| !has(segment, object::elf::PF_W.0)).map(piece).collect();
    let loaded = segments().map(piece).collect();
    let lowest = |upper: bool| segments().filter(|s| !upper || s.address() >> 63 == 1).map(|s| s.address()).min();
    let build_id = debug_file::build_id(&image);
    let arch = image.architecture();
    let (code, base) = (code.collect(), lowest(true).or(lowest(false)).unwrap_or(0));
    Ok((table, Elf { dwarf, code, constants, loaded, base, arch, build_id, cfi, data: Arc::clone(&data) }))
}

/// A compressed section claims at most this many times its own bytes: no DEFLATE stream has more. Without a limit a
/// damaged file of a few bytes would take all memory.
const MAX_EXPANSION: u64 = 1032;
/// By zstd equal bytes may become 128 KiB from each block of four bytes (RFC 8878, 3.1.1.2). Sections of up to so many
/// bytes are read whatever their part is.
const MAX_EXPANSION_ZSTD: u64 = 32_768;
const MAX_BYTES_ZSTD: u64 = 64 << 20;

/// The bytes of a section, or why they cannot be read.
fn content<'a>(section: &object::Section<'a, '_>) -> Result<Cow<'a, [u8]>, String> {
    let stored = section.compressed_data().map_err(|error| error.to_string())?;
    let (bytes, claimed) = (stored.data.len() as u64, stored.uncompressed_size);
    let most = bytes.saturating_mul(MAX_EXPANSION);
    let most = match stored.format {
        CompressionFormat::Zstandard => most.max(bytes.saturating_mul(MAX_EXPANSION_ZSTD).min(MAX_BYTES_ZSTD)),
        _ => most,
    };
    if claimed > most {
        return Err(format!("it claims {claimed} bytes, compressed to {bytes}"));
    }
    stored.decompress().map_err(|error| error.to_string())
}

/// Whether a unit has its functions in a file of its own (`-gsplit-dwarf`, `-C split-debuginfo=unpacked`).
fn is_split(dwarf: &gimli::Dwarf<Reader>) -> bool {
    let has_addresses = !gimli::Section::reader(&dwarf.debug_addr).is_empty();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        let is_skeleton = match unit.type_() {
            gimli::UnitType::Skeleton(_) => true,
            // Before DWARF 5 only the attributes of a unit say it, and only units of this kind have the section.
            _ if unit.version() < 5 && has_addresses => dwarf.unit(unit).is_ok_and(|unit| unit.dwo_id.is_some()),
            _ => false,
        };
        if is_skeleton {
            return true;
        }
    }
    false
}

/// The code symbols of an image.
fn code_symbols(image: &object::File<'_>) -> Table {
    let mut table = Table::default();
    for symbol in image.symbols() {
        let section = symbol.section_index().and_then(|index| image.section_by_index(index).ok());
        let is_code = section.as_ref().is_some_and(|section| is_executable(section.flags()));
        let end = section.map_or(u64::MAX, |section| section.address().saturating_add(section.size()));
        let is_place = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown);
        if let (true, true, true, Ok(name)) = (is_code, is_place, symbol.is_definition(), symbol.name_bytes())
            && !name.is_empty()
            && !is_label(name)
        {
            let place = (symbol.address(), symbol.size());
            table.add_within(end, place, symbol.is_global() || symbol.is_weak(), name);
        }
    }
    table.finish();
    table
}

/// The name of an inlined function, by its name in DWARF. One without a name is unknown: only the outermost frame is
/// the function of the symbol.
fn inlined_name(raw: Option<&str>) -> String {
    raw.map_or_else(|| UNKNOWN.to_owned(), |raw| frame_name(raw.as_bytes()).into_owned())
}

pub(super) fn is_executable(flags: SectionFlags) -> bool {
    matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.0 & object::elf::SHF_EXECINSTR.0 != 0)
}

impl Elf {
    /// Where the segments are that are loaded.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        self.loaded.iter().map(|(start, ..)| *start)
    }

    /// Whether the code is for x86_64.
    pub fn is_x86_64(&self) -> bool {
        self.arch == Architecture::X86_64
    }

    /// The processor, as the header of a profile names it; `None` for one that no profile is of.
    pub fn arch_name(&self) -> Option<&'static str> {
        match self.arch {
            Architecture::X86_64 => Some("x86_64"),
            Architecture::Aarch64 => Some("aarch64"),
            Architecture::Riscv64 => Some("riscv64"),
            _ => None,
        }
    }

    /// The frames at an address of the file, innermost first; the last one is the function that contains the code.
    pub fn frames(&self, address: u64) -> Vec<Inlined> {
        // addr2line adds 1 to the address, which would overflow for the last address. There is no code at that address.
        if address == u64::MAX {
            return Vec::new();
        }
        let Ok(mut found) = self.dwarf.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let raw = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = frame
                .location
                .and_then(|place| Some(Location { file: place.file?.to_owned(), line: place.line.unwrap_or(0) }));
            let name = inlined_name(raw.as_deref());
            let file = location.as_ref().map(|place: &Location| &place.file[..]);
            let is_library = is_library(&name, file, || self.unit_source(address));
            frames.push(Inlined { name: Some(name), location, is_library });
        }
        if let Some(outermost) = frames.last_mut() {
            (outermost.name, outermost.is_library) = (None, false);
        }
        frames
    }

    /// The source file of the compilation unit that an address is in, with the compilation directory.
    fn unit_source(&self, address: u64) -> Option<String> {
        let unit = self.dwarf.find_dwarf_and_unit(address).skip_all_loads()?;
        let text = |part: &Option<Reader>| part.as_ref().and_then(|part| Some(part.to_string().ok()?.into_owned()));
        let (folder, name) = (text(&unit.comp_dir).unwrap_or_default(), text(&unit.name)?);
        Some(if name.starts_with('/') { name } else { format!("{folder}/{name}") })
    }

    /// The code from an address of the file on.
    pub fn code(&self, address: u64) -> Option<&[u8]> {
        self.bytes(&self.code, address)
    }

    /// The bytes from an address of the file on, if the kernel cannot write to them.
    pub fn constant(&self, address: u64) -> Option<&[u8]> {
        self.bytes(&self.constants, address)
    }

    /// The word at an address of the file, in the order of x86_64, as it is before the kernel runs.
    pub fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(&self.loaded, address)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    fn bytes(&self, pieces: &[(u64, u64, u64)], address: u64) -> Option<&[u8]> {
        // A damaged file may have a segment that claims to reach beyond the last address.
        let holds = |(start, len, _): &&(u64, u64, u64)| address.checked_sub(*start).is_some_and(|at| at < *len);
        let (start, len, offset) = pieces.iter().find(holds)?;
        let place = |within: u64| usize::try_from(offset.checked_add(within)?).ok();
        self.data.get(place(address - start)?..place(*len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inlined_function_without_a_name_is_unknown() {
        assert_eq!(inlined_name(Some("_ZN6kernel3map17h0123456789abcdefE")), "kernel::map");
        assert_eq!(inlined_name(None), UNKNOWN);
    }
}
