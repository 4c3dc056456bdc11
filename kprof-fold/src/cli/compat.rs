//! The arguments of redox-kprofiling 0.2, which this program takes in the place of its own: `FILE SYMS LETTERS GHZ
//! [USER-LIST]`. Everything that knows of them is here. Stage: command line.
//!
//! In: what follows FILE and SYMS. Out: the clock, and what the letters and the list ask for, in this program's own
//! terms; or a message that says what to type. `u` (tasks without symbols too) asks for what is always done.

use super::args::{ImageFile, Input};
use super::values;
use crate::error::Error;
use std::io::Read;

/// What follows FILE and SYMS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rest {
    /// The clock, TSC ticks in a second.
    pub tsc_hz: Option<f64>,
    /// User samples and the user part of stacks too: letter `U`.
    pub user: bool,
    /// What is asked of the output of `script`.
    pub style: ScriptStyle,
    /// The fifth argument: a file with lines `CONTEXT=SYMBOL-FILE`.
    user_list: Option<String>,
}

/// What the letters ask of the output of `script`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptStyle {
    /// Offsets within functions: letter `o`.
    pub offsets: bool,
    /// Offsets as frames of their own: letter `x`.
    pub expand_offsets: bool,
    /// A stack ends at an address past its symbol: letter `i`.
    pub stop_at_unknown: bool,
}

/// Whether the output is that of `script`, which the letters `o`, `x` and `i` change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is.
    Script,
    /// It is not: these letters are refused.
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

    /// The same for an output, which may not know all letters.
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

    /// The contexts and symbol files in the list of the fifth argument.
    ///
    /// # Errors
    /// The list cannot be read, or a line of it is not `CONTEXT=SYMBOL-FILE`.
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
