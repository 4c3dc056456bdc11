//! The distinct stacks of a profile, each kept once. Stage: fold, the inner loop.
//!
//! In: the bytes of a stack as they are in the file, and their hash. Out: a small number for each distinct stack. The
//! bytes are compared in full. So the addresses of a stack are parsed and checked only once: what was found then also
//! holds for every later sample with the same number. Memory grows only with the number of distinct stacks.

use crate::relocations::{Move, Relocations};
use kprof_format::marker::{Facts, Marker, PUBLISHED_LEAF};
use kprof_format::text::Hex;

pub use crate::relocations::StackId;

/// How the bytes of a stack are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal addresses separated by one space, as in the text forms. [`Stacks::insert_parsed`] adds them.
    Hex,
    /// Little-endian 64-bit words, as in the binary form.
    Words,
}

/// Where the wanted stack may be in the table: its place plus 1, or 0 if the table has no stack with this hash.
#[derive(Clone, Copy, Debug)]
pub struct Candidate(u32);

/// The number of hashes that [`Stacks::candidates`] looks for in one call.
pub const TOUCHED: usize = 32;

/// What is known of a stack without symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits(u32);

impl Traits {
    const KERNEL: u32 = 1 << 8;
    const BORDER: u32 = 1 << 9;
    const MARKED: u32 = 1 << 10;
    const RESTING: u32 = 1 << 11;

    /// Derives the traits from the words of a stack, innermost first.
    pub fn of(words: &[u64]) -> Self {
        let mut bits = 0;
        if words.iter().all(|word| *word < PUBLISHED_LEAF) {
            let first = words.first().is_some_and(|first| first >> 63 != 0);
            return Self(if first { Self::KERNEL } else { 0 });
        }
        bits |= Self::MARKED;
        if words.first().is_some_and(|first| first >> 63 != 0) {
            bits |= Self::KERNEL;
        }
        // The kernel writes the facts directly after the first address. Any later word may come from a user stack.
        if let Some(Marker::Facts(Facts(low))) = words.get(1).and_then(|word| Marker::decode(*word)) {
            bits |= u32::from(low);
        }
        for word in words.iter().take_while(|word| *word >> 63 != 0 && **word != Marker::User.encode()) {
            if let Some(Marker::Interrupt(_) | Marker::Exception(_)) = Marker::decode(*word) {
                bits |= Self::BORDER;
            }
        }
        if bits & u32::from(Facts::IDLE) != 0 && bits & Self::BORDER == 0 {
            bits |= Self::RESTING;
        }
        Self(bits)
    }

    /// The first address has bit 63 set.
    pub fn is_kernel(self) -> bool {
        self.0 & Self::KERNEL != 0
    }

    /// There is a marker, or the leaf of a sample of the trigger `published`, among the addresses.
    pub fn has_markers(self) -> bool {
        self.0 & Self::MARKED != 0
    }

    /// Interrupts were off at the sampled instruction.
    pub fn interrupts_off(self) -> bool {
        self.0 & u32::from(Facts::INTERRUPTS_OFF) != 0
    }

    /// The idle task was running and no interrupt or exception was being served.
    pub fn is_idle(self) -> bool {
        self.0 & Self::RESTING != 0
    }

    /// An interrupt or exception entry is on the stack.
    pub fn in_interrupt(self) -> bool {
        self.0 & Self::BORDER != 0
    }
}

/// Length of a record's header: the stack's number, its length in bytes, its traits. The stack's bytes follow.
///
/// ```text
/// | number | length | traits | bytes of the stack ... | up to the next multiple of 8 |
///   4        4        4
/// ```
const HEADER_BYTES: usize = 12;
/// A place is a byte offset divided by this, so that 32 bits can address 32 GiB.
const UNIT_BYTES: usize = 8;

/// Memory reserved in advance, so that the stacks of a typical profile are not copied while the table grows.
const FIRST_BYTES: usize = 1 << 20;

/// The table.
#[derive(Debug)]
pub struct Stacks {
    encoding: Encoding,
    /// A hash table with open addressing. The upper half of a slot is the upper half of the hash, the lower half is the
    /// place plus 1. A free slot is 0.
    slots: Vec<u64>,
    /// The place of each stack, in units of [`UNIT_BYTES`].
    places: Vec<u32>,
    bytes: Vec<u8>,
    /// Where each stack begins in `parsed`, which has the parsed addresses of all stacks one after the other. Both are
    /// empty for [`Encoding::Words`].
    starts: Vec<usize>,
    parsed: Vec<u64>,
    relocations: Relocations,
    /// Memory for the words of a new stack.
    settled: Vec<u64>,
}

