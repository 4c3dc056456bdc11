//! The settings that can be changed while the kernel runs: rate, interval, filters, depth, mode.
//!
//! In: `init`, ctl, leases. Out: plain values for ordinary code, one word for the handler. Runs in: written by ordinary
//! code under the writer's lock; read anywhere, by single loads in an NMI.

use super::settings::Settings;
use crate::config::{Config, Mode};
pub(crate) use crate::format::settings::{Choices, Keys};
use crate::parts;
use crate::ring::RoundsCell;
use crate::unwind::ROUND;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The choices that the kernel has made at boot.
pub(crate) const fn of(config: &Config) -> Choices {
    Choices {
        hz: config.hz,
        random_interval: config.random_interval,
        seed: config.seed,
        include_idle: config.include_idle,
        include_user: config.include_user,
        backoff: config.backoff,
        depth: config.depth,
        mode: if parts::RECORDER { config.mode } else { Mode::Drop },
        lockup_ms: config.lockup_ms,
    }
}

/// The choices in force.
pub struct Live {
    settings: AtomicU64,
    /// Computed from the settings, for the fast path of the walk.
    pub(crate) fast_path_rounds: RoundsCell<ROUND>,
    /// The value of each setting, as [`Choices::words`] gives it.
    words: [AtomicU64; Choices::COUNT],
    /// How many times the backoff has halved the rate.
    pub(crate) halvings: AtomicU32,
}

impl Live {
    /// Before `init`: a depth of one frame.
    pub(crate) const fn new() -> Self {
        Self {
            settings: AtomicU64::new(1 << 16),
            fast_path_rounds: RoundsCell::new(),
            words: [const { AtomicU64::new(0) }; Choices::COUNT],
            halvings: AtomicU32::new(0),
        }
    }

    /// The settings that the handler needs.
    #[inline(always)]
    pub(crate) fn settings(&self) -> Settings {
        Settings::from_bits_retain(self.settings.load(Ordering::Relaxed))
    }

    /// A copy of the choices.
    pub(crate) fn choices(&self) -> Choices {
        Choices::of_words(self.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Puts choices in force.
    pub(crate) fn store(&self, choices: &Choices) {
        let mut settings = Settings::empty().with_depth(choices.depth);
        settings.set(Settings::INCLUDE_IDLE, choices.include_idle);
        settings.set(Settings::INCLUDE_USER, choices.include_user);
        settings.set(Settings::OVERWRITE, choices.overwrites());
        self.settings.store(settings.bits(), Ordering::Relaxed);
        self.fast_path_rounds.set(settings.fast_path_rounds());
        self.words.iter().zip(choices.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    /// The rate that was chosen, ticks per second.
    pub(crate) fn hz(&self) -> u32 {
        self.choices().hz
    }

    /// Ticks per second, after the backoff.
    pub(crate) fn hz_now(&self) -> u64 {
        u64::from((self.hz() >> self.halvings.load(Ordering::Relaxed)).max(1))
    }

    pub(crate) fn seed(&self) -> u64 {
        self.choices().seed
    }

    pub(crate) fn random_interval(&self) -> bool {
        self.choices().random_interval
    }

    pub(crate) fn backoff(&self) -> bool {
        self.choices().backoff
    }

    /// After how many milliseconds a lockup is reported; 0: never.
    pub fn lockup_ms(&self) -> u32 {
        self.choices().lockup_ms
    }
}
