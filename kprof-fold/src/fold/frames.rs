//! Frames: names with small numbers, and a cache of the frames of each address. Stage: fold.
//!
//! In: the steps of a walk. Out: numbers of frames, innermost first. Each address is looked up once, and each name is
//! stored once.

use super::walk::{CLAIMED, RUNNING, Step, marker_name, walk};
use crate::by_address::ByAddress;
use crate::resolve::{marked, place};
use crate::stacks::{self, Encoding, Stacks, Traits};
use crate::symbols::{Symbols, name::clean};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// The number of a frame. Two frames with the same name are the same frame.
pub type FrameId = u32;

pub use crate::symbols::UNKNOWN;

/// Typical number of addresses that a new stack adds: most of its addresses are also in other stacks.
const ADDRESSES_PER_STACK: usize = 1;
/// Maximum number of addresses for which memory is reserved in advance: one MiB.
const MAX_RESERVED: usize = 1 << 16;

/// This bit is set in the value of the map if an address has several frames.
const MANY: u32 = 1 << 31;

/// The names of all frames.
#[derive(Debug)]
pub struct Frames {
    /// All names, one after the other; `ends` says where each of them ends.
    text: String,
    ends: Vec<usize>,
    /// The same names in a hash table, which finds the number of a name.
    numbers: Stacks,
    /// For each symbol number the number of its frame plus one; 0 if that frame was not needed yet.
    by_symbol: Vec<FrameId>,
    /// Maps a lookup address to its only frame or, with [`MANY`] set, to the index of its frames in `found`.
    by_address: ByAddress<u32>,
    /// For each address with more than one frame: the number of its frames, then the frames.
    found: Vec<FrameId>,
    /// For the address of a sampled instruction: whether its function has no stack frame of its own at this
    /// instruction.
    lacking: ByAddress<bool>,
    /// Frames whose code is that of several functions, with their number.
    merged: BTreeMap<FrameId, usize>,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            text: String::new(),
            ends: Vec::new(),
            numbers: Stacks::new(Encoding::Words),
            by_symbol: Vec::new(),
            by_address: ByAddress::default(),
            found: Vec::new(),
            lacking: ByAddress::default(),
            merged: BTreeMap::new(),
        }
    }
}

impl Frames {
    /// Reserves memory for the addresses of this many stacks.
    pub fn reserve(&mut self, stacks: usize) {
        self.by_address.reserve((ADDRESSES_PER_STACK * stacks).min(MAX_RESERVED));
    }

    /// The number of the frame with this name.
    pub fn named(&mut self, name: &str) -> FrameId {
        let name = clean(name);
        let hash = stacks::hash(name.as_bytes());
        if let Some((number, _)) = self.numbers.find(name.as_bytes(), hash) {
            return number;
        }
        self.text.push_str(&name);
        self.ends.push(self.text.len());
        self.numbers.insert_bytes(name.as_bytes(), hash, Traits::default())
    }

