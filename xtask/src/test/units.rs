//! Counts what the compiler is started for while a group runs: libraries, programs, tests, build scripts.
//!
//! In: the groups' processes. Out: a number for each, for the table. Cargo starts a script in place of the compiler,
//! which adds a byte to a file and then becomes the compiler. Cargo does not compile anything again because of it. Not
//! counted is what Miri compiles, because it ignores such a script.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The script's way to the file.
const VARIABLE: &str = "KPROF_UNITS";
/// What cargo starts, with the compiler and its arguments after it.
const WRAPPER: &str = "RUSTC_WRAPPER";

/// The units that one process has compiled.
pub struct Units {
    script: PathBuf,
    file: PathBuf,
}

impl Units {
    /// Counts from 0, in a file beside the log.
    ///
    /// # Errors
    /// If the file or the script cannot be written.
    pub fn none_yet(log: &Path) -> Result<Self> {
        let (script, file) = (log.with_file_name("count-and-compile"), log.with_extension("units"));
        fs::write(&file, "").with_context(|| file.display().to_string())?;
        // A probe of the compiler has no crate's name, or this one. Cargo asks for the compiler's version again if the
        // script has changed.
        let compiler = std::env::var(WRAPPER).unwrap_or_default();
        let text = format!(
            "#!/bin/sh\ncase \" $* \" in *' --crate-name ___ '*) ;; \
             *' --crate-name '*) printf . >> \"${VARIABLE}\" ;; esac\nexec {compiler} \"$@\"\n"
        );
        if fs::read_to_string(&script).is_ok_and(|kept| kept == text) {
            return Ok(Self { script, file });
        }
        fs::write(&script, text).with_context(|| script.display().to_string())?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(Self { script, file })
    }

    /// Counts what this process, and what it starts, compile.
    pub fn are_counted_of(&self, command: &mut Command) {
        command.env(WRAPPER, &self.script).env(VARIABLE, &self.file);
    }

    /// How many there are by now.
    ///
    /// # Errors
    /// If the file is gone.
    pub fn number(&self) -> Result<usize> {
        Ok(fs::metadata(&self.file).with_context(|| self.file.display().to_string())?.len() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    #[test]
    fn a_compilation_is_counted_and_a_probe_is_not_and_both_run() {
        let folder = run::root().join("target/tmp/units");
        fs::create_dir_all(&folder).unwrap();
        let units = Units::none_yet(&folder.join("a-group.log")).unwrap();
        for (words, number) in [
            (["echo", "-vV", "", ""], 0),
            (["echo", "-", "--crate-name", "___"], 0),
            (["echo", "--crate-name", "serde", "src/lib.rs"], 1),
            (["echo", "--crate-name", "kprof", "--test"], 2),
        ] {
            let mut command = Command::new(&units.script);
            units.are_counted_of(command.args(words));
            assert_eq!(run::output(&mut command).unwrap(), words[1..].join(" ") + "\n");
            assert_eq!(units.number().unwrap(), number, "{words:?}");
        }
    }
}
