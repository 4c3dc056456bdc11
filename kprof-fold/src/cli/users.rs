//! `--user-syms TASK=FILE`, and redox-kprofiling's fifth argument, a file with such lines. Stage: command line.
//!
//! In: tasks and symbol files. Out: their programs within the symbols, told apart by task.

use super::args::{ImageFile, Input};
use super::values::{self, Rest};
use crate::error::Error;
use crate::problems::Problems;
use crate::symbols::Symbols;
use crate::symbols::image::Placed;
use crate::symbols::users::MAX;
use std::io::Read;

/// Whether any are given.
pub fn are_given(input: &Input, rest: &Rest) -> bool {
    !input.user_syms.is_empty() || rest.user_list.is_some()
}

/// Opens all of them.
///
/// # Errors
/// The list or a symbol file cannot be read, or there are too many.
pub fn open(input: &Input, rest: &Rest, symbols: &mut Symbols, problems: &mut Problems) -> Result<(), Error> {
    let mut given = input.user_syms.clone();
    if let Some(list) = &rest.user_list {
        given.extend(listed(list)?);
    }
    for ImageFile { name, file } in given {
        let mut own = Symbols::open(&file, problems)?;
        let text = symbols.users.add(&name);
        let text = text.ok_or_else(|| Error::Usage(format!("more than {MAX} tasks with user symbols")))?;
        own.slide = text.0;
        let placed = Placed { name: name.clone(), text, symbols: own };
        symbols.add_image(placed).map_err(|_| Error::Usage(format!("two files with the user symbols of {name}")))?;
    }
    Ok(())
}

fn listed(list: &str) -> Result<Vec<ImageFile>, Error> {
    let mut text = String::new();
    crate::read::open(list)?.read_to_string(&mut text).map_err(|error| Error::io(list, "read", error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    let one = |(number, line): (usize, &str)| {
        let bad = |why| Error::unusable(list, format!("line {}: {why}", number + 1));
        values::image(line).map_err(bad)
    };
    lines.map(one).collect()
}
