//! Places: the frames of all stacks, each frame with what viewers show of it. Stage: output.
//!
//! In: the stacks of the samples, and symbols. Out: numbers of places, outermost first, for each stack. A place is a
//! frame at an address: its name, how deeply it is inlined, what kind of code it is, its file and line. Each address is
//! looked up once.

use crate::by_address::ByAddress;
use crate::fold::frames::{FrameId, Frames, UNKNOWN};
use crate::resolve::{self, Frame, Resolver};
use crate::stacks::{StackId, Stacks};
use crate::state::State;
use crate::symbols::Symbols;
use kprof_format::marker::Marker;
use std::collections::HashMap;

/// What kind of code a frame is. Viewers show each kind in its own colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The kernel.
    Kernel,
    /// An interrupt or exception, and what it calls.
    Interrupt,
    /// User space.
    User,
    /// The idle task.
    Idle,
}

/// A frame at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The name of the function.
    pub function: FrameId,
    /// The name that is shown: with a mark if the function is inlined, and with file and line if the user asked for
    /// them.
    pub shown: FrameId,
    /// How deeply the function is inlined at this address: the number of functions that contain it there, 0 if it is
    /// not inlined.
    pub depth: u32,
    /// The address; 0 for frames without one, such as `[syscall]`.
    pub address: u64,
    /// The first address and the name of the function that contains the code.
    pub symbol: Option<(u64, FrameId)>,
    /// The image: 0 is the kernel, n is image n of [`Places::images`].
    pub image: u32,
    /// File and line.
    pub line: Option<(FrameId, u32)>,
    /// What kind of code it is.
    pub kind: Kind,
}

/// An image other than the kernel.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its name in the profile.
    pub name: String,
    /// Its build id, in hex.
    pub build_id: Option<String>,
    /// The first address of its code.
    pub start: u64,
}

/// The frames of all stacks.
#[derive(Default)]
pub struct Places {
    /// Names of functions and files.
    pub names: Frames,
    /// All places.
    pub places: Vec<Place>,
    /// Programs and modules.
    pub images: Vec<Image>,
    numbers: HashMap<(u32, Kind), u32>,
    /// The frames at each address, innermost first. Their kind is not known yet, because it depends on the stack.
    bare: Vec<Place>,
    by_address: ByAddress<(u32, u32)>,
    by_marker: HashMap<String, (u32, u32)>,
    /// Where the frames of each stack begin in `joined`, and how many there are; by stack.
    starts: Vec<(u32, u32)>,
    joined: Vec<u32>,
    /// What the CPU was doing, by stack.
    states: Vec<State>,
}

impl Places {
    /// Looks up these stacks, of which any may be given several times.
    pub fn new(given: impl Iterator<Item = StackId>, stacks: &Stacks, symbols: &Symbols, user: bool) -> Self {
        let states = (0..stacks.len()).map(|stack| State::of(stacks.traits(stack as StackId))).collect();
        let mut places = Self { starts: vec![(0, 0); stacks.len()], states, ..Self::default() };
        let (mut resolver, mut words, mut frames) = (Resolver::new(symbols), Vec::new(), Vec::new());
        for stack in given {
            if places.starts[stack as usize].1 > 0 {
                continue;
            }
            stacks.words(stack, &mut words);
            frames.clear();
            places.resolve(&words, &mut resolver, user, &mut frames);
            let is_idle = places.state(stack) == State::Idle;
            let start = places.joined.len() as u32;
            let mut kind = Kind::Kernel;
            for (bare, marker) in frames.iter().rev() {
                let is_user = places.bare[*bare as usize].kind == Kind::User;
                kind = match marker {
                    _ if is_idle => Kind::Idle,
                    Some(Marker::Interrupt(_) | Marker::Exception(_)) => Kind::Interrupt,
                    Some(Marker::Syscall) => Kind::Kernel,
                    _ if is_user => Kind::User,
                    _ if kind == Kind::User => Kind::Kernel,
                    _ => kind,
                };
                let number = places.number(*bare, kind);
                places.joined.push(number);
            }
            places.starts[stack as usize] = (start, places.joined.len() as u32 - start);
        }
        places.bare = Vec::new();
        places.by_address = ByAddress::default();
        places
    }

