//! Out: writes the output to its destination. Stage: command line, the last step of every subcommand.
//!
//! In: bytes. Out: standard output, or the file of `-o`. The file is either complete or unchanged: the output is
//! written to a temporary file in the same folder, which is renamed at the end. Never overwrites a file that was read.
//! Never ignores an error: every output is flushed here.

use super::args::Input;
use super::talk::Talk;
use crate::error::Error;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const BUFFER_BYTES: usize = 64 * 1024;
/// Permissions of a new file, before the user's umask is applied.
const NEW_FILE: u32 = 0o666;

/// Gives `write` the output that the user asked for.
///
/// # Errors
/// If the output is a file that was read, or cannot be written; or the errors of `write`.
pub fn with_output(input: &Input, write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<(), Error> {
    put(input.output.as_deref(), input.quiet, &input.files(), write)
}

/// As [`with_output`], for any list of input files.
///
/// # Errors
/// As [`with_output`].
pub fn put(
    output: Option<&str>,
    quiet: bool,
    inputs: &[&str],
    write: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    match output {
        None | Some("-") => to_stdout(write),
        Some(file) => {
            refuse_input(file, inputs)?;
            to_file(file, write)?;
            Talk { quiet }.say(format_args!("wrote {file}"));
            Ok(())
        }
    }
}

/// Gives `write` standard output.
///
/// # Errors
/// If standard output cannot be written; or the errors of `write`.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    write(&mut out)?;
    out.flush().map_err(|error| Error::io("standard output", "write", error))
}

/// The error for output that could not be written.
pub fn write_failed(input: &Input, error: io::Error) -> Error {
    not_written(input.output.as_deref(), error)
}

/// As [`write_failed`], for an output that is given by name.
pub fn not_written(output: Option<&str>, error: io::Error) -> Error {
    Error::io(output.filter(|file| *file != "-").unwrap_or("standard output"), "write", error)
}

/// Refuses an output that is one of the files that were read, under whatever name.
fn refuse_input(output: &str, inputs: &[&str]) -> Result<(), Error> {
    let identity = |file: &str| fs::metadata(file).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let Some(place) = identity(output) else { return Ok(()) };
    match inputs.iter().find(|input| identity(input) == Some(place)) {
        Some(input) => Err(Error::Usage(format!(
            "-o {output}: is the same file as the input {input}, which would be lost; give another name"
        ))),
        None => Ok(()),
    }
}

fn to_file(file: &str, write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<(), Error> {
    let failed = |doing| move |error| Error::io(file, doing, error);
    let there = fs::metadata(file).ok();
    // A symbolic link stays; the file that it points to is replaced.
    let place = fs::canonicalize(file).unwrap_or_else(|_| Path::new(file).to_owned());
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let rights = Permissions::from_mode(there.as_ref().map_or(NEW_FILE, |there| there.mode() & 0o7777));
    let is_special = there.as_ref().is_some_and(|there| !there.is_file());
    let beside = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kprof-fold-").permissions(Permissions::from_mode(NEW_FILE)).tempfile_in(folder).ok()
    };
    match if is_special { None } else { beside() } {
        Some(mut temporary) => {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, temporary.as_file_mut());
            write(&mut out)?;
            out.flush().map_err(failed("write"))?;
            drop(out);
            if there.is_some() {
                temporary.as_file().set_permissions(rights).map_err(failed("write"))?;
            }
            temporary.persist(&place).map(drop).map_err(|error| failed("write")(error.error))
        }
        // A device or a pipe cannot be replaced by a file, and a folder may not allow new files. The output is then
        // written directly.
        None => {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(file).map_err(failed("create"))?);
            write(&mut out)?;
            out.flush().map_err(failed("write"))
        }
    }
}
