//! Dynamic probes: the file of places that `kprof-fold probes` writes, and the names of the points that they have.
//!
//! In: the lines of such a file, or what a line says. Out: the other of the two. Runs in: any. Never allocates. A line
//! that is none of the form is an error with its number, because a wrong place would change what the kernel executes.
//!
//! ```text
//! # kprof-probes 1
//! # build-id 5f3c09a1
//! # load ffffffff80200000
//! ffffffff80208c20 f1,120,3a0 test_kernel::fs::ram::read
//! # refused: test_kernel::foo: does not begin with `push rbp`
//! ```
//!
//! All addresses are those of the file, and increase from line to line. `load` is the lowest address of the kernel's
//! part of the file: a kernel whose fact `load` is another one runs higher by the difference. The second field has the
//! instructions that leave the function, as hexadecimal distances from its address, or `-` if it never ends.

use crate::text::parse_hex;
use core::fmt;

/// The first line.
pub const FIRST_LINE: &str = "# kprof-probes 1";
/// The name of the point of a probe is this prefix, and the address of the function with 16 hexadecimal digits.
pub const POINT_PREFIX: &str = "probe.";

const BUILD_ID: &str = "# build-id ";
const LOAD: &str = "# load ";
const REFUSED: &str = "# refused: ";
const NONE: &str = "-";

/// A line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a, E = Exits<'a>> {
    /// The first line.
    First,
    /// The build id of the kernel; `None` if its file has none.
    BuildId(Option<&'a str>),
    /// The lowest address of the kernel's part of the file.
    Load(u64),
    /// A function that can be probed.
    Place(Place<'a, E>),
    /// A function that cannot, and why: `NAME: REASON`.
    Refused(&'a str),
}

/// A function that can be probed. `E` are the distances of its exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a, E = Exits<'a>> {
    /// The address of its first instruction.
    pub address: u64,
    /// The distances of the instructions that leave it, in bytes.
    pub exits: E,
    /// Its name.
    pub name: &'a str,
}

/// Distances of exits as they are written in a file. They were checked when the line was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exits<'a>(&'a str);

impl Iterator for Exits<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_once(',').unwrap_or((self.0, ""));
        self.0 = rest;
        parse_hex(first.as_bytes())
    }
}

impl<'a> Exits<'a> {
    /// `None` if the text is not `-` or a list of distances that increase, none of them 0, none past the last address.
    fn parse(text: &'a str, address: u64) -> Option<Self> {
        if text == NONE {
            return Some(Self(""));
        }
        let mut last = 0;
        let is_right = |word: &str| {
            let distance = parse_hex(word.as_bytes()).filter(|distance| *distance > last);
            last = distance.unwrap_or(u64::MAX);
            distance.is_some_and(|distance| address.checked_add(distance).is_some())
        };
        text.split(',').all(is_right).then_some(Self(text))
    }
}

/// Why a line is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: expected {}; make the file again with kprof-fold probes", self.line, self.expected)
    }
}

impl<E: IntoIterator<Item = u64> + Clone> fmt::Display for Line<'_, E> {
    /// Writes the line without a line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str(FIRST_LINE),
            Self::BuildId(id) => write!(f, "{BUILD_ID}{}", id.unwrap_or(NONE)),
            Self::Load(address) => write!(f, "{LOAD}{address:x}"),
            Self::Refused(text) => write!(f, "{REFUSED}{text}"),
            Self::Place(Place { address, exits, name }) => {
                write!(f, "{address:016x} ")?;
                let mut exits = exits.clone().into_iter();
                match exits.next() {
                    Some(first) => write!(f, "{first:x}")?,
                    None => f.write_str(NONE)?,
                }
                exits.try_for_each(|exit| write!(f, ",{exit:x}"))?;
                write!(f, " {name}")
            }
        }
    }
}