    /// The places of a stack, outermost first; at least one.
    pub fn of(&self, stack: StackId) -> &[u32] {
        let (start, length) = self.starts[stack as usize];
        &self.joined[start as usize..(start + length) as usize]
    }

    /// What the CPU was doing when it had this stack.
    pub fn state(&self, stack: StackId) -> State {
        self.states[stack as usize]
    }

    /// The stacks that were given.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.starts.iter().zip(0..).filter(|((_, length), _)| *length > 0).map(|(_, stack)| stack)
    }

    fn number(&mut self, bare: u32, kind: Kind) -> u32 {
        let next = self.places.len() as u32;
        let number = *self.numbers.entry((bare, kind)).or_insert(next);
        if number == next {
            self.places.push(Place { kind, ..self.bare[bare as usize].clone() });
        }
        number
    }

    /// Appends the frames of a stack, innermost first, with the marker of those that are markers.
    fn resolve(
        &mut self,
        words: &[u64],
        resolver: &mut Resolver<'_>,
        user: bool,
        frames: &mut Vec<(u32, Option<Marker>)>,
    ) {
        let symbols = resolver.symbols;
        let mut push = |(from, count): (u32, u32), marker| frames.extend((from..from + count).map(|at| (at, marker)));
        resolver.frames(words, user, |frame| match frame {
            Frame::At(address, place) => push(self.address(address, place, symbols), None),
            Frame::Marker(marker) => push(self.marker(&frame.name()), Some(marker)),
            Frame::Running | Frame::Nothing => push(self.marker(&frame.name()), None),
        });
    }

    fn marker(&mut self, name: &str) -> (u32, u32) {
        if let Some(found) = self.by_marker.get(name) {
            return *found;
        }
        let shown = self.names.named(name);
        let found = (self.bare.len() as u32, 1);
        self.bare.push(nameless(shown, 0, Kind::Kernel));
        self.by_marker.insert(name.to_owned(), found);
        found
    }

    fn address(&mut self, address: u64, place: &resolve::Place, symbols: &Symbols) -> (u32, u32) {
        if let Some(found) = self.by_address.get(&address) {
            return *found;
        }
        let from = self.bare.len() as u32;
        match place.symbol {
            None => {
                let unknown = self.names.named(UNKNOWN);
                self.bare.push(nameless(unknown, address, kind(address)));
            }
            Some(number) => {
                let function = self.names.named(&symbols.function(number));
                let symbol = Some((symbols.start(number), function));
                let image = self.image(address, symbols);
                for at in &place.functions {
                    let function = self.names.named(&at.name);
                    let shown = self.names.named(&at.shown(symbols.with_lines));
                    let line = at.location.as_ref().map(|place| (self.names.named(&place.file), place.line));
                    let (kind, depth) = (kind(address), at.depth);
                    self.bare.push(Place { function, shown, depth, address, symbol, image, line, kind });
                }
            }
        }
        let found = (from, self.bare.len() as u32 - from);
        self.by_address.insert(address, found);
        found
    }

    fn image(&mut self, address: u64, symbols: &Symbols) -> u32 {
        let Some(placed) = symbols.image_at(address) else { return 0 };
        if let Some(at) = self.images.iter().position(|image| image.name == placed.name) {
            return at as u32 + 1;
        }
        let build_id = placed.symbols.elf.as_ref().and_then(|elf| elf.build_id.clone());
        self.images.push(Image { name: placed.name.clone(), build_id, start: placed.text.0 });
        self.images.len() as u32
    }
}

fn kind(address: u64) -> Kind {
    if address >> 63 == 0 { Kind::User } else { Kind::Kernel }
}

fn nameless(shown: FrameId, address: u64, kind: Kind) -> Place {
    Place { function: shown, shown, depth: 0, address, symbol: None, image: 0, line: None, kind }
}
