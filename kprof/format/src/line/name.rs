//! Names in a line, which are escaped: a name may have any bytes, a field of a line may not.
//!
//! In: any bytes, or the text of a field. Out: the other of the two. Runs in: any, a panic handler too; no allocation.
//! Every text is a name: a `%` without two hex digits stays as it is.

use super::value::{Value, put};
use crate::text::{escaped, rewritten, unescaped};
use core::fmt::{self, Debug, Display, Formatter};

/// A name: any bytes, or the form that these have in a line. Two names are equal if their bytes are.
#[derive(Clone, Copy)]
pub enum Name<'a> {
    /// Any bytes.
    Raw(&'a [u8]),
    /// The escaped form.
    Escaped(&'a [u8]),
}

impl<'a> Name<'a> {
    /// The bytes of the name, not escaped.
    pub fn bytes(self) -> impl Iterator<Item = u8> + 'a {
        // One of the two slices is empty, so the chain gives the bytes of the other one.
        let (raw, field): (&[u8], &[u8]) = match self {
            Self::Raw(raw) => (raw, b""),
            Self::Escaped(field) => (b"", field),
        };
        raw.iter().copied().chain(unescaped(field))
    }
}

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

impl Eq for Name<'_> {}

impl Debug for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.bytes()).finish()
    }
}

impl Display for Name<'_> {
    /// The escaped form.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raw(name) => put(escaped(name), f),
            Self::Escaped(field) => put(rewritten(field), f),
        }
    }
}

impl<'a> Value<'a> for Name<'a> {
    const EXPECTED: &'static str = "a name";

    fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn of(text: &'a str) -> Option<Self> {
        Some(Self::Escaped(text.as_bytes()))
    }
}
