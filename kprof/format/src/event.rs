//! Records of single hits of a point: their words in an event ring, and their lines in the text form.
//!
//! ```text
//! [`EventHeader`], then the arguments, at most six, then return addresses and markers, innermost first
//!
//! !<point> <task> <cpu> <tsc> <weight> <arguments or -> <address> <address> ...
//! !null.write dd 1 5fd0a2c1 4096 - ffffffff80203c4d ffffffff80241000
//! ```
//!
//! In: words, or a line. Out: the parts of an event. Runs in: any; no allocation. Never panics on foreign input. In a
//! line the weight is decimal. `x10` after it says that the hit is one of ten, and `~65536` that it was drawn by
//! weight, on average once in that sum of weights. CPU, TSC and arguments are hex. Names are escaped.

use crate::line::Name;
use crate::point::PointState;
use crate::record::EventHeader;
use crate::text::{Hex, decimal, parse_hex};
use core::fmt::{self, Display, Formatter};

/// The first character of a line.
pub const LINE_BEGINS: u8 = b'!';
/// The most arguments of a record: those of a call that a probe has seen. A hit of a point has at most two.
pub const MAX_ARGUMENTS: usize = 6;

/// What a record says of a hit, apart from its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The id of the point.
    pub point: u64,
    /// When it was hit, in TSC ticks.
    pub tsc: u64,
    /// The id of the task.
    pub task: u64,
    /// The weight of the hit.
    pub weight: u64,
    /// How the hit was chosen for a record: a state that records.
    pub state: PointState,
    /// Its arguments.
    pub arguments: Arguments,
}

/// The arguments of a hit: at most [`MAX_ARGUMENTS`] numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    values: [u64; MAX_ARGUMENTS],
    count: usize,
}

impl Arguments {
    /// These arguments; those for which there is no room are left out.
    #[inline(always)]
    pub fn of(arguments: &[u64]) -> Self {
        let mut values = [0; MAX_ARGUMENTS];
        values.iter_mut().zip(arguments).for_each(|(value, argument)| *value = *argument);
        Self { values, count: arguments.len().min(MAX_ARGUMENTS) }
    }

    /// The arguments.
    #[inline(always)]
    pub fn as_slice(&self) -> &[u64] {
        self.values.get(..self.count).unwrap_or(&self.values)
    }
}

impl Event {
    /// The word [`EventHeader::point`] of the record of a point with this id.
    #[inline(always)]
    pub fn point_word(point: u64, arguments: &[u64]) -> u64 {
        point & 0xffff_ffff | (arguments.len() as u64) << 32
    }

    /// What the words of a record say, and the index of its first address. `None` if they are not those of an event.
    pub fn of(word: impl Fn(usize) -> u64, words: usize) -> Option<(Self, usize)> {
        let EventHeader { position: _, point, tsc, task, weight, state } = EventHeader::read(&word);
        let (point, count) = (point & 0xffff_ffff, usize::try_from(point >> 32).ok()?);
        let stack = EventHeader::WORDS.checked_add(count).filter(|stack| count <= MAX_ARGUMENTS && *stack < words)?;
        let mut arguments = Arguments { count, ..Arguments::default() };
        arguments.values.iter_mut().take(count).zip(EventHeader::WORDS..).for_each(|(value, at)| *value = word(at));
        let state = PointState::decode(state).filter(|state| state.records())?;
        Some((Self { point, tsc, task, weight, state, arguments }, stack))
    }
}

/// A line, up to its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLine<'a> {
    /// The name of the point.
    pub point: Name<'a>,
    /// The name of the task.
    pub task: Name<'a>,
    /// The CPU.
    pub cpu: u32,
    /// When the point was hit, in TSC ticks.
    pub tsc: u64,
    /// The weight of the hit.
    pub weight: u64,
    /// How the hit was chosen for a record.
    pub state: PointState,
    /// Its arguments.
    pub arguments: Arguments,
}

impl Display for EventLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "!{} {} {:x} {:x} {}", self.point, self.task, self.cpu, self.tsc, self.weight)?;
        match self.state {
            PointState::Every(hits) => write!(f, "x{hits}")?,
            PointState::ByWeight(weight) => write!(f, "~{weight}")?,
            PointState::Off | PointState::Count | PointState::Record => {}
        }
        let mut before = " ";
        for argument in self.arguments.as_slice() {
            write!(f, "{before}{:x}", argument)?;
            before = ",";
        }
        if before == " " { f.write_str(" -") } else { Ok(()) }
    }
}

