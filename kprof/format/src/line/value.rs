//! The values after a `=`: numbers, ranges, streams. Each type is printed and parsed here.
//!
//! In: a value, or the text of a field. Out: the other of the two. Runs in: any, a panic handler too; no allocation.
//! Never panics: a text that is not such a value is an error that names the field.

use crate::text::{EVENT_PREFIX, Hex as HexDigits, decimal, parse_hex};
use core::fmt::{self, Display, Formatter, Write as _};

/// Why a line cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLine<'a> {
    /// A field that the line must have is missing.
    Missing(&'static str),
    /// The value of a field cannot be parsed.
    Value {
        /// The name of the field.
        key: &'a str,
        /// Its text.
        text: &'a str,
        /// What was expected instead.
        expected: &'static str,
    },
    /// The text after the word of a header line cannot be parsed.
    Header {
        /// The word.
        key: &'static str,
        /// The text after it.
        text: &'a str,
        /// What was expected instead.
        expected: &'static str,
    },
}

impl Display for BadLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "{key}= is missing"),
            Self::Value { key, text, expected } => write!(f, "{key}=`{text}` is not {expected}"),
            Self::Header { key, text, expected } => write!(f, "{key} `{text}` is not {expected}"),
        }
    }
}

impl core::error::Error for BadLine<'_> {}

/// The value of a field. A printed value contains no space and no line feed.
pub trait Value<'a>: Sized {
    /// What the text of a value is, for the error.
    const EXPECTED: &'static str;

    /// Prints the value.
    ///
    /// # Errors
    /// Those of the sink.
    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result;

    /// The value with this text.
    fn of(text: &'a str) -> Option<Self>;

    /// The value with this text, which is that of the field `key`.
    ///
    /// # Errors
    /// [`BadLine::Value`] if the text is not such a value.
    fn read(key: &'a str, text: &'a str) -> Result<Self, BadLine<'a>> {
        Self::of(text).ok_or(BadLine::Value { key, text, expected: Self::EXPECTED })
    }
}

impl Value<'_> for u64 {
    const EXPECTED: &'static str = "a decimal number of 64 bits";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn of(text: &str) -> Option<Self> {
        decimal(text)
    }
}

/// The number of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu(pub u32);

impl Value<'_> for Cpu {
    const EXPECTED: &'static str = "a CPU number";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }

    fn of(text: &str) -> Option<Self> {
        decimal(text).map(Self)
    }
}

/// The stream of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// `meta`
    Meta,
    /// The samples of a CPU: its number.
    Cpu(u32),
    /// The recorded hits of points on a CPU: `event-` and its number.
    Event(u32),
}

impl Value<'_> for Stream {
    const EXPECTED: &'static str = "a CPU number";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Cpu(cpu) => write!(f, "{cpu}"),
            Self::Event(cpu) => write!(f, "{EVENT_PREFIX}{cpu}"),
        }
    }

    fn of(text: &str) -> Option<Self> {
        match text.strip_prefix(EVENT_PREFIX) {
            Some(cpu) => Cpu::of(cpu).map(|cpu| Self::Event(cpu.0)),
            None if text == "meta" => Some(Self::Meta),
            None => Cpu::of(text).map(|cpu| Self::Cpu(cpu.0)),
        }
    }
}

/// A number in hex: an address, a TSC, an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex(pub u64);

impl Value<'_> for Hex {
    const EXPECTED: &'static str = "a plain hexadecimal number of 64 bits";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        put(HexDigits::new(self.0).as_bytes().iter().copied(), f)
    }

    fn of(text: &str) -> Option<Self> {
        parse_hex(text.as_bytes()).map(Self)
    }
}

/// A CRC-32, always eight hex digits, so that a part of it is not taken for the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(pub u32);

impl Value<'_> for Checksum {
    const EXPECTED: &'static str = "a checksum of eight hexadecimal digits";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }

    fn of(text: &str) -> Option<Self> {
        if text.len() != 8 {
            return None;
        }
        parse_hex(text.as_bytes()).and_then(|sum| u32::try_from(sum).ok()).map(Self)
    }
}

/// From an address to one past the end, `HEX-HEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(pub u64, pub u64);

impl Value<'_> for Range {
    const EXPECTED: &'static str = "a range FROM-TO of hexadecimal numbers";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.0, self.1)
    }

    fn of(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        Some(Self(parse_hex(from.as_bytes())?, parse_hex(to.as_bytes())?))
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.print(f)
    }
}

/// Prints ASCII bytes.
pub(super) fn put(bytes: impl IntoIterator<Item = u8>, f: &mut Formatter<'_>) -> fmt::Result {
    bytes.into_iter().try_for_each(|byte| f.write_char(char::from(byte)))
}
