//! Resolves stacks: from the words of a stack to its frames with their functions. Stage: between symbolize and
//! everything that shows stacks.
//!
//! In: the words of stacks, and symbols. Out: for each stack its frames, innermost first; for each address the
//! functions that are there, with their lines. [`walk`](mod@crate::fold::walk) decides which frames a stack has, and
//! the symbols decide whether a candidate is the caller. Each address is looked up once. Every verb, page and export
//! that shows more than names takes its stacks from here; [`crate::fold`] takes only the functions, because it counts
//! names.

use crate::by_address::ByAddress;
use crate::fold::walk::{RUNNING, Step, marker_name, walk};
use crate::symbols::elf::{Inlined, Location};
use crate::symbols::name::clean;
use crate::symbols::{INLINED, Symbols, UNKNOWN, short};
use kprof_format::marker::Marker;
use std::borrow::Cow;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, without a mark.
    pub name: String,
    /// The number of functions that contain it at this address; 0 if it is not inlined.
    pub depth: u32,
    /// Whether it is an inlined function of a library.
    pub is_library: bool,
    /// The source line in this function.
    pub location: Option<Location>,
}

impl Function {
    /// Whether it is inlined at this address.
    pub fn is_inlined(&self) -> bool {
        self.depth > 0
    }

    /// The name with the mark of inlined functions; with `with_line` also file and line.
    pub fn shown(&self, with_line: bool) -> String {
        let mark = if self.is_inlined() { INLINED } else { "" };
        match self.location.as_ref().filter(|_| with_line) {
            Some(place) => format!("{}{mark} {}:{}", self.name, short(&place.file), place.line),
            None => format!("{}{mark}", self.name),
        }
    }
}

/// What is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the symbol that contains it; `None` if there is none.
    pub symbol: Option<usize>,
    /// The functions there, innermost first; at least one. Without a symbol it is `[unknown]`.
    pub functions: Vec<Function>,
    /// Of how many functions the code of the outermost one is, which is 1 if the linker has merged none.
    pub merged: usize,
}

/// Looks up an address of the running kernel.
pub fn place(symbols: &Symbols, address: u64) -> Place {
    let Some(number) = symbols.find(address) else {
        let unknown = Function { name: UNKNOWN.to_owned(), depth: 0, is_library: false, location: None };
        return Place { symbol: None, functions: vec![unknown], merged: 1 };
    };
    let inlined = symbols.inlined(address);
    let depths = (0..inlined.len() as u32).rev();
    let function = |(Inlined { name, location, is_library }, depth): (Inlined, u32)| {
        let name = name.as_deref().map_or_else(|| symbols.function(number), |name| symbols.shown(name));
        Function { name: clean(&name).into_owned(), depth, is_library, location }
    };
    let functions = inlined.into_iter().zip(depths).map(function).collect();
    Place { symbol: Some(number), functions, merged: symbols.functions(number) }
}

/// The name of a function, marked if its code is that of several functions: each of them may be the one that ran.
pub fn marked(name: &str, merged: usize) -> Cow<'_, str> {
    if merged > 1 { format!("{name} (1 of {merged} names)").into() } else { name.into() }
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'a> {
    /// An address, and what is there.
    At(u64, &'a Place),
    /// An entry into the kernel, or another marker.
    Marker(Marker),
    /// No instruction is known, because the CPU has published only its last entry.
    Running,
    /// The only frame of a stack that has none.
    Nothing,
}

impl Frame<'_> {
    /// The name of a frame without an address.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Marker(marker) => marker_name(*marker).into(),
            Self::Running => RUNNING.into(),
            Self::At(..) | Self::Nothing => UNKNOWN.into(),
        }
    }
}

/// Resolves stacks, and keeps what it has looked up.
pub struct Resolver<'a> {
    /// The names.
    pub symbols: &'a Symbols,
    places: ByAddress<Place>,
    lacking: ByAddress<bool>,
}

impl<'a> Resolver<'a> {
    /// A resolver that knows no address yet.
    pub fn new(symbols: &'a Symbols) -> Self {
        Self { symbols, places: ByAddress::default(), lacking: ByAddress::default() }
    }

    /// Calls `frame` for each frame of a stack, innermost first, at least once. With `user` false the stack ends where
    /// user code begins.
    pub fn frames(&mut self, words: &[u64], user: bool, mut frame: impl FnMut(Frame<'_>)) {
        let Self { symbols, places, lacking } = self;
        let lacks = |sampled| *lacking.entry(sampled).or_insert_with(|| symbols.lacks_frame(sampled));
        let mut has_frame = false;
        walk(words, user, lacks, |step| {
            has_frame = true;
            frame(match step {
                Step::Address(address) => {
                    Frame::At(address, places.entry(address).or_insert_with(|| place(symbols, address)))
                }
                Step::Interrupted(address) => {
                    let known = symbols.interrupted(address);
                    Frame::At(known, places.entry(known).or_insert_with(|| place(symbols, known)))
                }
                Step::Marker(marker) => Frame::Marker(marker),
                Step::Running => Frame::Running,
            });
        });
        if !has_frame {
            frame(Frame::Nothing);
        }
    }

    /// The functions at all addresses that were looked up.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.places.values().filter(|place| place.symbol.is_some()).flat_map(|place| &place.functions)
    }

    /// What is at an address.
    pub fn at(&mut self, address: u64) -> &Place {
        let symbols = self.symbols;
        self.places.entry(address).or_insert_with(|| place(symbols, address))
    }
}
