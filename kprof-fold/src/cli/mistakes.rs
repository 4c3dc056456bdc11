//! Messages for arguments that are mistyped or in the wrong order. Stage: command line, before anything is read.
//!
//! In: the arguments. Out: an error that says what to type instead, or nothing. Looks at the first bytes of regular
//! files only: reading from a pipe would take its content away from the real reader.

use super::args::{Cli, Input};
use super::nearest::did_you_mean;
use super::of_perf;
use crate::error::Error;
use crate::read::form::{self, Form};
use crate::symbols::elf;
use clap::CommandFactory;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes that are enough to recognise a file.
const HEAD_BYTES: u64 = 64 * 1024;

/// What a file is, judged by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Elf,
    Nm,
    Profile,
    Other,
}

/// Refuses `kprof-fold reprot PROFILE KERNEL`, in which the first word is no file but resembles a subcommand.
///
/// # Errors
/// [`Error::Usage`] in this case.
pub fn verb(input: &Input) -> Result<(), Error> {
    if input.file == "-" || input.file.contains(['/', '.']) || Path::new(&input.file).exists() {
        return Ok(());
    }
    if let Some(answer) = of_perf::verb(&input.file) {
        return Err(Error::Usage(answer));
    }
    let cli = Cli::command();
    let meant = did_you_mean(&input.file, cli.get_subcommands().map(clap::Command::get_name));
    if meant.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!("`{}` is neither a subcommand nor a file{meant}", input.file)))
}

/// Refuses a kernel that was given as the profile, or a profile that was given as the kernel.
///
/// # Errors
/// [`Error::Usage`] in this case.
pub fn swapped(input: &Input) -> Result<(), Error> {
    let (file, syms) = (content(&input.file), content(&input.syms));
    let (name, what) = match (file, syms) {
        (Content::Elf, _) => (&input.file, "a kernel image (ELF), not a profile"),
        (Content::Nm, _) => (&input.file, "a list of symbols, not a profile"),
        (_, Content::Profile) => (&input.syms, "a profile, not symbols"),
        _ => return Ok(()),
    };
    let todo = match (file, syms) {
        (Content::Elf | Content::Nm, Content::Profile) => {
            format!("the arguments are swapped; give {} {}", input.syms, input.file)
        }
        _ => "give the profile first, then the kernel's ELF file or what `nm -CS` prints of it".to_owned(),
    };
    Err(Error::Usage(format!("{name} is {what}: {todo}")))
}

/// Refuses `annotate FUNCTION PROFILE KERNEL`: in every verb the profile comes first.
///
/// # Errors
/// [`Error::Usage`] in this case.
pub fn function_first(input: &Input, last: &str) -> Result<(), Error> {
    match (content(&input.syms), is_symbols(last)) {
        (Content::Profile, true) => Err(Error::Usage(format!(
            "the profile comes first, then the kernel, then the function: annotate {} {last} {}",
            input.syms, input.file
        ))),
        _ => Ok(()),
    }
}

/// Names that are similar to that of a file that does not exist, in the folder where it should be.
pub fn similar_files(error: &Error) -> String {
    let Error::Io { file, doing: "open", source } = error else { return String::new() };
    if source.kind() != ErrorKind::NotFound {
        return String::new();
    }
    let path = Path::new(file);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(folder.unwrap_or(Path::new("."))) else { return String::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    did_you_mean(&wanted, names.iter().map(String::as_str))
}

/// Whether a regular file holds symbols: an ELF file, or what `nm` prints.
pub fn is_symbols(file: &str) -> bool {
    matches!(content(file), Content::Elf | Content::Nm)
}

fn content(file: &str) -> Content {
    let mut head = Vec::new();
    let is_regular = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
    let opened = if is_regular { crate::read::open(file).ok() } else { None };
    let Some(Ok(_)) = opened.map(|reader| reader.take(HEAD_BYTES).read_to_end(&mut head)) else {
        return Content::Other;
    };
    match form::of(&head) {
        _ if head.starts_with(elf::MAGIC) => Content::Elf,
        Form::Kprof | Form::Binary | Form::Serial => Content::Profile,
        _ if !head.is_empty() && head.split(|byte| *byte == b'\n').take(3).all(is_symbol_or_end) => Content::Nm,
        _ => Content::Other,
    }
}

/// Whether a line is one of `nm`, or what is left after the last one.
fn is_symbol_or_end(line: &[u8]) -> bool {
    line.is_empty() || is_symbol(line)
}

/// Whether a line is of the kind that `nm` prints: 16 digits, perhaps 16 more, a letter, a name. No profile has it.
fn is_symbol(line: &[u8]) -> bool {
    let is_address = |word: &&[u8]| word.len() == 16 && word.iter().all(u8::is_ascii_hexdigit);
    let mut words = line.split(|byte| *byte == b' ').peekable();
    let begins = words.peek().is_some_and(is_address);
    let kind = words.find(|word| !is_address(word));
    begins && kind.is_some_and(|kind| kind.len() == 1 && kind[0].is_ascii_alphabetic()) && words.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_nm_is_told_from_a_line_of_a_profile() {
        for (line, is) in [
            (&b"ffffffff80001000 T kmain"[..], true),
            (b"ffffffff80001000 0000000000000100 t mm::map of a b", true),
            (b"a 0 1 ffffffff80001000", false),
            (b"ffffffff80001000 0 1 ffffffff80001000", false),
            (b"0 ffffffff80001000 1 ffffffff80001000", false),
            (b"# kprof-profile 1", false),
            (b"", false),
        ] {
            assert_eq!(is_symbol(line), is, "{}", String::from_utf8_lossy(line));
        }
    }
}
