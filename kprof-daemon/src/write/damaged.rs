//! A sample file that cannot be continued, because its beginning has become zeros.
//!
//! ```text
//! 0000 0000 0000 0000 ... # batch ... # end ...       another program truncated it while it was written, or the
//!                                                     machine lost power before the first sectors were on the disk
//! ```
//!
//! In: a file that does not begin as a profile. Out: whether it is one that has lost its beginning; a new name for it.
//! Runs in: user process, when a file is opened. Never deletes or changes a file, and never renames one that has
//! anything else than zeros where a profile begins.

use super::found;
use super::sample_file::with_suffix;
use crate::error::Error;
use crate::system::{self, Open, System, again};
use kprof_format::chunk::MAGIC;
use kprof_format::line::{Account, Batch, End, FIRST_LINE};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// How many files `NAME.bad`, `NAME.bad.2`, ... are kept before an administrator has to act.
const MAX_KEPT: u32 = 99;

/// How many bytes at the beginning of the file are zero. `None` if there are no such bytes, or if what follows them is
/// not a part of a profile. A file of zeros only counts too.
pub fn zeros_at_head<S: System>(system: &mut S, file: &mut S::File) -> io::Result<Option<u64>> {
    again(|| system.seek(file, 0))?;
    let mut buffer = vec![0; READ_BYTES];
    let mut zeros = 0;
    loop {
        let got = system::read(system, file, &mut buffer)?;
        let found = buffer[..got].iter().position(|byte| *byte != 0);
        zeros += found.unwrap_or(got) as u64;
        match found {
            None if got == 0 => return Ok((zeros > 0).then_some(zeros)),
            None => {}
            Some(_) if zeros == 0 => return Ok(None),
            Some(at) => {
                buffer.copy_within(at..got, 0);
                let more = system::read(system, file, &mut buffer[got - at..])?;
                return Ok(is_part_of_profile(&buffer[..got - at + more]).then_some(zeros));
            }
        }
    }
}

/// Renames a file to the first free name of `NAME.bad`, `NAME.bad.2` and so on, and returns that name.
///
/// # Errors
/// [`Error::Malformed`] if `path` is a link or there are too many such files, [`Error::Write`] if the system refuses.
pub fn move_away<S: System>(system: &mut S, path: &Path) -> Result<PathBuf, Error> {
    // A link is refused. The file itself is locked, as this session has opened it.
    found::look(system, path).map(drop).or_else(|error| match error {
        Error::Locked { .. } => Ok(()),
        other => Err(other),
    })?;
    let fails = |during| move |cause| Error::Write { path: path.into(), safe_bytes: 0, during, cause };
    for number in 1..=MAX_KEPT {
        let name = with_suffix(path, &if number == 1 { "bad".into() } else { format!("bad.{number}") });
        match again(|| system.open(&name, Open::ProbeNoLink)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                again(|| system.rename(path, &name)).map_err(fails("renaming it to NAME.bad"))?;
                again(|| system.sync_folder(path)).map_err(fails("writing its folder to the disk"))?;
                return Ok(name);
            }
            _ => {}
        }
    }
    let what = format!("its beginning is lost, and {MAX_KEPT} such files are kept already; move them away");
    Err(Error::Malformed { path: path.into(), what })
}

/// Whether these bytes, which may begin anywhere, contain the beginning of a chunk or one of the text form's lines.
fn is_part_of_profile(bytes: &[u8]) -> bool {
    let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let words = [Batch::WORD, End::WORD, Account::WORD];
    contains(&MAGIC)
        || contains(FIRST_LINE.as_bytes())
        || words.iter().any(|word| contains(format!("# {word} cpu=").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chunks_and_lines_of_a_profile_are_parts_of_one() {
        assert!(is_part_of_profile(b"es=3\n# batch cpu=1 from=0"));
        assert!(is_part_of_profile(b"\n# end cpu=meta to=12\n"));
        assert!(is_part_of_profile(&[b"..", &MAGIC[..]].concat()));
        assert!(!is_part_of_profile(b"# a batch of notes\n# end\n"));
        assert!(!is_part_of_profile(b""));
    }
}
