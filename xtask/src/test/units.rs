//! Counts what the compiler is started for while a group runs: libraries, programs, tests, build scripts.
//!
//! In: the groups' processes. Out: a number for each, for the table. Cargo starts a copy of this program in place of
//! the compiler, which adds a byte to a file and then becomes the compiler. (A script of a shell could not: it drops
//! what cargo says in variables like `CARGO_BIN_EXE_kprof-fold`.) Cargo does not compile anything again because of it.
//! Not counted is what Miri compiles, because it ignores such a program.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Error, Result};

use crate::run;

/// The copy's name, by which it knows what it has to do.
const NAME: &str = "count-and-compile";
/// Its way to the file.
const VARIABLE: &str = "KPROF_UNITS";
/// What cargo starts, with the compiler and its arguments after it.
const WRAPPER: &str = "RUSTC_WRAPPER";
/// What the user has there.
const USERS_WRAPPER: &str = "KPROF_RUSTC_WRAPPER";

/// If this process was started in place of the compiler, becomes the compiler. Returns why it cannot.
pub fn become_compiler() -> Option<Error> {
    let mut words = std::env::args_os();
    if !is_copy(Path::new(&words.next()?)) {
        return None;
    }
    let compiler = std::env::var_os(USERS_WRAPPER).into_iter().chain(words).collect::<Vec<_>>();
    let counted = count(&compiler, std::env::var_os(VARIABLE).as_deref().map(Path::new));
    Some(counted.err().unwrap_or_else(|| match compiler.split_first() {
        Some((program, words)) => Error::new(Command::new(program).args(words).exec()).context(format!("{program:?}")),
        None => anyhow::anyhow!("there is no compiler to start"),
    }))
}

/// The user's own wrapper. Where tests run in a group of tests it is a copy of the outer ones, which is not the user's:
/// started by the inner copy, it would start itself again and again.
fn of_user(wrapper: Option<OsString>) -> Option<OsString> {
    wrapper.filter(|wrapper| !is_copy(Path::new(wrapper)))
}

/// Whether this is such a copy.
fn is_copy(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == NAME)
}

/// Adds a byte to the file if the compiler compiles something. When cargo asks it questions, it names no crate, or
/// this.
fn count(compiler: &[OsString], file: Option<&Path>) -> Result<()> {
    let mut after = compiler.iter().skip_while(|word| *word != "--crate-name").skip(1);
    if let (Some(file), Some(name)) = (file, after.next())
        && name != "___"
    {
        let opened = fs::OpenOptions::new().append(true).open(file);
        opened.and_then(|mut file| file.write_all(b".")).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// The copy of this program.
pub struct Counter(PathBuf);

impl Counter {
    /// Puts it into a folder. A build may replace the program itself while groups run.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let copy = folder.join(NAME);
        run::copy_whole(&std::env::current_exe()?, &copy).with_context(|| copy.display().to_string())?;
        Ok(Self(copy))
    }

    /// Counts what this process, and what it starts, compile, in a file beside the log.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn watch(&self, command: &mut Command, log: &Path) -> Result<()> {
        fs::write(file_of(log), "").with_context(|| log.display().to_string())?;
        command.env(WRAPPER, &self.0).env(VARIABLE, file_of(log));
        if let Some(users) = of_user(std::env::var_os(WRAPPER)) {
            command.env(USERS_WRAPPER, users);
        }
        Ok(())
    }
}

/// How many units the process with this log has compiled.
///
/// # Errors
/// If they were not counted.
pub fn number(log: &Path) -> Result<usize> {
    Ok(fs::metadata(file_of(log)).with_context(|| log.display().to_string())?.len() as usize)
}

fn file_of(log: &Path) -> PathBuf {
    log.with_extension("units")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compilation_is_counted_and_a_question_is_not() {
        let folder = run::root().join("target/tmp/units");
        fs::create_dir_all(&folder).unwrap();
        let log = folder.join("a-group.log");
        Counter(folder.join(NAME)).watch(&mut Command::new("true"), &log).unwrap();
        for (words, units) in [
            ("rustc -vV", 0),
            ("rustc - --crate-name ___ --print=file-names", 0),
            ("rustc --crate-name serde src/lib.rs", 1),
            ("sccache rustc --crate-name kprof --test", 2),
            ("rustc --crate-name", 2),
        ] {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            count(&words, Some(&file_of(&log))).unwrap();
            assert_eq!(number(&log).unwrap(), units, "{words:?}");
        }
        assert!(count(&["--crate-name".into(), "a".into()], None).is_ok(), "nobody counts");
    }

    #[test]
    fn tests_in_a_group_of_tests_do_not_start_the_copy_of_the_outer_ones() {
        assert_eq!(of_user(Some("/usr/bin/sccache".into())), Some("/usr/bin/sccache".into()));
        assert_eq!(of_user(Some("target/test/count-and-compile".into())), None);
        assert_eq!(of_user(None), None);
    }
}
