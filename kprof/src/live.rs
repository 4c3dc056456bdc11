//! The settings in force: rate, interval, filters, depth, mode; and whether ticks are sent.
//!
//! In: `init`, ctl, leases. Out: plain values for ordinary code, one word for the handler. Runs in: written by ordinary
//! code under the lock of changes; read anywhere, by single loads in an NMI.

use crate::errors::MAX_DEPTH;
use crate::format::settings::Choices;
use crate::ring::{Rounds, RoundsCell};
use crate::unwind::ROUND;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

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
    fn of(choices: &Choices) -> Self {
        let mut settings = Self::from_bits_retain(u64::from(choices.depth) << 16);
        settings.set(Self::INCLUDE_IDLE, choices.include_idle);
        settings.set(Self::INCLUDE_USER, choices.include_user);
        settings.set(Self::OVERWRITE, choices.overwrites());
        settings
    }

    pub fn include_idle(self) -> bool {
        self.contains(Self::INCLUDE_IDLE)
    }

    pub fn include_user(self) -> bool {
        self.contains(Self::INCLUDE_USER)
    }

    pub(crate) fn overwrites(self) -> bool {
        self.contains(Self::OVERWRITE)
    }

    pub fn depth(self) -> usize {
        (self.bits() >> 16 & 0xffff) as usize
    }

    /// How many rounds the fast path may fill after its first one: as many as the depth allows. If the fast path cannot
    /// be used (overwrite mode, or a small depth), they are more than any ring's free space.
    fn fast_path_rounds(self) -> Rounds<ROUND> {
        let rounds = if self.overwrites() { 0 } else { (self.depth() - 1) / ROUND };
        rounds.checked_sub(1).map_or(Rounds::TOO_MANY, |more| Rounds::new(more as u32))
    }

    /// The most words that a sample can have: header, facts, truncation marker, and one or two markers before each
    /// frame.
    pub(crate) fn max_words(self) -> u64 {
        (self.depth() as u64).wrapping_mul(3).wrapping_add(16)
    }
}

static_assertions::const_assert!(16 + 3 * MAX_DEPTH as usize <= crate::format::record::MAX_WORDS);

/// The settings in force.
pub struct Live {
    state: AtomicU8,
    settings: AtomicU64,
    /// Computed from the settings, for the fast path of the walk.
    pub(crate) fast_path_rounds: RoundsCell<ROUND>,
    /// The value of each setting, as [`Choices::words`] gives it.
    words: [AtomicU64; Choices::COUNT],
    /// How many times the backoff has halved the rate.
    pub(crate) halvings: AtomicU32,
}

impl Live {
    /// Before `init`: stopped, a depth of one frame.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU8::new(State::Stopped as u8),
            settings: AtomicU64::new(1 << 16),
            fast_path_rounds: RoundsCell::new(),
            words: [const { AtomicU64::new(0) }; Choices::COUNT],
            halvings: AtomicU32::new(0),
        }
    }

    /// Whether ticks are sent.
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::SeqCst) {
            1 => State::Running,
            2 => State::Frozen,
            3 => State::Paused,
            _ => State::Stopped,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// The settings that the handler needs.
    #[inline(always)]
    pub(crate) fn settings(&self) -> Settings {
        Settings::from_bits_retain(self.settings.load(Ordering::Relaxed))
    }

    /// A copy of the choices.
    pub fn choices(&self) -> Choices {
        Choices::of_words(self.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Puts choices in force.
    pub(crate) fn store(&self, choices: &Choices) {
        let settings = Settings::of(choices);
        self.settings.store(settings.bits(), Ordering::Relaxed);
        self.fast_path_rounds.set(settings.fast_path_rounds());
        self.words.iter().zip(choices.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    /// Ticks per second, after the backoff.
    pub(crate) fn hz_now(&self) -> u64 {
        u64::from((self.choices().hz >> self.halvings.load(Ordering::Relaxed)).max(1))
    }
}
