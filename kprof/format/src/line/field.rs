//! The fields of a line, `name=value` with spaces between: required ones, optional ones, and counters of any name.
//!
//! In: fields, or the text of a line. Out: the other of the two. Runs in: any, a panic handler too; no allocation. Of
//! two fields of the same name, the first one counts.

use super::value::{BadLine, Value};
use core::fmt::{self, Debug, Formatter};

/// The text of a line after its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'a>(pub &'a str);

impl<'a> Fields<'a> {
    /// All fields. Words without `=` are skipped.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split_ascii_whitespace().filter_map(|field| field.split_once('='))
    }

    /// The text of the first field of this name.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.iter().find(|(name, _)| *name == key).map(|(_, text)| text)
    }

    /// The value of this field.
    ///
    /// # Errors
    /// [`BadLine`] if the field is missing or cannot be parsed.
    pub fn value<V: Value<'a>>(self, key: &'static str) -> Result<V, BadLine<'a>> {
        V::read(key, self.get(key).ok_or(BadLine::Missing(key))?)
    }
}

/// A field of a line definition: a value, an optional value, or counters.
pub trait Field<'a>: Sized {
    /// Prints the field with a space before it.
    ///
    /// # Errors
    /// Those of the sink.
    fn print(&self, key: &str, f: &mut Formatter<'_>) -> fmt::Result;

    /// Finds and parses the field. `known` are the names of all fields of the line definition.
    ///
    /// # Errors
    /// [`BadLine`] names the field that is missing or cannot be parsed.
    fn find(key: &'static str, fields: Fields<'a>, known: &'static [&'static str]) -> Result<Self, BadLine<'a>>;
}

impl<'a, V: Value<'a>> Field<'a> for V {
    fn print(&self, key: &str, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, " {key}=")?;
        V::print(self, f)
    }

    fn find(key: &'static str, fields: Fields<'a>, _: &'static [&'static str]) -> Result<Self, BadLine<'a>> {
        fields.value(key)
    }
}

impl<'a, V: Value<'a>> Field<'a> for Option<V> {
    fn print(&self, key: &str, f: &mut Formatter<'_>) -> fmt::Result {
        self.as_ref().map_or(Ok(()), |value| Field::print(value, key, f))
    }

    fn find(key: &'static str, fields: Fields<'a>, _: &'static [&'static str]) -> Result<Self, BadLine<'a>> {
        fields.get(key).map(|text| V::read(key, text)).transpose()
    }
}

/// Passes each counter to the function that it is given.
pub type List<'a> = &'a dyn Fn(&mut dyn FnMut(&str, u64) -> fmt::Result) -> fmt::Result;

/// Counters of any name, as decimal numbers.
#[derive(Clone, Copy)]
pub enum Counters<'a> {
    /// No counters.
    None,
    /// Counters of a writer.
    List(List<'a>),
    /// All fields of a text but those of the line definition.
    Text {
        /// The text.
        fields: Fields<'a>,
        /// The names in the line definition.
        known: &'static [&'static str],
    },
}

impl<'a> Counters<'a> {
    /// The counters in a text, by name. A field that is not a decimal number is skipped; parsing a line has refused it.
    pub fn in_text(self) -> impl Iterator<Item = (&'a str, u64)> {
        self.fields().filter_map(|(name, text)| Some((name, u64::of(text)?)))
    }

    fn fields(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (fields, known) = match self {
            Self::None | Self::List(_) => (Fields(""), &[][..]),
            Self::Text { fields, known } => (fields, known),
        };
        fields.iter().filter(move |(name, _)| !known.contains(name))
    }
}

impl<'a> Field<'a> for Counters<'a> {
    /// A text is printed unchanged: its values are not parsed as numbers. So a value that is not a number is not lost;
    /// whoever parses the printed line gets an error for it.
    fn print(&self, _: &str, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::List(list) => list(&mut |name, value| write!(f, " {name}={value}")),
            Self::Text { .. } => self.fields().try_for_each(|(name, text)| write!(f, " {name}={text}")),
        }
    }

    fn find(_: &'static str, fields: Fields<'a>, known: &'static [&'static str]) -> Result<Self, BadLine<'a>> {
        let counters = Self::Text { fields, known };
        counters.fields().try_for_each(|(name, text)| u64::read(name, text).map(drop))?;
        Ok(counters)
    }
}

impl Debug for Counters<'_> {
    /// As a map, the same for a list and for its text.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        if let Self::List(list) = self {
            list(&mut |name, value| {
                map.entry(&name, &value);
                Ok(())
            })?;
        }
        map.entries(self.in_text()).finish()
    }
}
