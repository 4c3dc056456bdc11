//! Symbolize: from addresses to names. The second stage of the host tool.
//!
//! In: a symbol file (`nm` text or the kernel's ELF) and addresses. Out: the names of the frames at an address; the
//! same input always gives the same names. A kernel image that does not belong to the profile is refused.

pub mod callers;
pub mod cfi;
pub mod check;
pub mod debug_file;
pub mod elf;
pub mod frame;
pub mod image;
pub mod library;
pub mod name;
pub mod nm;
pub mod plausible;
pub mod program;
pub mod stub;
pub mod table;
pub mod users;

use crate::error::Error;
use crate::problems::Problems;
use crate::relocations::{LOWER_HALF, NOWHERE, is_in_lower_half};
use elf::{Elf, Inlined};
use frame::Frame;
use image::{Images, Placed};
use std::borrow::Cow;
use std::io::Read;
use table::Table;

/// The suffix of the name of an inlined frame.
pub const INLINED: &str = " (inlined)";
/// The frame for an address that no symbol covers.
pub const UNKNOWN: &str = "[unknown]";

/// Length of a prologue, in which the frame pointer is not set yet: `push rbp` (1 byte) and `mov rbp, rsp` (3 bytes).
const PROLOGUE_BYTES: u64 = 4;
/// How many bytes of code are decoded in a function of unknown size.
const MAX_CODE_BYTES: u64 = 4096;

/// Which inlined frames are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inlines {
    /// All of them.
    #[default]
    All,
    /// The kernel's own; library code is charged to the function that it was inlined into ([`library`]).
    Own,
    /// None: only functions that have a symbol.
    None,
}

/// Whether a function has a stack frame of its own at one of its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnFrame {
    /// It has one, or its code does not tell where the return address of the caller is.
    Present,
    /// It has none there.
    Lacking,
    /// There are only symbols, and they do not tell.
    NotKnown,
}

/// Where names come from.
pub struct Symbols {
    /// The code symbols.
    pub table: Table,
    /// The image with its DWARF, if the symbols are from an ELF file.
    pub elf: Option<Elf>,
    /// The difference by which the running kernel's addresses are higher than the file's.
    pub slide: u64,
    /// Whether `slide` was computed from the anchors.
    pub slide_is_solved: bool,
    /// Which inlined frames are shown.
    pub inlines: Inlines,
    /// Whether file and line are added to every name.
    pub with_lines: bool,
    /// Whether all instances of a generic function get one name.
    pub merge_generics: bool,
    /// Whether addresses in the user half have no symbol, unless they are in the kernel's own code or in an image.
    pub user_is_foreign: bool,
    /// The range of the kernel's code, if the profile has it.
    pub kernel_text: Option<(u64, u64)>,
    /// Programs by task, if the profile names no images.
    pub users: users::Users,
    /// Programs and modules.
    images: Images,
    /// Address ranges of images without symbols.
    nameless: Vec<(u64, u64)>,
}

impl Symbols {
    /// Opens a symbol file and detects its kind.
    ///
    /// # Errors
    /// If the file cannot be read or has no code symbols.
    pub fn open(file: &str, problems: &mut Problems) -> Result<Self, Error> {
        Self::open_with(file, None, problems)
    }

    /// As [`open`](Self::open), with the debug file of an ELF image.
    ///
    /// # Errors
    /// As [`open`](Self::open); if the debug file cannot be used.
    pub fn open_with(file: &str, debug: Option<&str>, problems: &mut Problems) -> Result<Self, Error> {
        let mut reader = crate::read::open(file)?;
        let mut head = vec![0; 4096];
        let got = reader.read(&mut head).map_err(|error| Error::io(file, "read", error))?;
        head.truncate(got);
        Self::read_with(file, head, reader, debug, problems)
    }

