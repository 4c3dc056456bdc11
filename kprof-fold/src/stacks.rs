//! The distinct stacks of a profile, each kept once. Stage: fold, the inner loop.
//!
//! In: the bytes of a stack as they stand in the file, and their hash. Out: a small number for each distinct stack.
//! The bytes are compared in full, so what was checked once (every address plain hex, none too large) is known to hold
//! for every later sample with the same number: the loop neither parses nor checks an address twice. Memory grows with
//! distinct stacks only.

use kprof::format::marker::{Facts, Marker};

/// Number of a distinct stack within one profile.
pub type StackId = u32;

/// How the bytes of a stack are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal addresses with one space between, as in the text forms. Checked before [`Stacks::insert`].
    Hex,
    /// Little-endian 64-bit words, as in the binary form.
    Words,
}

/// What is known of a stack without symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits(u32);

impl Traits {
    const KERNEL: u32 = 1 << 8;
    const BORDER: u32 = 1 << 9;

    /// Derives the traits from the words of a stack, innermost first.
    pub fn of(words: &[u64]) -> Self {
        let mut bits = 0;
        if words.first().is_some_and(|first| first >> 63 != 0) {
            bits |= Self::KERNEL;
        }
        for word in words {
            match Marker::decode(*word) {
                Some(Marker::Facts(Facts(low))) => bits |= u32::from(low),
                Some(Marker::Interrupt(_) | Marker::Exception(_)) => bits |= Self::BORDER,
                _ => {}
            }
        }
        Self(bits)
    }

    /// The first address has bit 63 set.
    pub fn is_kernel(self) -> bool {
        self.0 & Self::KERNEL != 0
    }

    /// Interrupts were off at the sampled instruction.
    pub fn interrupts_off(self) -> bool {
        self.0 & u32::from(Facts::INTERRUPTS_OFF) != 0
    }

    /// The idle context was running and no interrupt or exception was being served.
    pub fn is_idle(self) -> bool {
        self.0 & u32::from(Facts::IDLE) != 0 && !self.in_interrupt()
    }

    /// An interrupt or exception entry is on the stack.
    pub fn in_interrupt(self) -> bool {
        self.0 & Self::BORDER != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    len: u32,
    traits: Traits,
}

/// The table.
#[derive(Debug)]
pub struct Stacks {
    encoding: Encoding,
    /// Open addressing; upper half: upper half of the hash, lower half: number + 1, 0 where free.
    slots: Vec<u64>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Stacks {
    /// An empty table.
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, slots: vec![0; 1024], entries: Vec::new(), bytes: Vec::new() }
    }

    /// The number of the stack with exactly these bytes.
    #[inline]
    pub fn find(&self, bytes: &[u8], hash: u64) -> Option<StackId> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if slot >> 32 == hash >> 32 {
                let id = slot as u32 - 1;
                if self.bytes(id) == bytes {
                    return Some(id);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a stack that [`find`](Self::find) did not find.
    ///
    /// # Panics
    /// With more than 2^32 - 2 distinct stacks.
    pub fn insert(&mut self, bytes: &[u8], hash: u64, traits: Traits) -> StackId {
        let id = u32::try_from(self.entries.len()).ok().filter(|id| *id < u32::MAX).expect("fewer than 2^32 stacks");
        self.entries.push(Entry { start: self.bytes.len(), len: bytes.len() as u32, traits });
        self.bytes.extend_from_slice(bytes);
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        Self::place(&mut self.slots, hash, id);
        id
    }

    fn place(slots: &mut [u64], hash: u64, id: StackId) {
        let mask = slots.len() - 1;
        let mut at = hash as usize & mask;
        while slots[at] != 0 {
            at = (at + 1) & mask;
        }
        slots[at] = (hash >> 32) << 32 | u64::from(id + 1);
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots = vec![0; self.slots.len() * 2];
        for id in 0..self.entries.len() as u32 - 1 {
            Self::place(&mut slots, hash(self.bytes(id)), id);
        }
        self.slots = slots;
    }

    /// How many distinct stacks there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The stack's bytes as they stood in the file.
    #[inline]
    pub fn bytes(&self, id: StackId) -> &[u8] {
        let entry = &self.entries[id as usize];
        &self.bytes[entry.start..entry.start + entry.len as usize]
    }

    /// What is known of the stack without symbols.
    #[inline]
    pub fn traits(&self, id: StackId) -> Traits {
        self.entries[id as usize].traits
    }

    /// Writes the addresses and markers of a stack to `words`, innermost first.
    pub fn words(&self, id: StackId, words: &mut Vec<u64>) {
        words.clear();
        let bytes = self.bytes(id);
        match self.encoding {
            Encoding::Hex => {
                words
                    .extend(bytes.split(|byte| *byte == b' ').map(|field| crate::read::hex::hex64(field).unwrap_or(0)));
            }
            Encoding::Words => words.extend(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))),
        }
    }
}

