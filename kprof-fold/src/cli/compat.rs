//! The arguments of redox-kprofiling 0.2, which this program accepts instead of its own: `FILE SYMS LETTERS GHZ
//! [USER-LIST]`. All code for them is in this file. Stage: command line.
//!
//! In: the arguments after FILE and SYMS. Out: the clock, and the settings that the letters and the list stand for; or
//! a message that says what to type. The letter `u` (tasks without symbols too) has no effect, because this is always
//! done.

use super::args::{ImageFile, Input};
use super::values;
use crate::error::Error;
use std::io::Read;

/// The arguments after FILE and SYMS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rest {
    /// The clock, in TSC ticks per second.
    pub tsc_hz: Option<f64>,
    /// Whether user samples and the user part of stacks are included: letter `U`.
    pub user: bool,
    /// The settings for the output of `script`.
    pub style: ScriptStyle,
    /// The fifth argument: a file with lines `TASK=SYMBOL-FILE`.
    user_list: Option<String>,
}

/// The settings of the letters for the output of `script`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptStyle {
    /// Whether offsets within functions are printed: letter `o`.
    pub offsets: bool,
    /// Whether offsets are printed as separate frames: letter `x`.
    pub expand_offsets: bool,
    /// Whether a stack ends at an address after the end of its symbol: letter `i`.
    pub stop_at_unknown: bool,
}

/// Whether the output is that of `script`. The letters `o`, `x` and `i` only apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The output is that of `script`.
    Script,
    /// Any other output: these letters are refused.
    Other,
}

impl Rest {
    /// Reads `[GHZ]`, or `LETTERS GHZ [USER-LIST]`.
    ///
    /// # Errors
    /// A message that says what to type.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let (letters, clock, list) = match arguments {
            [] => return Ok(Self::default()),
            [one] => return Ok(Self { tsc_hz: Some(values::ghz(one)?), ..Self::default() }),
            [letters, clock, rest @ ..] => (letters, clock, rest.first()),
        };
        if let Some(odd) = letters.chars().find(|letter| !"oxiuU_-".contains(*letter)) {
            return Err(format!(
                "`{letters}`: the third of redox-kprofiling's arguments has the letters o x i u U (or _ for none), not \
                 `{odd}`; type `kprof-fold FILE SYMS 2.2`"
            ));
        }
        let has = |letter: char| letters.contains(letter);
        let style = ScriptStyle { offsets: has('o'), expand_offsets: has('x'), stop_at_unknown: has('i') };
        Ok(Self { tsc_hz: Some(values::ghz(clock)?), user: has('U'), style, user_list: list.cloned() })
    }

    /// As [`read`](Self::read), for an output that may not support all letters.
    ///
    /// # Errors
    /// [`Error::Usage`] with a message that says what to type.
    pub fn for_output(input: &Input, output: Output) -> Result<Self, Error> {
        let rest = Self::read(&input.rest).map_err(Error::Usage)?;
        if output == Output::Other && rest.style != ScriptStyle::default() {
            return Err(Error::Usage(format!(
                "the letters o, x and i change what `perf script` prints, which is not what is made here. Type \
                 `kprof-fold script {} {} {}`; inferno-collapse-perf folds its output",
                input.file,
                input.syms,
                input.rest.join(" ")
            )));
        }
        Ok(rest)
    }

    /// Whether the fifth argument was given.
    pub const fn has_user_list(&self) -> bool {
        self.user_list.is_some()
    }

    /// The tasks and symbol files in the list of the fifth argument.
    ///
    /// # Errors
    /// If the list cannot be read, or a line of it is not `TASK=SYMBOL-FILE`.
    pub fn user_symbols(&self) -> Result<Vec<ImageFile>, Error> {
        let Some(list) = &self.user_list else { return Ok(Vec::new()) };
        let mut text = String::new();
        crate::read::open(list)?.read_to_string(&mut text).map_err(|error| Error::io(list, "read", error))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let one = |(number, line): (usize, &str)| {
            let bad = |why| Error::unusable(list, format!("line {}: {why}", number + 1));
            values::image(line).map_err(bad)
        };
        lines.map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_old_arguments_are_understood() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(Rest::read(&[]), Ok(Rest::default()));
        assert_eq!(Rest::read(&words("2.2")).unwrap().tsc_hz, Some(2.2e9));
        let old = Rest::read(&words("oxU 2.2 list")).unwrap();
        assert_eq!(old.style, ScriptStyle { offsets: true, expand_offsets: true, stop_at_unknown: false });
        assert_eq!((old.user, old.user_list.as_deref()), (true, Some("list")));
        assert!(Rest::read(&words("q 2.2")).unwrap_err().contains("kprof-fold FILE SYMS 2.2"));
    }
}
