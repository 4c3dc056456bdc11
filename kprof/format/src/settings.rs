//! The settings: values that ctl sets, that a lease undoes, and that status and the meta stream tell.
//!
//! Our basic goal here is that a setting is one row of the table below. Parsing, printing, the comparison of two sets
//! of values, the keys of the layers and the lines of status are derived from the row, so a setting cannot be accepted
//! and then forgotten in one of these places.
//!
//! In: a row of the table, lines of ctl. Out: [`Choices`] (a value of each setting), [`Setting`] (one of them),
//! [`Keys`] (names of some). Runs in: any. Never allocates. What has more than one word of value is not in the table:
//! lists of CPUs, states of points, probes, and whether sampling runs.

use crate::fact::Fact;
use crate::text::decimal;
use crate::verb::{BadCommand, Verb};
use core::fmt::{self, Display, Formatter};
use core::ops::{BitOr, BitOrAssign, Sub, SubAssign};

/// Rates above this need `force`.
pub const MAX_HZ: u32 = 20_000;
/// The highest rate, also with `force`.
pub const MAX_HZ_BY_FORCE: u32 = 100_000;
/// The greatest `depth` in frames. A sample with this many frames still fits in a record.
pub const MAX_DEPTH: u16 = 250;
/// The longest time of `lockup` in milliseconds.
pub const MAX_LOCKUP_MS: u32 = 3_600_000;

/// What happens when a ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The new record is lost, and counted.
    #[default]
    Drop = 0,
    /// The oldest records are overwritten, and counted: the flight recorder.
    Overwrite = 1,
}

impl Mode {
    /// The name of the mode in ctl and in the data.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Overwrite => "overwrite",
        }
    }
}

