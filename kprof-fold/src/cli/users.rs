//! `--user-syms TASK=FILE`, given once or more. Stage: command line.
//!
//! In: tasks and symbol files. Out: their programs among the symbols, distinguished by task.

use super::args::{ImageFile, Input};
use super::compat::Rest;
use crate::error::Error;
use crate::problems::Problems;
use crate::symbols::Symbols;
use crate::symbols::image::Placed;
use crate::symbols::users::MAX;

/// Whether any are given.
pub fn are_given(input: &Input, rest: &Rest) -> bool {
    !input.user_syms.is_empty() || rest.has_user_list()
}

/// Opens all these symbol files.
///
/// # Errors
/// If the list or a symbol file cannot be read, or if there are too many tasks.
pub fn open(input: &Input, rest: &Rest, symbols: &mut Symbols, problems: &mut Problems) -> Result<(), Error> {
    let mut given = input.user_syms.clone();
    given.extend(rest.user_symbols()?);
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
