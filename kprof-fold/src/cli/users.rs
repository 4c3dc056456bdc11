//! `--user-syms TASK=FILE`: symbols of the program that a task runs. May be repeated. Stage: command line.
//!
//! In: tasks and symbol files; the stacks of those tasks. Out: their programs among the symbols, distinguished by task,
//! at the addresses where they ran.

use super::args::{ImageFile, Input};
use super::compat::Rest;
use super::talk::Talk;
use crate::error::Error;
use crate::problems::Problems;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::symbols::image::Placed;
use crate::symbols::program;
use crate::symbols::users::MAX;
use crate::watch::Watch;

/// Whether any `--user-syms` is given.
pub fn are_given(input: &Input, rest: &Rest) -> bool {
    !input.user_syms.is_empty() || rest.has_user_list()
}

/// Opens all these symbol files.
///
/// # Errors
/// If the list or a symbol file cannot be read, or if there are too many tasks.
pub fn open(input: &Input, rest: &Rest, symbols: &mut Symbols, problems: &mut Problems) -> Result<(), Error> {
    for ImageFile { name, file } in files(input, rest)? {
        let mut own = Symbols::open(&file, problems)?;
        let text = symbols.users.add(&name);
        let text = text.ok_or_else(|| Error::Usage(format!("more than {MAX} tasks with user symbols")))?;
        own.slide = text.0;
        let placed = Placed { name: name.clone(), text, symbols: own };
        symbols.add_image(placed).map_err(|_| Error::Usage(format!("two files with the user symbols of {name}")))?;
    }
    Ok(())
}

fn files(input: &Input, rest: &Rest) -> Result<Vec<ImageFile>, Error> {
    let mut given = input.user_syms.clone();
    given.extend(rest.user_symbols()?);
    Ok(given)
}

/// The tasks whose stacks [`settle`] needs.
///
/// # Errors
/// If the list of files cannot be read.
pub fn watch(input: &Input, rest: &Rest) -> Result<Watch, Error> {
    Ok(files(input, rest)?.into_iter().map(|given| (given.name.into_bytes(), Default::default())).collect())
}

/// Moves each program to where it ran, and checks that its symbols are those of the program that ran. `doubt` is called
/// with the name of a file and the reason against it.
///
/// # Errors
/// If the list of files cannot be read; what `doubt` returns.
pub fn settle(
    (input, rest): (&Input, &Rest),
    symbols: &mut Symbols,
    (stacks, watch): (&Stacks, &Watch),
    talk: Talk,
    mut doubt: impl FnMut(&str, &str, String) -> Result<(), Error>,
) -> Result<(), Error> {
    for ImageFile { name, file } in files(input, rest)? {
        let seen = watch.get(name.as_bytes()).into_iter().flatten().copied();
        let addresses = program::addresses(stacks, seen);
        let Some(Placed { symbols, .. }) = symbols.image_mut(&name) else { continue };
        let (distance, why) = program::place(&addresses, symbols);
        symbols.slide = symbols.slide.wrapping_add(distance);
        if distance != 0 {
            talk.say(format_args!("{file}: {name} ran {distance:#x} higher than its symbols (by its instructions)"));
        }
        if let Some(why) = why {
            doubt(&file, &name, why)?;
        }
    }
    Ok(())
}
