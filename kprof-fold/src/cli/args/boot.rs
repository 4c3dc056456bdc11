//! A boot of a file, as the user names it. In: the value of `--boot`. Out: a number, or the last one.

use std::str::FromStr;

/// A boot of a file, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootChoice {
    /// By its number, from 1 on, as `info` shows it.
    Number(usize),
    /// The last one of the file.
    Last,
}

impl FromStr for BootChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "last" => Ok(Self::Last),
            Ok(number) if number > 0 => Ok(Self::Number(number)),
            _ => Err(format!("`{text}` is neither the number of a boot, from 1 on, nor `last`")),
        }
    }
}