impl Stacks {
    /// An empty table.
    pub fn new(encoding: Encoding) -> Self {
        let (slots, places, bytes) = (vec![0; 1024], Vec::new(), Vec::with_capacity(FIRST_BYTES));
        let parsed = if encoding == Encoding::Hex { FIRST_BYTES / size_of::<u64>() } else { 0 };
        let (starts, parsed) = (Vec::new(), Vec::with_capacity(parsed));
        Self {
            encoding,
            slots,
            places,
            bytes,
            starts,
            parsed,
            relocations: Relocations::default(),
            settled: Vec::new(),
        }
    }

    /// Adds a stack in hexadecimal whose addresses are already parsed.
    ///
    /// # Panics
    /// As [`insert`](Self::insert).
    pub fn insert_parsed(&mut self, bytes: &[u8], hash: u64, words: &[u64]) -> (StackId, Traits) {
        self.starts.push(self.parsed.len());
        self.parsed.extend_from_slice(words);
        self.insert(bytes, hash, words)
    }

    /// The number and traits of the stack with these words, in either encoding.
    ///
    /// # Panics
    /// As [`insert`](Self::insert).
    pub fn of_words(&mut self, words: &[u64]) -> (StackId, Traits) {
        let mut bytes = Vec::with_capacity(17 * words.len());
        for word in words {
            match self.encoding {
                Encoding::Words => bytes.extend_from_slice(&word.to_le_bytes()),
                Encoding::Hex => {
                    bytes.extend_from_slice(if bytes.is_empty() { b"" } else { b" " });
                    bytes.extend_from_slice(Hex::new(*word).as_bytes());
                }
            }
        }
        let hash = hash(&bytes);
        match (self.find(&bytes, hash), self.encoding) {
            (Some(found), _) => found,
            (None, Encoding::Hex) => self.insert_parsed(&bytes, hash, words),
            (None, Encoding::Words) => self.insert(&bytes, hash, words),
        }
    }

    /// The number and traits of the stack with exactly these bytes.
    #[inline]
    pub fn find(&self, bytes: &[u8], hash: u64) -> Option<(StackId, Traits)> {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> 32) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if slot >> 32 == hash >> 32 {
                let (id, traits, known) = self.record(slot as u32 - 1);
                if known == bytes {
                    return Some((id, traits));
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The number, the traits and the bytes of the stack at a place.
    #[inline(always)]
    fn record(&self, place: u32) -> (StackId, Traits, &[u8]) {
        let record = &self.bytes[place as usize * UNIT_BYTES..];
        let (header, bytes) = record.split_at(HEADER_BYTES);
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        (number(0), Traits(number(8)), &bytes[..number(4) as usize])
    }

    /// Looks up several hashes at once. The hash alone does not prove that a stack is the right one, so the caller then
    /// calls [`confirm`](Self::confirm) for each candidate. Several lookups in one loop are faster than one after the
    /// other: their loads do not depend on each other, so the processor does not wait for each one.
    #[inline]
    pub fn candidates(&self, hashes: &[u64; TOUCHED]) -> [Candidate; TOUCHED] {
        let mut found = [Candidate(0); TOUCHED];
        let mask = self.slots.len() - 1;
        for (found, hash) in found.iter_mut().zip(hashes) {
            let mut at = (*hash >> 32) as usize & mask;
            let mut slot = self.slots[at];
            while slot != 0 && slot >> 32 != *hash >> 32 {
                at = (at + 1) & mask;
                slot = self.slots[at];
            }
            *found = Candidate(slot as u32);
        }
        // Loads the bytes that will be compared into the caches. The sum is not used; without it the compiler would
        // remove the loads.
        let mut sum = 0u64;
        for found in &found {
            let place = (found.0 as usize).saturating_sub(1) * UNIT_BYTES;
            if let Some(lines) = self.bytes.get(place..place + 129) {
                sum += u64::from(lines[0]) + u64::from(lines[64]) + u64::from(lines[128]);
            }
        }
        std::hint::black_box(sum);
        found
    }

    /// The number and traits of the candidate, if it is the stack with exactly these bytes.
    #[inline(always)]
    pub fn confirm(&self, candidate: Candidate, bytes: &[u8]) -> Option<(StackId, Traits)> {
        let (id, traits, known) = self.record(candidate.0.checked_sub(1)?);
        (known == bytes).then_some((id, traits))
    }

    /// Adds a stack that [`find`](Self::find) did not find.
    ///
    /// # Panics
    /// When the stacks fill 32 GiB.
    pub fn insert(&mut self, bytes: &[u8], hash: u64, words: &[u64]) -> (StackId, Traits) {
        let mut settled = std::mem::take(&mut self.settled);
        settled.clear();
        settled.extend_from_slice(words);
        self.relocations.settle(self.places.len() as StackId, &mut settled);
        let traits = Traits::of(&settled);
        self.settled = settled;
        (self.insert_bytes(bytes, hash, traits), traits)
    }

    /// As [`insert`](Self::insert), for bytes that may be something else than a stack.
    ///
    /// # Panics
    /// When they fill 32 GiB.
    pub fn insert_bytes(&mut self, bytes: &[u8], hash: u64, traits: Traits) -> StackId {
        let place = u32::try_from(self.bytes.len() / UNIT_BYTES).ok().filter(|place| *place < u32::MAX);
        let place = place.expect("the stacks fit 32 GiB");
        let id = self.places.len() as StackId;
        let mut header = [0; HEADER_BYTES];
        let numbers = [id, bytes.len() as u32, traits.0].map(u32::to_le_bytes);
        header.as_chunks_mut().0.copy_from_slice(&numbers);
        let length = HEADER_BYTES + bytes.len();
        let padding = length.next_multiple_of(UNIT_BYTES) - length;
        self.bytes.reserve(length + padding);
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(&[0; UNIT_BYTES][..padding]);
        self.places.push(place);
        if self.places.len() * 2 > self.slots.len() {
            self.grow();
        }
        Self::place(&mut self.slots, (hash >> 32) << 32 | u64::from(place + 1));
        id
    }

    fn place(slots: &mut [u64], slot: u64) {
        let mask = slots.len() - 1;
        let mut at = (slot >> 32) as usize & mask;
        while slots[at] != 0 {
            at = (at + 1) & mask;
        }
        slots[at] = slot;
    }

    #[cold]
    fn grow(&mut self) {
        let slots = vec![0; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, slots) {
            if slot != 0 {
                Self::place(&mut self.slots, slot);
            }
        }
    }

    /// Begins a boot in which the same addresses may be other code: stacks added before are no longer found.
    pub fn begin_era(&mut self, boot: usize, low_text: Option<(u64, u64)>) {
        self.relocations.begin(self.places.len() as StackId, boot, low_text);
        self.slots.fill(0);
    }

    /// Sets that code of this boot was at another address than in the first boot. [`words`](Self::words) applies it.
    pub fn moved(&mut self, boot: usize, change: Move) {
        self.relocations.moved(boot, change);
    }

    /// How many distinct stacks there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no stacks.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The stack's bytes as they were in the file.
    pub fn bytes(&self, id: StackId) -> &[u8] {
        self.record(self.places[id as usize]).2
    }

    /// The size of all stored stacks in bytes, with the header and the padding of each.
    pub fn all_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What is known of the stack without symbols.
    pub fn traits(&self, id: StackId) -> Traits {
        self.record(self.places[id as usize]).1
    }

    /// Writes the addresses and markers of a stack to `words`, innermost first. Addresses are relocated to where the
    /// first boot had the code.
    #[inline]
    pub fn words(&self, id: StackId, words: &mut Vec<u64>) {
        words.clear();
        match self.encoding {
            Encoding::Hex => {
                let end = self.starts.get(id as usize + 1).copied().unwrap_or(self.parsed.len());
                words.extend_from_slice(&self.parsed[self.starts[id as usize]..end]);
            }
            Encoding::Words => words.extend(self.bytes(id).as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))),
        }
        self.relocations.settle(id, words);
    }
}