/// Reads the lines of a file, in which the three lines of the header come first. After an error the lines end.
pub fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, BadLine>> {
    let (mut last_address, mut has_failed) = (None, false);
    let mut numbered = (1..).zip(text.split_inclusive('\n'));
    let mut is_empty = text.is_empty();
    core::iter::from_fn(move || {
        let (number, line) = match numbered.next() {
            _ if has_failed => return None,
            Some((number, line)) => (number, line),
            // Not even the first line.
            None if core::mem::take(&mut is_empty) => (1, ""),
            None => return None,
        };
        let read = match (number, line.strip_suffix('\n')) {
            (_, None) if !line.is_empty() => Err("a line end: the file is truncated"),
            (_, line) => one(number, line.unwrap_or_default(), &mut last_address),
        };
        has_failed = read.is_err();
        Some(read.map_err(|expected| BadLine { line: number, expected }))
    })
}

fn one<'a>(number: usize, line: &'a str, last_address: &mut Option<u64>) -> Result<Line<'a>, &'static str> {
    if line.contains(char::is_control) {
        return Err("no control characters");
    }
    match number {
        1 => return (line == FIRST_LINE).then_some(Line::First).ok_or("`# kprof-probes 1`: a file of this version"),
        2 => {
            let id = line.strip_prefix(BUILD_ID).filter(|id| *id == NONE || parse_id(id));
            return id.map(|id| Line::BuildId((id != NONE).then_some(id))).ok_or("`# build-id HEX` or `# build-id -`");
        }
        3 => {
            let load = line.strip_prefix(LOAD).and_then(|load| parse_hex(load.as_bytes()));
            return load.map(Line::Load).ok_or("`# load ADDRESS`, hexadecimal");
        }
        _ => {}
    }
    if let Some(text) = line.strip_prefix(REFUSED) {
        return Ok(Line::Refused(text));
    }
    let mut fields = line.splitn(3, ' ');
    let address = fields.next().and_then(|address| parse_hex(address.as_bytes())).ok_or("`ADDRESS EXITS NAME`")?;
    let exits = fields.next().and_then(|exits| Exits::parse(exits, address));
    let exits = exits.ok_or("exits: increasing hexadecimal distances with commas between, or `-`")?;
    let name = fields.next().filter(|name| !name.is_empty()).ok_or("a name after the exits")?;
    if last_address.replace(address).is_some_and(|last| last >= address) {
        return Err("an address above that of the line before");
    }
    Ok(Line::Place(Place { address, exits, name }))
}

fn parse_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The name of the point of a probe on the function at this address of the running kernel.
///
/// ```
/// use kprof_format::probe::{PointName, address_of_point};
/// let name = PointName(0x1000).to_string();
/// assert_eq!(name, "probe.0000000000001000");
/// assert_eq!(address_of_point(&name), Some(0x1000));
/// assert_eq!((address_of_point("probe.1000"), address_of_point("block.read")), (None, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointName(pub u64);

impl fmt::Display for PointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{POINT_PREFIX}{:016x}", self.0)
    }
}

