//! The settings that the handler needs, in one word; and whether ticks are sent.
//!
//! In: ctl's commands. Out: bits and numbers. Runs in: written by ordinary code, read in NMI with one load.

use crate::parts;
use crate::ring::Rounds;
use crate::unwind::ROUND;

/// Whether ticks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No ticks.
    Stopped = 0,
    /// Ticks are sent.
    Running = 1,
    /// The flight recorder's rings are kept as they are.
    Frozen = 2,
    /// Running, but no ticks are sent for the short time of a change of mode.
    Paused = 3,
}

bitflags::bitflags! {
    /// The settings that the handler needs, read by one load. Bits 16 to 31: the depth.
    #[derive(Clone, Copy)]
    pub struct Settings: u64 {
        const INCLUDE_IDLE = 1 << 0;
        const INCLUDE_USER = 1 << 1;
        const OVERWRITE = 1 << 2;
    }
}

impl Settings {
    pub fn include_idle(self) -> bool {
        self.contains(Self::INCLUDE_IDLE)
    }

    pub fn include_user(self) -> bool {
        self.contains(Self::INCLUDE_USER)
    }

    pub(crate) fn overwrites(self) -> bool {
        parts::RECORDER && self.contains(Self::OVERWRITE)
    }

    pub fn depth(self) -> usize {
        (self.bits() >> 16 & 0xffff) as usize
    }

    pub(crate) fn with_depth(self, depth: u16) -> Self {
        Self::from_bits_retain(self.bits() & 0xffff | u64::from(depth) << 16)
    }

    /// How many rounds the fast path may fill after its first one: as many as the depth allows. If the fast path cannot
    /// be used (overwrite mode, or a small depth), they are more than any ring's free space.
    pub(crate) fn fast_path_rounds(self) -> Rounds<ROUND> {
        let rounds = if self.overwrites() { 0 } else { (self.depth() - 1) / ROUND };
        rounds.checked_sub(1).map_or(Rounds::TOO_MANY, |more| Rounds::new(more as u32))
    }

    /// The most words that a sample can have: header, facts, truncation marker, and one or two markers before each
    /// frame.
    pub(crate) fn max_words(self) -> u64 {
        (self.depth() as u64).wrapping_mul(3).wrapping_add(16)
    }
}

pub(crate) use crate::errors::MAX_DEPTH;
static_assertions::const_assert!(16 + 3 * MAX_DEPTH as usize <= crate::format::record::MAX_WORDS);