const K: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Hash of a stack's bytes. Two lanes of 16 bytes are hashed in parallel; each step multiplies 64 by 64 bits and folds
/// the product.
#[inline(always)]
pub fn hash(bytes: &[u8]) -> u64 {
    let mut lanes = (K[0], K[1]);
    let step = |(one, two): (u64, u64), block: &[u8; 32]| {
        let [a, b, c, d] = words_of(block);
        (fold(a ^ one, b ^ K[2]), fold(c ^ two, d ^ K[3]))
    };
    // The last step takes the last 32 bytes, which may overlap the block before them, so that no padding is needed.
    let Some(last) = bytes.last_chunk::<32>() else { return hash_short(bytes) };
    for block in bytes[..bytes.len() - 1].as_chunks::<32>().0 {
        lanes = step(lanes, block);
    }
    let (one, two) = step(lanes, last);
    fold(one ^ bytes.len() as u64, two ^ K[2])
}

/// Hash of fewer than 32 bytes.
fn hash_short(bytes: &[u8]) -> u64 {
    let (first, last) = match (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) {
        (Some(first), Some(last)) => (*first, *last),
        _ => {
            let mut padded = [0; 16];
            padded[..bytes.len()].copy_from_slice(bytes);
            (padded, [0; 16])
        }
    };
    let ([a, b], [c, d]) = (words_of(&first), words_of(&last));
    let (one, two) = (fold(a ^ K[0], b ^ K[2]), fold(c ^ K[1], d ^ K[3]));
    fold(one ^ bytes.len() as u64, two ^ K[2])
}

/// The bytes as little-endian words.
#[inline]
pub(crate) fn words_of<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    const { assert!(BYTES == WORDS * 8, "whole words") };
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

#[cfg(test)]
mod tests;