/// The address of the function whose probe has the point of this name. `None` if it is no point of a probe.
pub fn address_of_point(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(POINT_PREFIX).filter(|digits| digits.len() == 16)?;
    parse_hex(digits.as_bytes()).filter(|_| !digits.contains(|digit: char| digit.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    const FILE: &str = "# kprof-probes 1\n# build-id 5f3c09a1\n# load ffffffff80200000\n\
        ffffffff80208c20 f1,120,3a0 test_kernel::fs::ram::read\nffffffff80209000 - <A as B<C, D>>::never ends\n\
        # refused: test_kernel::foo: does not begin with `push rbp`\nfffffffffffffff0 f last\n";

    #[test]
    fn a_file_is_read_and_its_lines_are_written_as_they_were() {
        let read: Vec<Line<'_>> = lines(FILE).map(|line| line.unwrap()).collect();
        assert_eq!(read[..3], [Line::First, Line::BuildId(Some("5f3c09a1")), Line::Load(0xffff_ffff_8020_0000)]);
        let Line::Place(place) = read[3] else { panic!("{:?}", read[3]) };
        assert_eq!((place.address, place.name), (0xffff_ffff_8020_8c20, "test_kernel::fs::ram::read"));
        assert_eq!(place.exits.collect::<Vec<_>>(), [0xf1, 0x120, 0x3a0]);
        let Line::Place(endless) = read[4] else { panic!("{:?}", read[4]) };
        assert_eq!((endless.exits.count(), endless.name), (0, "<A as B<C, D>>::never ends"));
        assert_eq!(read[5], Line::Refused("test_kernel::foo: does not begin with `push rbp`"));
        let written: String = read.iter().map(|line| line.to_string() + "\n").collect();
        assert_eq!(written, FILE);
    }

    #[test]
    fn a_place_from_numbers_is_read_back() {
        for exits in [&[][..], &[1], &[1, 0x10, u64::from(u32::MAX)]] {
            let place = Place { address: 0x1000, exits: exits.iter().copied(), name: "f" };
            let text = std::format!("# kprof-probes 1\n# build-id -\n# load 0\n{}\n", Line::Place(place.clone()));
            let read: Vec<Line<'_>> = lines(&text).map(|line| line.unwrap()).collect();
            assert_eq!(read[1], Line::BuildId(None));
            let Line::Place(read) = read[3] else { panic!("{:?}", read[3]) };
            assert!((read.address, read.name) == (0x1000, "f") && read.exits.eq(place.exits));
        }
    }

    #[test]
    fn a_line_that_is_wrong_is_told_with_its_number_and_ends_the_file() {
        let head = "# kprof-probes 1\n# build-id -\n# load 1000\n";
        for (body, line, expected) in [
            ("x 1 f\n", 4, "ADDRESS EXITS NAME"),
            ("1000\n", 4, "exits"),
            ("1000 1\n", 4, "name"),
            ("1000 1 \n", 4, "name"),
            ("1000 2,1 f\n", 4, "exits"),
            ("1000 1,1 f\n", 4, "exits"),
            ("1000 0 f\n", 4, "exits"),
            ("1000 1, f\n", 4, "exits"),
            ("1000 -1 f\n", 4, "exits"),
            ("ffffffffffffffff 1 f\n", 4, "exits"),
            ("1000 1 f\n1000 1 g\n", 5, "above"),
            ("1000 1 f\n2000 1 g", 5, "truncated"),
            ("1000 1 a\u{1b}b\n", 4, "control"),
            ("1000 1 f\r\n", 4, "control"),
            ("# something\n", 4, "ADDRESS"),
            ("\n", 4, "ADDRESS"),
        ] {
            let text = std::format!("{head}{body}1 1 never\n");
            let text = if body.ends_with('\n') { &text[..] } else { text.strip_suffix("1 1 never\n").unwrap() };
            let error = lines(text).find_map(Result::err).unwrap_or_else(|| panic!("{body}"));
            assert!(error.line == line && error.expected.contains(expected), "{body}: {error}");
            let mut all = lines(text).skip_while(Result::is_ok);
            assert!(all.next().is_some() && all.next().is_none(), "{body}");
        }
        for (text, line) in [
            ("", 1),
            ("\n", 1),
            ("# kprof-probes 2\n", 1),
            ("# kprof-probes 1\n# load 0\n", 2),
            ("# kprof-probes 1\n# build-id xyz\n", 2),
            ("# kprof-probes 1\n# build-id -\n# load\n", 3),
        ] {
            assert_eq!(lines(text).find_map(Result::err).map(|error| error.line), Some(line), "{text}");
        }
    }

    #[test]
    fn a_header_that_ends_early_has_fewer_than_three_lines() {
        assert_eq!(lines("# kprof-probes 1\n").filter(Result::is_ok).count(), 1);
    }

    #[test]
    fn only_the_point_of_a_probe_has_an_address() {
        assert_eq!(address_of_point("probe.ffffffff80208c20"), Some(0xffff_ffff_8020_8c20));
        for other in ["probe.FFFFFFFF80208C20", "probe.ffffffff80208c2g", "probe.00ffffffff80208c20", "probe."] {
            assert_eq!(address_of_point(other), None, "{other}");
        }
        assert!(crate::point::is_name(&PointName(u64::MAX).to_string()));
    }
}
