//! The command `probe`: a function of the kernel, the instructions by which it is left, and what is asked of a call.
//!
//! In: `ADDRESS EXIT... args TYPE,... if CONDITION if CONDITION...`, all but the address optional, numbers hexadecimal;
//! an exit is its distance from the address in bytes. Out: the addresses, the arguments that a record has, the
//! conditions; for the command `unprobe`, which probes are meant. Runs in: any. Only the kernel decides whether it can
//! put a probe there.

use super::argument::{ArgumentTypes, Condition, MAX_CONDITIONS};
use core::fmt;

/// The function of a probe: where it begins, how it is left, and what is asked of a call. Exits and conditions are kept
/// as text, because there is no memory for a list of unknown length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePlaces<'a> {
    /// The address of its first instruction.
    pub entry: u64,
    /// The types of the arguments that a record of a call has.
    pub arguments: ArgumentTypes,
    exits: &'a str,
    conditions: &'a str,
}

/// What `parse` expects.
pub(super) const EXPECTED: &str = "probe ADDRESS EXIT... args TYPE,... if CONDITION...: hexadecimal, each exit as its \
    distance from the address; up to six types of u8 to u64 and i8 to i64; up to four times `if argN:TYPE OP VALUE`";

const ARGUMENTS: &str = "args ";
const IF: &str = "if ";

impl<'a> ProbePlaces<'a> {
    /// Parses what comes after the word `probe`.
    pub(super) fn parse(rest: &'a str) -> Option<Self> {
        let (rest, conditions) = split_before(rest, IF);
        let (rest, arguments) = split_before(rest, ARGUMENTS);
        let (entry, exits) = rest.split_once(' ').unwrap_or((rest, ""));
        let arguments = match arguments.strip_prefix(ARGUMENTS) {
            Some(types) => ArgumentTypes::parse(types.trim())?,
            None => ArgumentTypes::default(),
        };
        let places = Self { entry: hex(entry.trim())?, arguments, exits: exits.trim(), conditions };
        let is_exit = |word| hex(word).is_some_and(|distance| distance > 0 && places.at(distance).is_some());
        let are_conditions = texts(conditions).all(|text| Condition::parse(text).is_some());
        let has_room = texts(conditions).count() <= MAX_CONDITIONS;
        (words(places.exits).all(is_exit) && are_conditions && has_room).then_some(places)
    }

    /// The addresses of the exits.
    pub fn exits(self) -> impl Iterator<Item = u64> {
        words(self.exits).filter_map(move |word| self.at(hex(word)?))
    }

    /// The conditions that a call must meet, all of them.
    pub fn conditions(self) -> impl Iterator<Item = Condition> {
        texts(self.conditions).filter_map(Condition::parse)
    }

    /// The same function, without its exits: what the probe asks for.
    pub fn without_exits(self) -> Self {
        Self { exits: "", ..self }
    }

    fn at(&self, distance: u64) -> Option<u64> {
        self.entry.checked_add(distance)
    }
}

/// Which probes `unprobe` removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// All of them.
    All,
    /// Those that were put through the control file with the lease, on functions that had no probe.
    OfLease,
    /// That of the function with this address.
    One(u64),
}

impl Removed {
    /// Parses what comes after the word `unprobe`.
    pub(super) fn parse(rest: &str) -> Option<Self> {
        match rest {
            "all" => Some(Self::All),
            "lease" => Some(Self::OfLease),
            _ => hex(rest).map(Self::One),
        }
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::OfLease => f.write_str("lease"),
            Self::One(address) => write!(f, "{address:x}"),
        }
    }
}

impl fmt::Display for ProbePlaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.entry)?;
        words(self.exits).try_for_each(|word| write!(f, " {word}"))?;
        if self.arguments != ArgumentTypes::default() {
            write!(f, " {ARGUMENTS}{}", self.arguments)?;
        }
        self.conditions().try_for_each(|condition| write!(f, " {IF}{condition}"))
    }
}

/// The text before the first word that is this one, and the text from there on.
fn split_before<'a>(text: &'a str, word: &str) -> (&'a str, &'a str) {
    let is_word = |at: &usize| text.get(..*at).is_some_and(|before| before.is_empty() || before.ends_with(' '));
    let at = text.match_indices(word).map(|(at, _)| at).find(is_word);
    text.split_at_checked(at.unwrap_or(text.len())).unwrap_or((text, ""))
}

/// The texts after each `if`.
fn texts(conditions: &str) -> impl Iterator<Item = &str> {
    let mut rest = conditions;
    core::iter::from_fn(move || {
        let text = rest.strip_prefix(IF)?;
        let (text, after) = split_before(text, IF);
        rest = after;
        Some(text)
    })
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
    fn arguments_and_conditions_come_after_the_exits() {
        let text = "10 f1 120 args u64,i32 if arg1 >= 4096 if arg2:i32 == -1";
        let places = ProbePlaces::parse(text).unwrap();
        assert_eq!((places.exits().count(), places.arguments.to_string()), (2, "u64,i32".to_string()));
        let conditions: Vec<_> = places.conditions().map(|condition| condition.to_string()).collect();
        assert_eq!(conditions, ["arg1 >= 4096", "arg2:i32 == -1"]);
        assert_eq!(places.to_string(), text);
        assert_eq!(places.without_exits().to_string(), text.replace(" f1 120", ""));
        for text in ["10 args u8", "10 if arg6 & 1", "10 1 if arg1 < 5"] {
            assert_eq!(ProbePlaces::parse(text).map(|places| places.to_string()).as_deref(), Some(text));
        }
        assert_eq!(ProbePlaces::parse("10 1 if arg1<5  if arg2>6 ").unwrap().conditions().count(), 2);
    }

    #[test]
    fn what_is_no_address_or_no_distance_is_refused() {
        for wrong in ["", "+10", "0x10", "10 0", "10 -1", "10 1,2", "ffffffffffffffff 1", "10000000000000000", "10 x"] {
            assert_eq!(ProbePlaces::parse(wrong), None, "{wrong}");
        }
        for wrong in [
            "args u64",
            "if arg1 == 1",
            "10 args",
            "10 args ",
            "10 args u65",
            "10 args u64 1",
            "10 args u8 args u8",
            "10 if",
            "10 if ",
            "10 if arg1",
            "10 if arg1 == 1 args u8",
            "10 if arg1 == 1 arg2 == 2",
            "10 if arg1 == 1 if",
            "10 if arg1 == 1 if ",
            "10 if arg7 == 1",
            "10 if arg1 > 1 if arg1 > 2 if arg1 > 3 if arg1 > 4 if arg1 > 5",
        ] {
            assert_eq!(ProbePlaces::parse(wrong), None, "{wrong}");
        }
    }
}
