//! Frames: names with small numbers, and the memory of which address gave which. Stage: fold.
//!
//! In: the steps of a walk. Out: numbers of frames, innermost first. Each address is looked up once, each name kept once.

use super::walk::{Step, marker_name, walk};
use crate::symbols::{Symbols, name::clean};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of a frame's name.
pub type FrameId = u32;

/// The frame for what no symbol covers.
pub const UNKNOWN: &str = "[unknown]";

/// Hash for addresses: one folded multiplication.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= crate::stacks::hash(bytes);
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(value ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }
}

/// A map from addresses.
pub type ByAddress<V> = HashMap<u64, V, BuildHasherDefault<AddressHasher>>;

/// The names of all frames.
#[derive(Debug, Default)]
pub struct Frames {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, FrameId>,
    /// Lookup address to the place of its frames in `found`.
    by_address: ByAddress<(u32, u32)>,
    found: Vec<FrameId>,
}

impl Frames {
    /// The number of the frame with this name.
    pub fn named(&mut self, name: &str) -> FrameId {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as FrameId;
        let name: Box<str> = clean(name.to_owned()).into();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The name of a frame.
    pub fn name(&self, id: FrameId) -> &str {
        &self.names[id as usize]
    }

    /// The name of the function alone, without a mark for inlining.
    pub fn function(&self, id: FrameId) -> &str {
        let name = self.name(id);
        name.strip_suffix(crate::symbols::INLINED).unwrap_or(name)
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Appends the frames of a stack to `ids`, innermost first; `[unknown]` if it has none at all.
    pub fn resolve(&mut self, words: &[u64], user: bool, symbols: &Symbols, ids: &mut Vec<FrameId>) {
        let before = ids.len();
        walk(words, user, |step| match step {
            Step::Address(address) => self.address(address, symbols, ids),
            Step::Candidate { address, sampled } if symbols.lacks_frame(sampled) => self.address(address, symbols, ids),
            Step::Candidate { .. } => {}
            Step::Marker(marker) => ids.push(self.named(&marker_name(marker))),
        });
        if ids.len() == before {
            ids.push(self.named(UNKNOWN));
        }
    }

    fn address(&mut self, address: u64, symbols: &Symbols, ids: &mut Vec<FrameId>) {
        let (from, to) = match self.by_address.get(&address) {
            Some(place) => *place,
            None => self.look_up(address, symbols),
        };
        ids.extend_from_slice(&self.found[from as usize..to as usize]);
    }

    #[cold]
    fn look_up(&mut self, address: u64, symbols: &Symbols) -> (u32, u32) {
        let from = self.found.len() as u32;
        symbols.frames_at(address, &mut |name| {
            let number = self.named(name);
            self.found.push(number);
        });
        let place = (from, self.found.len() as u32);
        self.by_address.insert(address, place);
        place
    }

    /// The place of each frame in the order of `name;`.
    pub fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        let key = |number: usize| self.names[number].bytes().chain([b';']);
        order.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number] = rank as u32;
        }
        ranks
    }
}
