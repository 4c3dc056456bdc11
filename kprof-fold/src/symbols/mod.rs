//! Symbolize: from addresses to names. The second stage of the host end.
//!
//! In: a symbol file (`nm` text or the kernel's ELF) and addresses. Out: the names of the frames at an address, the
//! same for the same input always. A kernel image that does not belong to the profile is refused.

pub mod cfi;
pub mod check;
pub mod elf;
pub mod frame;
pub mod image;
pub mod name;
pub mod nm;
pub mod plausible;
pub mod table;
pub mod users;

use crate::error::Error;
use crate::problems::Problems;
use crate::relocations::NOWHERE;
use elf::{Elf, Inlined};
use frame::Frame;
use image::{Images, Placed};
use std::borrow::Cow;
use std::io::Read;
use table::Table;

/// What stands behind the name of an inlined frame.
pub const INLINED: &str = " (inlined)";
/// The frame for what no symbol covers.
pub const UNKNOWN: &str = "[unknown]";

/// From the start of a function up to here its frame pointer is not set: `push rbp` (1 byte), `mov rbp, rsp` (3 bytes).
const PROLOGUE_BYTES: u64 = 4;
/// What is followed of a function whose size nobody says.
const MAX_CODE_BYTES: u64 = 4096;

/// Where names come from.
pub struct Symbols {
    /// The code symbols.
    pub table: Table,
    /// The image with its DWARF, where the symbols are from an ELF file.
    pub elf: Option<Elf>,
    /// What the kernel's addresses are higher than the file's.
    pub slide: u64,
    /// Leave out inlined frames.
    pub without_inlined: bool,
    /// Add file and line to every name.
    pub with_lines: bool,
    /// One name for all instances of a generic function.
    pub merge_generics: bool,
    /// Addresses of the user's half are nobody's, unless they are the kernel's own code or an image's.
    pub user_is_foreign: bool,
    /// The range of the kernel's code, where the profile says it.
    pub kernel_text: Option<(u64, u64)>,
    /// Programs by task, where the profile names no images.
    pub users: users::Users,
    /// Programs and modules.
    images: Images,
    /// Ranges of those that no symbols were given for.
    nameless: Vec<(u64, u64)>,
}

impl Symbols {
    /// Opens a symbol file and finds out which kind it is.
    ///
    /// # Errors
    /// The file cannot be read or has no code symbols.
    pub fn open(file: &str, problems: &mut Problems) -> Result<Self, Error> {
        let mut reader = crate::read::open(file)?;
        let mut head = vec![0; 4096];
        let got = reader.read(&mut head).map_err(|error| Error::io(file, "read", error))?;
        head.truncate(got);
        Self::read(file, head, reader, problems)
    }