impl<'a> EventLine<'a> {
    /// Parses a line without its line end. Also returns the text of its addresses. `None` if it is not such a line.
    ///
    /// ```
    /// use kprof_format::event::EventLine;
    /// use kprof_format::point::PointState;
    /// let text = "!page.fault a%20b 1 5fd 9100~65536 7,ff ffffffff80203c4d ffffffff80241000";
    /// let (line, addresses) = EventLine::parse(text).unwrap();
    /// assert_eq!((line.cpu, line.tsc, line.weight), (1, 0x5fd, 9100));
    /// assert_eq!((line.state, line.arguments.as_slice()), (PointState::ByWeight(65_536), &[7, 255][..]));
    /// assert_eq!(format!("{line} {addresses}"), text);
    /// assert!(EventLine::parse("!page.fault a 1 5fd -1 - ffffffff80203c4d").is_none());
    /// ```
    pub fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        let mut fields = text.strip_prefix('!')?.splitn(7, ' ');
        let mut next = || fields.next().filter(|field| !field.is_empty());
        let [point, task, cpu, tsc, weight, arguments] = [next()?, next()?, next()?, next()?, next()?, next()?];
        let (weight, state) = weight_and_state(weight)?;
        let line = Self {
            point: Name::Escaped(point.as_bytes()),
            task: Name::Escaped(task.as_bytes()),
            cpu: u32::try_from(parse_hex(cpu.as_bytes())?).ok()?,
            tsc: parse_hex(tsc.as_bytes())?,
            weight,
            state,
            arguments: arguments_of(arguments)?,
        };
        next().map(|addresses| (line, addresses))
    }
}

/// The addresses of a line, innermost first; `None` for one that is not plain hex.
pub fn addresses(text: &str) -> impl Iterator<Item = Option<u64>> {
    text.split(' ').map(|address| parse_hex(address.as_bytes()))
}

/// An address as it is written in a line.
pub fn address(word: u64) -> Hex {
    Hex::new(word)
}

fn weight_and_state(text: &str) -> Option<(u64, PointState)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (weight, rest) = text.split_at(end);
    let state = match rest.split_at_checked(1) {
        None => PointState::Record,
        Some(("x", hits)) => PointState::Every(decimal(hits)?),
        Some(("~", weight)) => PointState::ByWeight(decimal(weight)?),
        Some(_) => return None,
    };
    PointState::decode(state.encode()).filter(|known| *known == state)?;
    Some((weight.parse().ok()?, state))
}

fn arguments_of(text: &str) -> Option<Arguments> {
    let mut values = [0; MAX_ARGUMENTS];
    let mut count = 0;
    for argument in text.split(',').filter(|_| text != "-") {
        *values.get_mut(count)? = parse_hex(argument.as_bytes())?;
        count += 1;
    }
    Some(Arguments { values, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn event(words: &[u64]) -> Option<(Event, usize)> {
        Event::of(|at| words.get(at).copied().unwrap_or(0), words.len())
    }

    #[test]
    fn the_words_of_a_record_come_back_and_impossible_ones_are_refused() {
        for (state, arguments) in [
            (PointState::Record, &[][..]),
            (PointState::Every(10), &[7]),
            (PointState::ByWeight(9), &[1, 2, 3, 4, 5, 6]),
        ] {
            let point = Event::point_word(3, arguments);
            let head = EventHeader { position: 64, point, tsc: 0x1f, task: 8, weight: 4096, state: state.encode() };
            let words: std::vec::Vec<u64> = head.words().iter().chain(arguments).copied().chain([0xa0, 0xa1]).collect();
            let (found, stack) = event(&words).unwrap();
            let expected =
                Event { point: 3, tsc: 0x1f, task: 8, weight: 4096, state, arguments: Arguments::of(arguments) };
            assert_eq!((found, &words[stack..]), (expected, &[0xa0, 0xa1][..]));
            assert_eq!(event(&words[..stack]), None, "no address");
        }
        let record = |point, state: PointState, rest: &[u64]| {
            let head = EventHeader { position: 0, point, tsc: 0, task: 0, weight: 0, state: state.encode() };
            [&head.words()[..], rest].concat()
        };
        assert_eq!(event(&record(7 << 32, PointState::Record, &[1, 2, 3, 4, 5, 6, 7, 8])), None, "seven arguments");
        for state in [PointState::Off, PointState::Count] {
            assert_eq!(event(&record(3, state, &[1])), None, "{state} records nothing");
        }
    }

    #[test]
    fn a_line_comes_back_and_a_malformed_one_is_refused() {
        for text in [
            "!a %00 0 0 0 - 0",
            "!null.write id8 1f ffffffffffffffff 18446744073709551615 0 ffffffff80201000",
            "!%23x y 1 5 7x10 1,2,3,4,5,6 fffffffffffff401",
            "!b y 1 5 7~4096 - a b c",
        ] {
            let (line, rest) = EventLine::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(std::format!("{line} {rest}"), text);
            assert!(addresses(rest).all(|address| address.is_some()));
            assert!(
                rest.split(' ').eq(addresses(rest)
                    .map(|word| { core::str::from_utf8(address(word.unwrap()).as_bytes()).unwrap().to_string() }))
            );
        }
        for text in [
            "null.write id8 1 5 4096 - a",
            "!null.write id8 1 5 4096 -",
            "!null.write id8 1 5 4096 - ",
            "! id8 1 5 4096 - a",
            "!a id8 100000000 5 4096 - a",
            "!a id8 1 5g 4096 - a",
            "!a id8 1 5 4096x0 - a",
            "!a id8 1 5 4096~ - a",
            "!a id8 1 5 4096z9 - a",
            "!a id8 1 5 x9 - a",
            "!a id8 1 5 9 1,2,3,4,5,6,7 a",
            "!a id8 1 5 9 , a",
            "!a id8 1 5 18446744073709551616 - a",
        ] {
            assert!(EventLine::parse(text).is_none(), "{text}");
        }
        assert!(addresses("a  b").any(|address| address.is_none()));
    }
}
