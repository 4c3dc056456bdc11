//! The settings that can be changed while the kernel runs: rate, interval, filters, depth, mode.
//!
//! In: `init`, ctl, leases. Out: plain values for ordinary code, one word for the handler. Runs in: written by ordinary
//! code under the writer's lock; read anywhere, by single loads in an NMI.

use super::settings::Settings;
use crate::config::{Config, Mode};
use crate::parts;
use crate::ring::RoundsCell;
use crate::unwind::ROUND;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

bitflags::bitflags! {
    /// The names of the settings, to note which ones a write or a lease has set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Key: u16 {
        const HZ = 1 << 0;
        const INTERVAL = 1 << 1;
        const SEED = 1 << 2;
        const IDLE = 1 << 3;
        const USER = 1 << 4;
        const BACKOFF = 1 << 5;
        const DEPTH = 1 << 6;
        const MODE = 1 << 7;
        const CPUS = 1 << 8;
        const LOCKUP = 1 << 9;
        const STATE = 1 << 10;
    }
}

/// A copy of all choices except the list of CPUs, which the slots hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) hz: u32,
    pub(crate) random_interval: bool,
    pub(crate) seed: u64,
    pub(crate) include_idle: bool,
    pub(crate) include_user: bool,
    pub(crate) backoff: bool,
    pub(crate) depth: u16,
    pub(crate) mode: Mode,
    pub(crate) lockup_ms: u32,
}

impl Choices {
    /// The choices that the kernel has made at boot.
    pub(crate) const fn of(config: &Config) -> Self {
        Self {
            hz: config.hz,
            random_interval: config.random_interval,
            seed: config.seed,
            include_idle: config.include_idle,
            include_user: config.include_user,
            backoff: config.backoff,
            depth: config.depth,
            mode: config.mode,
            lockup_ms: config.lockup_ms,
        }
    }

    pub(crate) fn overwrites(&self) -> bool {
        parts::RECORDER && self.mode == Mode::Overwrite
    }

    /// The keys in which `other` differs.
    pub(crate) fn differences(&self, other: &Self) -> Key {
        let mut keys = Key::empty();
        keys.set(Key::HZ, self.hz != other.hz);
        keys.set(Key::INTERVAL, self.random_interval != other.random_interval);
        keys.set(Key::SEED, self.seed != other.seed);
        keys.set(Key::IDLE, self.include_idle != other.include_idle);
        keys.set(Key::USER, self.include_user != other.include_user);
        keys.set(Key::BACKOFF, self.backoff != other.backoff);
        keys.set(Key::DEPTH, self.depth != other.depth);
        keys.set(Key::MODE, self.mode != other.mode);
        keys.set(Key::LOCKUP, self.lockup_ms != other.lockup_ms);
        keys
    }

    /// Copies the values of these keys from `from`.
    pub(crate) fn take_over(&mut self, from: &Self, keys: Key) {
        let take = |key| keys.contains(key);
        self.hz = if take(Key::HZ) { from.hz } else { self.hz };
        self.random_interval = if take(Key::INTERVAL) { from.random_interval } else { self.random_interval };
        self.seed = if take(Key::SEED) { from.seed } else { self.seed };
        self.include_idle = if take(Key::IDLE) { from.include_idle } else { self.include_idle };
        self.include_user = if take(Key::USER) { from.include_user } else { self.include_user };
        self.backoff = if take(Key::BACKOFF) { from.backoff } else { self.backoff };
        self.depth = if take(Key::DEPTH) { from.depth } else { self.depth };
        self.mode = if take(Key::MODE) { from.mode } else { self.mode };
        self.lockup_ms = if take(Key::LOCKUP) { from.lockup_ms } else { self.lockup_ms };
    }
}

/// The choices in force.
pub(crate) struct Live {
    settings: AtomicU64,
    /// Computed from the settings, for the fast path of the walk.
    pub(crate) fast_path_rounds: RoundsCell<ROUND>,
    hz: AtomicU32,
    seed: AtomicU64,
    random_interval: AtomicBool,
    backoff: AtomicBool,
    lockup_ms: AtomicU32,
    /// How many times the backoff has halved the rate.
    pub(crate) halvings: AtomicU32,
}

impl Live {
    /// Before `init`: a depth of one frame.
    pub(crate) const fn new() -> Self {
        Self {
            settings: AtomicU64::new(1 << 16),
            fast_path_rounds: RoundsCell::new(),
            hz: AtomicU32::new(1000),
            seed: AtomicU64::new(0),
            random_interval: AtomicBool::new(true),
            backoff: AtomicBool::new(false),
            lockup_ms: AtomicU32::new(0),
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
        let settings = self.settings();
        Choices {
            hz: self.hz.load(Ordering::Relaxed),
            random_interval: self.random_interval.load(Ordering::Relaxed),
            seed: self.seed.load(Ordering::Relaxed),
            include_idle: settings.include_idle(),
            include_user: settings.include_user(),
            backoff: self.backoff.load(Ordering::Relaxed),
            depth: settings.depth() as u16,
            mode: if settings.overwrites() { Mode::Overwrite } else { Mode::Drop },
            lockup_ms: self.lockup_ms(),
        }
    }

    /// Puts choices in force.
    pub(crate) fn store(&self, choices: &Choices) {
        let mut settings = Settings::empty().with_depth(choices.depth);
        settings.set(Settings::INCLUDE_IDLE, choices.include_idle);
        settings.set(Settings::INCLUDE_USER, choices.include_user);
        settings.set(Settings::OVERWRITE, choices.overwrites());
        self.settings.store(settings.bits(), Ordering::Relaxed);
        self.fast_path_rounds.set(settings.fast_path_rounds());
        self.hz.store(choices.hz, Ordering::Relaxed);
        self.seed.store(choices.seed, Ordering::Relaxed);
        self.random_interval.store(choices.random_interval, Ordering::Relaxed);
        self.backoff.store(choices.backoff, Ordering::Relaxed);
        self.lockup_ms.store(choices.lockup_ms, Ordering::Relaxed);
    }

    /// The rate that was chosen, ticks per second.
    pub(crate) fn hz(&self) -> u32 {
        self.hz.load(Ordering::Relaxed)
    }

    /// Ticks per second, after the backoff.
    pub(crate) fn hz_now(&self) -> u64 {
        u64::from((self.hz() >> self.halvings.load(Ordering::Relaxed)).max(1))
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    pub(crate) fn random_interval(&self) -> bool {
        self.random_interval.load(Ordering::Relaxed)
    }

    pub(crate) fn backoff(&self) -> bool {
        self.backoff.load(Ordering::Relaxed)
    }

    /// After how many milliseconds a lockup is reported; 0: never.
    pub(crate) fn lockup_ms(&self) -> u32 {
        self.lockup_ms.load(Ordering::Relaxed)
    }
}
