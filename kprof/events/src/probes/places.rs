//! The places of the probes: which instructions are replaced by `int3`, found by address.
//!
//! In: an address. Out: the instruction that is there, and the owner of its `int3`, one word. Runs in: `find` in the
//! breakpoint handler; the rest in ordinary code, under the writer's lock. A hash table with linear probing. A reader
//! needs no lock: a place has the same address until no CPU that may have found it handles a hit any more.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Not an address: the place is not used, and a search goes on after it.
const FREED: u64 = 1;
/// The same, but a CPU that has found the place before may still read it.
const LEAVING: u64 = 2;

/// An instruction that a probe replaces.
pub(super) struct Place {
    /// 0 while this is not used, or [`FREED`], or [`LEAVING`].
    address: AtomicU64,
    /// The probe's number and generation ([`super::probe::Probe::owner`]) while the `int3` is in place; else 0.
    owner: AtomicU64,
    /// Where a jump goes.
    target: AtomicU64,
    /// The first byte of the instruction.
    opcode: AtomicU8,
}

/// An instruction that a probe can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// `push rbp`, the first one of a function.
    Push,
    /// `ret`
    Return,
    /// `jmp` to another function, by a distance of four bytes or of one byte.
    Jump {
        /// The first byte.
        opcode: u8,
        /// Where it goes.
        target: u64,
    },
}

pub(super) const PUSH_RBP: u8 = 0x55;
pub(super) const RET: u8 = 0xc3;
/// The jumps, and how many bytes their distances have.
pub(super) const JUMPS: [(u8, usize); 2] = [(0xe9, 4), (0xeb, 1)];

impl Instruction {
    /// Whether it is the first one of a function.
    pub(super) fn begins(self) -> bool {
        self == Self::Push
    }

    /// Its first byte.
    pub(super) fn opcode(self) -> u8 {
        match self {
            Self::Push => PUSH_RBP,
            Self::Return => RET,
            Self::Jump { opcode, .. } => opcode,
        }
    }
}

impl Place {
    pub(super) const fn new() -> Self {
        Self {
            address: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            target: AtomicU64::new(0),
            opcode: AtomicU8::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn address(&self) -> u64 {
        // After the flag of this CPU was set, as in `owner`.
        self.address.load(Ordering::SeqCst)
    }

    /// The probe and its generation, as a word; 0 if there is no `int3`.
    #[inline(always)]
    pub(super) fn owner(&self) -> u64 {
        // After the flag of this CPU was set that a hit is in progress: see `State::has_no_hit`.
        self.owner.load(Ordering::SeqCst)
    }

    fn is_used(&self) -> bool {
        self.address() > LEAVING
    }

    fn is_free(&self) -> bool {
        self.address() <= FREED
    }

    pub(super) fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::SeqCst);
    }

    #[inline(always)]
    pub(super) fn instruction(&self) -> Instruction {
        match self.opcode.load(Ordering::Relaxed) {
            PUSH_RBP => Instruction::Push,
            RET => Instruction::Return,
            opcode => Instruction::Jump { opcode, target: self.target.load(Ordering::Relaxed) },
        }
    }
}

/// Where the search for an address begins.
#[inline(always)]
fn first(places: &[Place], address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & places.len().wrapping_sub(1)
}

/// The place with this address.
#[inline(always)]
pub(super) fn find(places: &'static [Place], address: u64) -> Option<&'static Place> {
    let mut index = first(places, address);
    for _ in 0..places.len() {
        let place = places.get(index)?;
        match place.address() {
            0 => return None,
            found if found == address => return Some(place),
            _ => index = index.wrapping_add(1) & places.len().wrapping_sub(1),
        }
    }
    None
}

/// How many more places there is room for. A quarter stays free, so that a search is short.
pub(super) fn room(places: &[Place]) -> usize {
    let used = places.iter().filter(|place| !place.is_free()).count();
    (places.len() / 4 * 3).saturating_sub(used)
}

/// Adds a place that is not in the table, for which there is room. Only one caller at a time.
pub(super) fn add(places: &'static [Place], address: u64, instruction: Instruction) -> Option<&'static Place> {
    let start = first(places, address);
    let mut order = (0..places.len()).map(|step| (start + step) & (places.len() - 1));
    let place = order.find_map(|index| places.get(index).filter(|place| place.is_free()))?;
    place.opcode.store(instruction.opcode(), Ordering::Relaxed);
    if let Instruction::Jump { target, .. } = instruction {
        place.target.store(target, Ordering::Relaxed);
    }
    // Release: whoever sees the address sees the rest.
    place.address.store(address, Ordering::Release);
    Some(place)
}

/// Removes all places without an `int3` from the table. Nobody finds them any more, but a CPU may have found one
/// before. Only one caller at a time.
pub(super) fn leave_unowned(places: &'static [Place]) {
    for place in places.iter().filter(|place| place.is_used() && place.owner() == 0) {
        place.address.store(LEAVING, Ordering::SeqCst);
    }
}

/// Frees the places that were removed from the table before, once no CPU that has found one reads it any more.
pub(super) fn free_left(places: &'static [Place]) {
    for place in places.iter().filter(|place| place.address() == LEAVING) {
        place.address.store(FREED, Ordering::Relaxed);
    }
    // A search need not go on after the last place of a row. Twice, because the first row may begin at the end.
    let mut is_last = false;
    for place in places.iter().rev().chain(places.iter().rev()) {
        if is_last && place.address() == FREED {
            place.address.store(0, Ordering::Relaxed);
        }
        is_last = place.address() == 0;
    }
}