/// How the value of a setting is written, and its range.
enum Kind {
    /// One of these numbers.
    Number { least: u64, most: u64 },
    /// A rate, with `force` above [`MAX_HZ`].
    Rate,
    /// One of these words; the value is 0 or 1.
    Words(&'static str, &'static str),
    /// What is recorded besides kernel samples: `include WORD` or `exclude WORD`.
    Included(&'static str),
    /// `off` (0), or one of the numbers up to this one.
    OffOr(u64),
}

const ON_OFF: Kind = Kind::Words("off", "on");

/// The table: for each setting its key, its variant, its field with type and default, the verb of ctl, the fact that
/// status shows, how it is written, and what a wrong value is answered with.
macro_rules! settings {
    ($($(#[$doc:meta])*
       $KEY:ident $Name:ident $field:ident: $type:ty = $default:expr, $verb:ident, $fact:ident, $kind:expr,
       $expected:literal;)*) => {
        /// A value of each setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Choices { $($(#[$doc])* pub $field: $type,)* }

        /// One setting with its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Setting { $($(#[$doc])* $Name($type),)* }

        /// The names of the settings, by their numbers.
        #[derive(Clone, Copy)]
        enum Name { $($Name,)* }

        impl Keys {
            $($(#[$doc])* pub const $KEY: Self = Self(1 << Name::$Name as u32);)*
            /// All settings of the table.
            pub const TABLE: Self = Self($(1 << Name::$Name as u32)|*);
        }

        impl Choices {
            /// How many settings there are.
            pub const COUNT: usize = [$(Name::$Name),*].len();
            /// The default of each setting.
            pub const DEFAULT: Self = Self { $($field: $default),* };

            /// The values as words, in the order of the table.
            pub const fn words(&self) -> [u64; Self::COUNT] {
                [$(self.$field as u64),*]
            }

            /// The values that these words stand for.
            pub fn of_words(words: [u64; Self::COUNT]) -> Self {
                let [$($field),*] = words;
                Self { $($field: Value::of_word($field)),* }
            }

            /// Each of these settings with its value, in the order of the table.
            pub fn each(&self, keys: Keys) -> impl Iterator<Item = Setting> {
                let all = [$((Keys::$KEY, Setting::$Name(self.$field))),*];
                all.into_iter().filter(move |(key, _)| keys.contains(*key)).map(|(_, setting)| setting)
            }

            /// Sets the value of one setting.
            pub fn set(&mut self, setting: Setting) {
                match setting { $(Setting::$Name(value) => self.$field = value,)* }
            }

            /// The settings in which `other` differs.
            pub fn differences(&self, other: &Self) -> Keys {
                let mut keys = Keys::default();
                $(if self.$field != other.$field { keys |= Keys::$KEY; })*
                keys
            }
        }

        impl Setting {
            /// The key of the setting.
            pub const fn key(self) -> Keys {
                match self { $(Self::$Name(_) => Keys::$KEY,)* }
            }

            /// The fact that shows the setting in status.
            pub const fn fact(self) -> Fact {
                match self { $(Self::$Name(_) => Fact::$fact,)* }
            }

            const fn kind(self) -> Kind {
                match self { $(Self::$Name(_) => $kind,)* }
            }

            const fn word(self) -> u64 {
                match self { $(Self::$Name(value) => value as u64,)* }
            }

            /// The first word of the command that sets it.
            pub const fn verb(self) -> Verb {
                match (self, self.kind(), self.word()) {
                    (_, Kind::Included(_), 0) => Verb::Exclude,
                    $((Self::$Name(_), ..) => Verb::$verb,)*
                }
            }

            /// Parses the rest of a command. `None`: it is not about a setting.
            ///
            /// # Errors
            /// [`BadCommand::Value`] says what was expected.
            pub fn parse(verb: Verb, rest: &str) -> Option<Result<Self, BadCommand>> {
                let mut expected = None;
                $(if let Some(word) = $kind.parse(verb, Verb::$verb, rest) {
                    expected = Some($expected);
                    if let Ok(word) = word {
                        return Some(Ok(Self::$Name(Value::of_word(word))));
                    }
                })*
                expected.map(|expected| Err(BadCommand::Value(expected)))
            }
        }
    };
}

settings! {
    /// Ticks per second.
    HZ Hz hz: u32 = 1000, Hz, Hz, Kind::Rate, "hz 1 to 20000, or up to 100000 with `force` after it";
    /// Intervals are random, not fixed.
    INTERVAL RandomInterval random_interval: bool = true, Interval, Interval, Kind::Words("fixed", "random"),
        "interval random or fixed";
    /// The seed of the random intervals.
    SEED Seed seed: u64 = 42, Seed, Seed, Kind::Number { least: 0, most: u64::MAX }, "seed 0 to 2^64-1";
    /// Samples of the idle task are recorded.
    IDLE IncludeIdle include_idle: bool = false, Include, Include, Kind::Included("idle"), "idle or user";
    /// Samples of user code are recorded.
    USER IncludeUser include_user: bool = false, Include, Include, Kind::Included("user"), "idle or user";
    /// The rate is lowered when sampling costs too much.
    BACKOFF Backoff backoff: bool = false, Backoff, Backoff, ON_OFF, "backoff on or off";
    /// The most frames of a sample.
    DEPTH Depth depth: u16 = 64, Depth, Depth, Kind::Number { least: 1, most: MAX_DEPTH as u64 }, "depth 1 to 250";
    /// What happens when a ring is full.
    MODE Mode mode: Mode = Mode::Drop, Mode, Mode, Kind::Words("drop", "overwrite"), "mode drop or overwrite";
    /// After how many milliseconds a CPU that is locked up is reported; 0: never.
    LOCKUP Lockup lockup_ms: u32 = 0, Lockup, LockupMs, Kind::OffOr(MAX_LOCKUP_MS as u64),
        "lockup off, or lockup 1 to 3600000 milliseconds";
}

/// A value of a setting, which is kept as a word.
trait Value {
    fn of_word(word: u64) -> Self;
}

macro_rules! values {
    ($($type:ty: $word:ident => $value:expr;)*) => {
        $(impl Value for $type { fn of_word($word: u64) -> Self { $value } })*
    };
}

values! {
    u16: word => word as u16;
    u32: word => word as u32;
    u64: word => word;
    bool: word => word != 0;
    Mode: word => if word == 0 { Mode::Drop } else { Mode::Overwrite };
}

impl Kind {
    /// The value that a command sets: the rest of one with `verb`, for the setting of `own` verb. `None`: it is about
    /// another setting.
    fn parse(&self, verb: Verb, own: Verb, rest: &str) -> Option<Result<u64, ()>> {
        if let Self::Included(what) = self {
            let is_about = matches!(verb, Verb::Include | Verb::Exclude);
            return is_about.then_some(if rest == *what { Ok((verb == Verb::Include).into()) } else { Err(()) });
        }
        if verb != own {
            return None;
        }
        let number = |text, least, most| decimal(text).filter(|value| (least..=most).contains(value));
        let value = match *self {
            Self::Number { least, most } => number(rest, least, most),
            Self::Rate => match rest.strip_suffix(" force") {
                Some(rest) => number(rest.trim_end(), 1, MAX_HZ_BY_FORCE.into()),
                None => number(rest, 1, MAX_HZ.into()),
            },
            Self::Words(zero, one) => [zero, one].iter().position(|word| *word == rest).map(|word| word as u64),
            Self::OffOr(_) if rest == "off" => Some(0),
            Self::OffOr(most) => number(rest, 1, most),
            Self::Included(_) => None,
        };
        Some(value.ok_or(()))
    }
}

impl Setting {
    /// The value as status shows it: as in the command, but a rate without `force`.
    pub fn value(self) -> impl Display {
        struct Shown(Setting);
        impl Display for Shown {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                match (self.0.kind(), self.0.word()) {
                    (Kind::Number { .. } | Kind::Rate, word) => write!(f, "{word}"),
                    (Kind::Words(zero, one), word) => f.write_str(if word == 0 { zero } else { one }),
                    (Kind::Included(what), _) => f.write_str(what),
                    (Kind::OffOr(_), 0) => f.write_str("off"),
                    (Kind::OffOr(_), word) => write!(f, "{word}"),
                }
            }
        }
        Shown(self)
    }
}

impl Display for Setting {
    /// Writes the command that sets it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let force = matches!(self, Self::Hz(hz) if *hz > MAX_HZ);
        write!(f, "{} {}{}", self.verb(), self.value(), if force { " force" } else { "" })
    }
}

impl Choices {
    /// Whether a full ring overwrites its oldest records.
    pub fn overwrites(&self) -> bool {
        self.mode == Mode::Overwrite
    }

    /// Copies the values of these settings from `from`.
    pub fn take_over(&mut self, from: &Self, keys: Keys) {
        from.each(keys).for_each(|setting| self.set(setting));
    }
}

/// The names of some settings, with those that are not in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys(u32);

impl Keys {
    /// Which CPUs get ticks.
    pub const CPUS: Self = Self(1 << 29);
    /// The states of points.
    pub const POINTS: Self = Self(1 << 30);
    /// Whether sampling runs.
    pub const STATE: Self = Self(1 << 31);

    /// No setting.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// Whether all of `keys` are among them.
    pub const fn contains(self, keys: Self) -> bool {
        self.0 & keys.0 == keys.0
    }
}

const _: () = assert!(Choices::COUNT <= 29, "the keys after the table have the bits from 29 on");

impl BitOr for Keys {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Keys {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl Sub for Keys {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl SubAssign for Keys {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use std::string::ToString;

    /// Another value of each setting than the default.
    fn others() -> Choices {
        Choices {
            hz: 20_001,
            random_interval: false,
            seed: u64::MAX,
            include_idle: true,
            include_user: true,
            backoff: true,
            depth: 250,
            mode: Mode::Overwrite,
            lockup_ms: 9,
        }
    }

    #[test]
    fn each_setting_comes_back_from_its_line_from_its_word_and_from_its_key() {
        let (default, others) = (Choices::DEFAULT, others());
        assert_eq!(default.differences(&others), Keys::TABLE);
        assert_eq!([Choices::of_words(default.words()), Choices::of_words(others.words())], [default, others]);
        for choices in [default, others] {
            let mut copy = if choices == default { others } else { default };
            for setting in choices.each(Keys::TABLE) {
                let line = setting.to_string();
                assert_eq!(Command::parse(line.as_bytes()), Ok(Command::Set(setting)), "{line}");
                assert!(choices.each(setting.key()).eq([setting]), "{line}");
                copy.take_over(&choices, setting.key());
                assert!(!copy.differences(&choices).contains(setting.key()), "{line}");
            }
            assert_eq!(copy, choices);
        }
    }
}
