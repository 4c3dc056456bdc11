//! The lines of a header: `# kprof-profile VERSION`, `# KEY VALUE`, `# anchor NAME=ADDRESS`.
//!
//! In: typed values, or the text after the word of a line. Out: the other of the two. Runs in: any, a panic handler
//! too; no allocation. A value is not escaped, because the kernel writes it and it may contain spaces.

use super::value::{BadLine, Hex, Value};
use crate::fact::Fact;
use core::fmt::{self, Display, Formatter};

/// The version of the text form written by this crate.
pub const VERSION: u32 = 1;
/// The first line of every header; a file that begins with anything else is not a kprof profile.
pub const FIRST_LINE: &str = "# kprof-profile 1";
/// The line after [`FIRST_LINE`] in a file of a single recording. `kprof-record` alone may rename such a file, and no
/// other one.
pub const RECORDING_LINE: &str = "# recorder kprof-record";

/// The first line of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The version of the text form.
    pub version: u32,
}

impl Profile {
    /// The word after `# `.
    pub const WORD: &'static str = "kprof-profile";
    /// The beginning of the line in every version.
    pub const BEGINS: &'static str = "# kprof-profile ";

    /// Parses the text after the word.
    ///
    /// # Errors
    /// [`BadLine`] if it is not a decimal number.
    pub fn read(text: &str) -> Result<Self, BadLine<'_>> {
        let version = u64::of(text).and_then(|version| u32::try_from(version).ok());
        let version = version.ok_or(BadLine::Header { key: Self::WORD, text, expected: "a version number" })?;
        Ok(Self { version })
    }
}

impl Display for Profile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "# {} {}", Self::WORD, self.version)
    }
}

/// A fact of the kernel or of the recording. `value` is anything that can be printed without a line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<V> {
    /// The fact.
    pub fact: Fact,
    /// Its value.
    pub value: V,
}

impl<V: Display> Display for Header<V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "# {} {}", self.fact, self.value)
    }
}

/// The value of an anchor: a symbol and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor<'a> {
    /// The symbol. It may contain `=`.
    pub name: &'a str,
    /// Its address.
    pub address: u64,
}

impl<'a> Anchor<'a> {
    /// Parses the text after the word.
    ///
    /// # Errors
    /// [`BadLine`] if it is not `NAME=ADDRESS`.
    pub fn read(text: &'a str) -> Result<Self, BadLine<'a>> {
        let expected = "NAME=ADDRESS with a plain hexadecimal address";
        let parts = text.rsplit_once('=').and_then(|(name, address)| Some((name, Hex::of(address)?)));
        let (name, Hex(address)) = parts.ok_or(BadLine::Header { key: Fact::Anchor.name(), text, expected })?;
        Ok(Self { name, address })
    }
}

impl Display for Anchor<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:x}", self.name, self.address)
    }
}
