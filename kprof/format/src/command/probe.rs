//! The command `probe`: a function of the kernel, and the instructions by which it is left.
//!
//! In: `ADDRESS` or `ADDRESS EXIT...`, hexadecimal; an exit is its distance from the address in bytes. Out: the
//! addresses. Runs in: any. Only the kernel decides whether it can put a probe there.

use core::fmt;

/// The function of a probe: where it begins, and how it is left. The exits are kept as text, because there is no memory
/// for a list of unknown length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePlaces<'a> {
    /// The address of its first instruction.
    pub entry: u64,
    exits: &'a str,
}

/// What `parse` expects.
pub(super) const EXPECTED: &str = "probe ADDRESS EXIT..., hexadecimal, each exit as its distance from the address";

impl<'a> ProbePlaces<'a> {
    /// Parses what comes after the word `probe`.
    pub(super) fn parse(rest: &'a str) -> Option<Self> {
        let (entry, exits) = rest.split_once(' ').unwrap_or((rest, ""));
        let places = Self { entry: hex(entry)?, exits: exits.trim() };
        let is_exit = |word| hex(word).is_some_and(|distance| distance > 0 && places.at(distance).is_some());
        words(places.exits).all(is_exit).then_some(places)
    }

    /// The addresses of the exits.
    pub fn exits(self) -> impl Iterator<Item = u64> {
        words(self.exits).filter_map(move |word| self.at(hex(word)?))
    }

    fn at(&self, distance: u64) -> Option<u64> {
        self.entry.checked_add(distance)
    }
}

impl fmt::Display for ProbePlaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.entry)?;
        words(self.exits).try_for_each(|word| write!(f, " {word}"))
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

/// A hexadecimal number without a sign or a prefix.
pub(super) fn hex(word: &str) -> Option<u64> {
    let is_digits = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(word, 16).ok().filter(|_| is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn exits_are_distances_from_the_address() {
        let places = ProbePlaces::parse("ffffffff80208c20 f1  120").unwrap();
        assert_eq!(places.entry, 0xffff_ffff_8020_8c20);
        assert_eq!(places.exits().collect::<Vec<_>>(), [0xffff_ffff_8020_8d11, 0xffff_ffff_8020_8d40]);
        assert_eq!(places.to_string(), "ffffffff80208c20 f1 120");
        assert_eq!(ProbePlaces::parse("10").unwrap().exits().count(), 0);
    }

    #[test]
    fn what_is_no_address_or_no_distance_is_refused() {
        for wrong in ["", "+10", "0x10", "10 0", "10 -1", "10 1,2", "ffffffffffffffff 1", "10000000000000000", "10 x"] {
            assert_eq!(ProbePlaces::parse(wrong), None, "{wrong}");
        }
    }
}