const K: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Hash of a stack's bytes: two lanes of 16 bytes, each folded by a 64 x 64 bit multiplication.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    let word = |at: usize| -> u64 {
        match bytes.get(at..at + 8) {
            Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or([0; 8])),
            None => 0,
        }
    };
    let len = bytes.len();
    if len < 16 {
        let mut padded = [0u8; 16];
        padded[..len].copy_from_slice(bytes);
        let (low, high) = padded.split_at(8);
        let (low, high) = (low.try_into().unwrap_or([0; 8]), high.try_into().unwrap_or([0; 8]));
        return fold(fold(u64::from_le_bytes(low) ^ K[0], u64::from_le_bytes(high) ^ K[1] ^ len as u64), K[2]);
    }
    let (mut one, mut two) = (K[0], K[1]);
    let mut at = 0;
    while at + 32 <= len {
        one = fold(word(at) ^ one, word(at + 8) ^ K[2]);
        two = fold(word(at + 16) ^ two, word(at + 24) ^ K[3]);
        at += 32;
    }
    if at + 16 <= len {
        one = fold(word(at) ^ one, word(at + 8) ^ K[2]);
    }
    // The last 16 bytes, whether or not they were part of a full step.
    two = fold(word(len - 16) ^ two, word(len - 8) ^ K[3]);
    fold(one ^ len as u64, two ^ K[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distinct_stack_has_its_own_number_and_keeps_its_words() {
        let mut stacks = Stacks::new(Encoding::Hex);
        let texts: Vec<String> = (0..5000u64).map(|n| format!("ffffffff80{n:06x} {:x}", n * 7)).collect();
        for (round, text) in texts.iter().chain(&texts).enumerate() {
            let hash = hash(text.as_bytes());
            match stacks.find(text.as_bytes(), hash) {
                Some(id) => assert_eq!(id as usize, round - texts.len()),
                None => assert_eq!(stacks.insert(text.as_bytes(), hash, Traits::default()) as usize, round),
            }
        }
        let mut words = Vec::new();
        stacks.words(3, &mut words);
        assert_eq!(words, [0xffff_ffff_8000_0003, 21]);
        assert_eq!(stacks.len(), 5000);
    }

    #[test]
    fn every_byte_and_the_length_change_the_hash() {
        for len in 0..100 {
            let base = vec![b'0'; len];
            let before = hash(&base);
            for at in 0..len {
                let mut changed = base.clone();
                changed[at] = b'1';
                assert_ne!(hash(&changed), before, "length {len}, byte {at}");
            }
            let longer = [&base[..], &b"0"[..]].concat();
            assert_ne!(hash(&longer), before, "length {len}");
        }
    }

    #[test]
    fn traits_follow_first_address_and_markers() {
        let facts = |bits| Marker::Facts(Facts(bits)).encode();
        assert!(!Traits::of(&[0x1000]).is_kernel());
        assert!(Traits::of(&[1 << 63]).is_kernel());
        let idle = Traits::of(&[1 << 63, facts(Facts::IDLE | Facts::INTERRUPTS_OFF)]);
        assert!(idle.is_idle() && idle.interrupts_off());
        let serving = Traits::of(&[1 << 63, facts(Facts::IDLE), Marker::Interrupt(33).encode()]);
        assert!(!serving.is_idle() && serving.in_interrupt());
    }
}