    /// Reads symbols from any reader whose first bytes are `head`; `file` is only used as a name in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(file: &str, head: Vec<u8>, reader: impl Read, problems: &mut Problems) -> Result<Self, Error> {
        Self::read_with(file, head, reader, None, problems)
    }

    fn read_with(
        file: &str,
        mut head: Vec<u8>,
        mut reader: impl Read,
        debug: Option<&str>,
        problems: &mut Problems,
    ) -> Result<Self, Error> {
        let (table, elf) = if head.starts_with(elf::MAGIC) {
            reader.read_to_end(&mut head).map_err(|error| Error::io(file, "read", error))?;
            let (table, elf) = elf::read(file, head, debug, problems)?;
            (table, Some(elf))
        } else {
            if debug.is_some() {
                return Err(Error::Usage(format!(
                    "--debug-file belongs to an ELF file, and {file} is a list of symbols"
                )));
            }
            (nm::read(file, head, reader, problems)?, None)
        };
        let (with_lines, merge_generics) = (false, false);
        let (images, nameless, kernel_text) = (Images::default(), Vec::new(), None);
        let (slide, slide_is_solved, user_is_foreign) = (0, false, false);
        Ok(Self {
            table,
            elf,
            slide,
            slide_is_solved,
            inlines: Inlines::All,
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
            Some((first, image)) => {
                image.symbols.table.find(address.wrapping_sub(image.symbols.slide)).map(|number| first + number)
            }
            None if self.is_foreign(address) => None,
            None => self.table.find(address.wrapping_sub(self.slide)).filter(|number| !self.is_past(*number, address)),
        }
    }

    /// Whether the kernel's text ends between a symbol without a size and an address.
    fn is_past(&self, number: usize, address: u64) -> bool {
        self.is_unsized(number) && self.kernel_text.is_some_and(|(_, end)| self.start(number) < end && end <= address)
    }

    /// The image with this name.
    pub fn image_mut(&mut self, name: &str) -> Option<&mut Placed> {
        self.images.named_mut(name)
    }

    /// Whether an address is certainly not the kernel's. It must then not get the name of the nearest kernel symbol.
    fn is_foreign(&self, address: u64) -> bool {
        let within = |range: &(u64, u64)| range.0 <= address && address < range.1;
        let is_user = self.user_is_foreign && address >> 63 == 0 && !self.kernel_text.as_ref().is_some_and(within);
        let is_unknown = address.wrapping_sub(NOWHERE) < 2;
        // The symbols are those of the upper half.
        let is_elsewhere = is_in_lower_half(address) && address.wrapping_sub(self.slide) >= LOWER_HALF;
        is_user || self.nameless.iter().any(within) || is_unknown || is_elsewhere
    }

    /// Whether an address is in the kernel half and in no image other than the kernel.
    pub fn is_of_the_kernel(&self, address: u64) -> bool {
        self.images.at(address).is_none() && !self.is_foreign(address)
    }

    /// Whether the symbol with this number has no known size.
    pub fn is_unsized(&self, number: usize) -> bool {
        let (symbols, number) = self.from(number);
        symbols.table.get(number).size == 0
    }

    /// Whether an address of the kernel is further from the symbol before it than a symbol without a size reaches.
    pub fn is_far(&self, address: u64) -> bool {
        let place = address.wrapping_sub(self.slide);
        let before = self.table.nearest(place).map(|number| self.table.get(number));
        before.is_some_and(|symbol| symbol.size == 0 && place - symbol.start >= table::FAR_BYTES)
    }

    /// Adds the range of an image that the profile names but that has no symbols.
    pub fn add_nameless(&mut self, range: (u64, u64)) {
        self.nameless.push(range);
    }

    /// Adds an image other than the kernel.
    ///
    /// # Errors
    /// The name of an image whose range overlaps.
    pub fn add_image(&mut self, image: Placed) -> Result<(), String> {
        self.images.add(self.len(), image)
    }

    /// The number of symbols, including those of all images.
    pub fn len(&self) -> usize {
        self.table.len() + self.images.symbols()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The symbols of the image that an address belongs to.
    fn at(&self, address: u64) -> &Self {
        self.images.at(address).map_or(self, |(_, image)| &image.symbols)
    }

    /// The set of symbols that contains the symbol with this number, and its number in that set.
    fn from(&self, number: usize) -> (&Self, usize) {
        match self.images.of_symbol(number) {
            Some((first, image)) => (&image.symbols, number - first),
            None => (self, number),
        }
    }

    /// The start of the function with this number in the running kernel, and its code if that is x86_64.
    pub fn code(&self, number: usize) -> Option<(u64, &[u8])> {
        let (symbols, number) = self.from(number);
        let (symbol, elf) = (symbols.table.get(number), symbols.elf.as_ref().filter(|elf| elf.is_x86_64())?);
        let next = if number + 1 < symbols.table.len() { symbols.table.get(number + 1).start } else { u64::MAX };
        let size = if symbol.size > 0 { symbol.size } else { (next - symbol.start).min(MAX_CODE_BYTES) };
        let code = elf.code(symbol.start)?;
        Some((symbol.start.wrapping_add(symbols.slide), &code[..code.len().min(size as usize)]))
    }

    /// The address of the symbol with this number in the running kernel.
    pub fn start(&self, number: usize) -> u64 {
        let (symbols, number) = self.from(number);
        symbols.table.get(number).start.wrapping_add(symbols.slide)
    }

    /// The program or module that an address belongs to.
    pub fn image_at(&self, address: u64) -> Option<&Placed> {
        self.images.at(address).map(|(_, image)| image)
    }

    /// The images that have symbols.
    pub fn images(&self) -> impl Iterator<Item = &Placed> {
        self.images.all()
    }

    /// The name of an inlined function in the form that is shown.
    pub fn shown<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.merge_generics { Cow::Owned(name::merge_generics(name)) } else { Cow::Borrowed(name) }
    }

    /// The image that an address belongs to: `kernel`, `user`, or the image's name in the profile.
    pub fn image_name(&self, address: u64) -> &str {
        let other = if address >> 63 == 1 { "kernel" } else { "user" };
        self.images.at(address).map_or(other, |(_, image)| &image.name)
    }

    /// Whether the kernel's symbols or those of an image can give source lines.
    pub fn has_lines(&self) -> bool {
        self.elf.is_some() || self.images.any_elf()
    }

    /// Whether an address can have more frames than its symbol, or other names.
    pub fn has_more_than_the_table(&self) -> bool {
        self.has_lines() && (self.with_lines || self.inlines != Inlines::None)
    }

    /// The name of the function with this number.
    pub fn function(&self, number: usize) -> Cow<'_, str> {
        let name = self.plain_name(number);
        if self.merge_generics { Cow::Owned(name::merge_generics(&name)) } else { name }
    }

    /// The name of the function with this number, including the types of a generic instance.
    pub fn plain_name(&self, number: usize) -> Cow<'_, str> {
        let (symbols, number) = self.from(number);
        name::frame_name(symbols.table.name(number))
    }

    /// Of how many functions the code of the function with this number is. Each of them may be the one that ran.
    pub fn functions(&self, number: usize) -> usize {
        let (symbols, at) = self.from(number);
        if symbols.table.other_names(at).next().is_none() {
            return 1;
        }
        let mut names = vec![self.function(number).into_owned()];
        names.extend(symbols.table.other_names(at).map(|raw| self.shown(&name::frame_name(raw)).into_owned()));
        name::functions(names)
    }

    /// The frames at an address of the running kernel, innermost first; at least one.
    pub fn inlined(&self, address: u64) -> Vec<Inlined> {
        let Self { elf, slide, .. } = self.at(address);
        let mut frames = elf.as_ref().map(|elf| elf.frames(address.wrapping_sub(*slide))).unwrap_or_default();
        if frames.is_empty() {
            frames.push(Inlined { name: None, location: None, is_library: false });
        }
        match self.inlines {
            Inlines::All => {}
            Inlines::Own => frames.retain(|frame| !frame.is_library),
            Inlines::None => drop(frames.drain(..frames.len() - 1)),
        }
        frames
    }

    /// The address by which an interrupted instruction is looked up: one lower if a function ends right before it. The
    /// last instruction of that function was `int3` or `hlt`, of which the processor saves the address after it.
    pub fn interrupted(&self, address: u64) -> u64 {
        let before = address.saturating_sub(1);
        if self.find(address).is_none() && self.find(before).is_some() { before } else { address }
    }

    /// Whether at this instruction the frame pointer is still, or again, that of the caller, and the caller's return
    /// address is where a candidate is taken from. This is decided by the image's call frame information, otherwise by
    /// its instructions (of x86_64 only: without that information, other code has no answer). With only a list of
    /// symbols: whether the instruction is in the prologue of the function or is its last byte.
    pub fn lacks_frame(&self, instruction: u64) -> bool {
        self.own_frame(instruction) == OwnFrame::Lacking
    }

    /// As [`lacks_frame`](Self::lacks_frame), or that only the code of the kernel could tell.
    pub fn own_frame(&self, instruction: u64) -> OwnFrame {
        let instruction = self.interrupted(instruction);
        let own = self.at(instruction);
        let place = instruction.wrapping_sub(own.slide);
        let Some(number) = own.table.find(place) else { return OwnFrame::Present };
        let symbol = own.table.get(number);
        let offset = place - symbol.start;
        match own.elf.as_ref().and_then(|elf| elf.code(symbol.start).map(|code| (elf, code))) {
            Some((elf, code)) => {
                let size = if symbol.size > 0 { symbol.size } else { MAX_CODE_BYTES };
                let code = &code[..code.len().min(size as usize)];
                let follow = || if elf.is_x86_64() { frame::follow(code, symbol.start, place) } else { None };
                let frame = elf.cfi.frame(place).or_else(follow);
                match frame {
                    Some(Frame::CallerOnTop | Frame::CallerAboveRbp) => OwnFrame::Lacking,
                    _ => OwnFrame::Present,
                }
            }
            None if offset < PROLOGUE_BYTES || (symbol.size > 0 && offset == symbol.size - 1) => OwnFrame::Lacking,
            None => OwnFrame::NotKnown,
        }
    }
}

/// The last three components of a path: enough to recognise it, and short enough to read.
pub(crate) fn short(path: &str) -> &str {
    path.rmatch_indices('/').nth(2).map_or(path, |(at, _)| &path[at + 1..])
}