    /// The name of a frame.
    pub fn name(&self, id: FrameId) -> &str {
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[id as usize]]
    }

    /// Of how many functions the code of this frame is, if it is not only one.
    pub fn merged(&self, id: FrameId) -> Option<usize> {
        self.merged.get(&id).copied()
    }

    /// The name of a frame for people, marked if its code is that of several functions.
    pub fn shown(&self, id: FrameId) -> Cow<'_, str> {
        marked(self.name(id), self.merged(id).unwrap_or(1))
    }

    /// The name of the function, without the suffix for inlined frames.
    pub fn function(&self, id: FrameId) -> &str {
        let name = self.name(id);
        name.strip_suffix(crate::symbols::INLINED).unwrap_or(name)
    }

    /// Frames of user code, except those whose names kernel code has too.
    pub fn of_users_only(&self) -> HashSet<FrameId> {
        let (user, kernel): (Vec<_>, Vec<_>) = self.by_address.iter().partition(|(address, _)| *address >> 63 == 0);
        let frames = |found: Vec<(&u64, &u32)>| -> HashSet<FrameId> {
            found.into_iter().flat_map(|(_, frame)| self.frames_of(frame)).copied().collect()
        };
        let kernel = frames(kernel);
        frames(user).into_iter().filter(|frame| !kernel.contains(frame)).collect()
    }

    /// The frames that `by_address` has for an address.
    fn frames_of<'a>(&'a self, found: &'a u32) -> &'a [FrameId] {
        if found & MANY == 0 {
            return std::slice::from_ref(found);
        }
        let from = (found & !MANY) as usize;
        &self.found[from + 1..][..self.found[from] as usize]
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends the frames of a stack to `ids`, innermost first; `[unknown]` if it has none at all.
    pub fn resolve(&mut self, words: &[u64], traits: Traits, user: bool, symbols: &Symbols, ids: &mut Vec<FrameId>) {
        let before = ids.len();
        if !traits.has_markers() {
            // The common case, which needs no decisions: an instruction, then return addresses.
            let end =
                if user { words.len() } else { words.iter().position(|word| word >> 63 == 0).unwrap_or(words.len()) };
            let mut in_user = false;
            for (at, word) in words[..end].iter().enumerate() {
                in_user |= word >> 63 == 0;
                let claimed = in_user && word >> 63 != 0;
                let address = if claimed { CLAIMED } else { word.saturating_sub(u64::from(at > 0)) };
                self.address(address, symbols, ids);
            }
            return;
        }
        let mut lacking = std::mem::take(&mut self.lacking);
        let lacks = |sampled| *lacking.entry(sampled).or_insert_with(|| symbols.lacks_frame(sampled));
        walk(words, user, lacks, |step| match step {
            Step::Address(address) => self.address(address, symbols, ids),
            Step::Interrupted(address) => {
                self.address(symbols.interrupted(address), symbols, ids);
            }
            Step::Marker(marker) => ids.push(self.named(&marker_name(marker))),
            Step::Running => ids.push(self.named(RUNNING)),
        });
        self.lacking = lacking;
        if ids.len() == before {
            ids.push(self.named(UNKNOWN));
        }
    }

    #[inline]
    fn address(&mut self, address: u64, symbols: &Symbols, ids: &mut Vec<FrameId>) {
        let frame = match self.by_address.get(&address) {
            Some(frame) => *frame,
            None => self.look_up(address, symbols),
        };
        if frame & MANY == 0 {
            ids.push(frame);
        } else {
            let from = (frame & !MANY) as usize;
            let many = self.found[from] as usize;
            ids.extend_from_slice(&self.found[from + 1..from + 1 + many]);
        }
    }

    fn look_up(&mut self, address: u64, symbols: &Symbols) -> u32 {
        let frame = match symbols.find(address) {
            Some(_) if symbols.has_more_than_the_table() => self.with_inlined(address, symbols),
            Some(symbol) => self.of_symbol(symbol, symbols),
            None => self.named(UNKNOWN),
        };
        self.by_address.insert(address, frame);
        frame
    }

    fn with_inlined(&mut self, address: u64, symbols: &Symbols) -> u32 {
        let from = self.found.len();
        self.found.push(0);
        let place = place(symbols, address);
        for function in &place.functions {
            let number = self.named(&function.shown(symbols.with_lines));
            self.found.push(number);
            self.found[from] += 1;
            self.note_merged(number, if function.is_inlined() { 1 } else { place.merged });
        }
        from as u32 | MANY
    }

    fn of_symbol(&mut self, symbol: usize, symbols: &Symbols) -> FrameId {
        if self.by_symbol.is_empty() {
            self.by_symbol.resize(symbols.len(), 0);
        }
        if self.by_symbol[symbol] == 0 {
            let number = self.named(&symbols.function(symbol));
            self.note_merged(number, symbols.functions(symbol));
            self.by_symbol[symbol] = 1 + number;
        }
        self.by_symbol[symbol] - 1
    }

    fn note_merged(&mut self, frame: FrameId, functions: usize) {
        if functions > 1 {
            self.merged.insert(frame, functions);
        }
    }

    /// The order of the frames' names within stacks.
    ///
    /// The numbers rank the texts `name;` and `name` followed by the end, which comes before every byte. No name has a
    /// `;`, so comparing two sequences of these numbers is comparing the bytes of the joined names.
    pub fn ranks(&self) -> Vec<Rank> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        let names: Vec<&[u8]> = (0..self.len()).map(|id| self.name(id as FrameId).as_bytes()).collect();
        // The bytes after the prefix that all names share decide nearly every comparison.
        let first = names.first().copied().unwrap_or_default();
        let same = |name: &[u8]| name.iter().zip(first).take_while(|(a, b)| a == b).count();
        let shared = names.iter().fold(first.len(), |shared, name| shared.min(same(name)));
        let key = |name: &[u8]| {
            let mut key = [0; 16];
            let suffix = &name[shared..];
            let len = suffix.len().min(key.len());
            key[..len].copy_from_slice(&suffix[..len]);
            u128::from_be_bytes(key)
        };
        let keys: Vec<u128> = names.iter().map(|name| key(name)).collect();
        order.sort_unstable_by(|a, b| keys[*a].cmp(&keys[*b]).then_with(|| names[*a].cmp(names[*b])));
        let mut ranks = vec![Rank::default(); self.ends.len()];
        let mut next = 0..;
        let mut take = || next.next().unwrap_or(u32::MAX);
        // Names for whose text `name;` no rank is assigned yet. Each name in this list begins with the name before it.
        let mut open: Vec<usize> = Vec::new();
        for name in order {
            let text = names[name];
            let before = |open: &usize| {
                let suffix = text.strip_prefix(names[*open]);
                suffix.is_none_or(|suffix| suffix.first().is_some_and(|byte| *byte > b';'))
            };
            while let Some(done) = open.pop_if(|open| before(open)) {
                ranks[done].inner = take();
            }
            ranks[name].last = take();
            open.push(name);
        }
        while let Some(done) = open.pop() {
            ranks[done].inner = take();
        }
        ranks
    }
}

/// The ranks of a frame in the order of names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rank {
    /// Its rank if another frame follows it.
    pub inner: u32,
    /// Its rank as the last frame of its stack.
    pub last: u32,
}