    /// Reads symbols from any reader whose first bytes are `head`; `file` is only a name.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(file: &str, mut head: Vec<u8>, mut reader: impl Read, problems: &mut Problems) -> Result<Self, Error> {
        let (table, elf) = if head.starts_with(elf::MAGIC) {
            reader.read_to_end(&mut head).map_err(|error| Error::io(file, "read", error))?;
            let (table, elf) = elf::read(file, head)?;
            (table, Some(elf))
        } else {
            (nm::read(file, head, reader, problems)?, None)
        };
        let (without_inlined, with_lines, merge_generics) = (false, false, false);
        let (images, nameless, kernel_text) = (Images::default(), Vec::new(), None);
        let (slide, user_is_foreign) = (0, false);
        Ok(Self {
            table,
            elf,
            slide,
            without_inlined,
            with_lines,
            merge_generics,
            user_is_foreign,
            kernel_text,
            users: users::Users::default(),
            images,
            nameless,
        })
    }

    /// The number of the symbol that an address of the running kernel belongs to.
    #[inline]
    pub fn find(&self, address: u64) -> Option<usize> {
        match self.images.at(address) {
            Some((first, image)) => image.symbols.find(address).map(|number| first + number),
            None if self.is_foreign(address) => None,
            None => self.table.find(address.wrapping_sub(self.slide)),
        }
    }

    /// Whether an address is surely not the kernel's: then it must not take the name of the kernel's nearest symbol.
    fn is_foreign(&self, address: u64) -> bool {
        let within = |range: &(u64, u64)| range.0 <= address && address < range.1;
        let is_user = self.user_is_foreign && address >> 63 == 0 && !self.kernel_text.as_ref().is_some_and(within);
        is_user || self.nameless.iter().any(within) || address.wrapping_sub(NOWHERE) < 2
    }

    /// Whether an address of the kernel's half is in no image beside the kernel.
    pub fn is_of_the_kernel(&self, address: u64) -> bool {
        self.images.at(address).is_none() && !self.is_foreign(address)
    }

    /// Whether nobody says how long the symbol with this number is.
    pub fn is_unsized(&self, number: usize) -> bool {
        let (symbols, number) = self.from(number);
        symbols.table.get(number).size == 0
    }

    /// The profile names an image in this range, and there are no symbols for it.
    pub fn add_nameless(&mut self, range: (u64, u64)) {
        self.nameless.push(range);
    }

    /// Adds an image beside the kernel.
    ///
    /// # Errors
    /// The name of an image in the same place.
    pub fn add_image(&mut self, image: Placed) -> Result<(), String> {
        self.images.add(self.len(), image)
    }

    /// How many symbols there are, those of all images included.
    pub fn len(&self) -> usize {
        self.table.len() + self.images.symbols()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The symbols of the image that an address belongs to.
    fn at(&self, address: u64) -> &Self {
        self.images.at(address).map_or(self, |(_, image)| &image.symbols)
    }

    /// The symbols that the symbol with this number is from, and its number there.
    fn from(&self, number: usize) -> (&Self, usize) {
        match self.images.of_symbol(number) {
            Some((first, image)) => (&image.symbols, number - first),
            None => (self, number),
        }
    }

    /// Where the running kernel has the symbol with this number.
    pub fn start(&self, number: usize) -> u64 {
        let (symbols, number) = self.from(number);
        symbols.table.get(number).start.wrapping_add(symbols.slide)
    }

    /// The program or module that an address belongs to.
    pub fn image_at(&self, address: u64) -> Option<&Placed> {
        self.images.at(address).map(|(_, image)| image)
    }

    /// The name of an inlined function as it is to be shown.
    pub fn shown<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.merge_generics { Cow::Owned(name::merge_generics(name)) } else { Cow::Borrowed(name) }
    }

    /// The image that an address belongs to: `kernel`, `user`, or the name that the profile has for it.
    pub fn image_name(&self, address: u64) -> &str {
        let other = if address >> 63 == 1 { "kernel" } else { "user" };
        self.images.at(address).map_or(other, |(_, image)| &image.name)
    }

    /// Whether the kernel's symbols or those of an image can have lines.
    pub fn has_lines(&self) -> bool {
        self.elf.is_some() || self.images.any_elf()
    }

    /// Whether an address can have more frames, or other names, than its symbol has.
    pub fn has_more_than_the_table(&self) -> bool {
        self.has_lines() && (self.with_lines || !self.without_inlined)
    }

    /// Calls `frame` with the name of each frame at an address of the running kernel, innermost first.
    pub fn frames_at(&self, address: u64, mut frame: impl FnMut(&str)) {
        let function = match self.find(address) {
            Some(number) => self.function(number),
            None => return frame(UNKNOWN),
        };
        for Inlined { name, location } in self.inlined(address) {
            let mark = if name.is_some() { INLINED } else { "" };
            let name = name.as_deref().map(|name| self.shown(name));
            let name = name.as_deref().unwrap_or(&function);
            match location.filter(|_| self.with_lines) {
                Some(place) => frame(&format!("{name}{mark} {}:{}", short(&place.file), place.line)),
                None => frame(&format!("{name}{mark}")),
            }
        }
    }

    /// The name of the function with this number.
    pub fn function(&self, number: usize) -> Cow<'_, str> {
        let name = self.plain_name(number);
        if self.merge_generics { Cow::Owned(name::merge_generics(&name)) } else { name }
    }

    /// The name of the function with this number, with all that makes an instance of a generic function.
    pub fn plain_name(&self, number: usize) -> Cow<'_, str> {
        let (symbols, number) = self.from(number);
        name::frame_name(symbols.table.name(number))
    }

    /// The frames at an address of the running kernel, innermost first, never none.
    pub fn inlined(&self, address: u64) -> Vec<Inlined> {
        let Self { elf, slide, .. } = self.at(address);
        let mut frames = elf.as_ref().map(|elf| elf.frames(address.wrapping_sub(*slide))).unwrap_or_default();
        if frames.is_empty() {
            frames.push(Inlined { name: None, location: None });
        }
        if self.without_inlined {
            frames.drain(..frames.len() - 1);
        }
        frames
    }

    /// Whether the frame pointer at this instruction is still, or again, that of the caller, and the caller itself is
    /// where a candidate is taken from: by the image's call frame information, else by its instructions. With a list of
    /// symbols only: whether the function has just begun or is at its last byte.
    pub fn lacks_frame(&self, instruction: u64) -> bool {
        let own = self.at(instruction);
        let place = instruction.wrapping_sub(own.slide);
        let Some(number) = own.table.find(place) else { return false };
        let symbol = own.table.get(number);
        let offset = place - symbol.start;
        match own.elf.as_ref().and_then(|elf| elf.code(symbol.start).map(|code| (elf, code))) {
            Some((elf, code)) => {
                let size = if symbol.size > 0 { symbol.size } else { MAX_CODE_BYTES };
                let code = &code[..code.len().min(size as usize)];
                let frame = elf.cfi.frame(place).or_else(|| frame::follow(code, symbol.start, place));
                matches!(frame, Some(Frame::CallerOnTop | Frame::CallerAboveRbp))
            }
            None => offset < PROLOGUE_BYTES || (symbol.size > 0 && offset == symbol.size - 1),
        }
    }
}

/// The last three parts of a path: enough to know it, short enough to read.
fn short(path: &str) -> &str {
    path.rmatch_indices('/').nth(2).map_or(path, |(at, _)| &path[at + 1..])
}
