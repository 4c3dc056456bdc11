//! What cargo-mutants found out about each change: tests notice it or not, it does not compile, or the tests did not
//! end within the time limit.
//!
//! In: the folder with the results of a run. Out: the names of the changes, the arguments that select some of them
//! again, and their numbers. Runs on the host, in `cargo xtask mutants`. It must never lose a change: a second run that
//! did not try all that it was to try is an error.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The changes of a run, by what became of them. A name is `FILE:LINE:COLUMN: CHANGE in FUNCTION`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// No test has noticed them.
    pub missed: Vec<String>,
    /// A test has failed.
    caught: Vec<String>,
    /// They do not compile.
    unviable: Vec<String>,
    /// The tests did not end within the time limit, which a test would report too.
    timed_out: Vec<String>,
}

impl Found {
    /// Reads the folder `mutants.out`. Without it there was nothing to change.
    ///
    /// # Errors
    /// If a file in the folder cannot be read.
    pub fn read(results: &Path) -> Result<Self> {
        if !results.exists() {
            return Ok(Self::default());
        }
        let lines = |name: &str| {
            let file = results.join(name);
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            Ok::<_, anyhow::Error>(text.lines().map(str::to_owned).collect())
        };
        Ok(Self {
            missed: lines("missed.txt")?,
            caught: lines("caught.txt")?,
            unviable: lines("unviable.txt")?,
            timed_out: lines("timeout.txt")?,
        })
    }

    /// The result of two runs, of which `again` has tried what this one has missed. What it has tried besides is left
    /// out: the first run has decided about it, or was not to try it.
    ///
    /// # Errors
    /// If `again` has not tried all of them.
    pub fn refined(mut self, mut again: Self) -> Result<Self> {
        let asked = std::mem::take(&mut self.missed);
        for part in [&mut again.missed, &mut again.caught, &mut again.unviable, &mut again.timed_out] {
            part.retain(|name| asked.contains(name));
        }
        let parts = [&again.missed, &again.caught, &again.unviable, &again.timed_out];
        if let Some(left) = asked.iter().find(|name| !parts.iter().any(|part| part.contains(name))) {
            bail!("the second run has not tried {left}");
        }
        self.caught.append(&mut again.caught);
        self.unviable.append(&mut again.unviable);
        self.timed_out.append(&mut again.timed_out);
        Ok(Self { missed: again.missed, ..self })
    }

    /// The numbers, in a sentence.
    pub fn summary(&self) -> String {
        let [missed, caught, unviable, timed_out] =
            [&self.missed, &self.caught, &self.unviable, &self.timed_out].map(Vec::len);
        let all = missed + caught + unviable + timed_out;
        format!("{all} changes: {caught} noticed, {timed_out} ended by the time limit, {unviable} not compiled")
    }
}

/// Arguments of cargo-mutants that select these changes. `--re` does not hold for the fields of a struct, so their
/// files are named too.
pub fn again(changes: &[String]) -> Vec<String> {
    let select = |name: &String| {
        let file = name.split(':').next().unwrap_or(name).to_owned();
        ["--file".to_owned(), file, "--re".to_owned(), format!("^{}$", regex_lite::escape(name))]
    };
    changes.iter().flat_map(select).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn a_second_run_decides_about_what_the_first_has_missed() {
        let first = || Found {
            missed: names(["c", "a", "b"]),
            caught: names(["d"]),
            unviable: names(["e"]),
            timed_out: names(["f"]),
        };
        let second = Found { missed: names(["b"]), caught: names(["a"]), timed_out: names(["c"]), ..Found::default() };
        let both = first().refined(second).unwrap();
        assert_eq!(both.missed, ["b"]);
        assert_eq!(both.summary(), "6 changes: 2 noticed, 2 ended by the time limit, 1 not compiled");
        let more = Found { caught: names(["a", "b", "c", "d", "x"]), ..Found::default() };
        assert_eq!(first().refined(more).unwrap().caught, ["d", "a", "b", "c"], "what was not asked for is left out");
        let fewer = Found { caught: names(["a", "b", "d"]), ..Found::default() };
        assert_eq!(first().refined(fewer).unwrap_err().to_string(), "the second run has not tried c");
    }

    #[test]
    fn a_pattern_selects_the_name_of_one_change_only() {
        let name = "kprof/src/a.rs:17:9: replace <impl A for B<'_>>::f -> Option<[u64; 2]> with Some((1, \"+\"))";
        let other = "kprof/src/a.rs:17:9: replace + with - in f";
        let arguments = again(&names([name, other]));
        assert_eq!(arguments[..3], ["--file", "kprof/src/a.rs", "--re"]);
        for (pattern, name) in [(&arguments[3], name), (&arguments[7], other)] {
            let pattern = regex_lite::Regex::new(pattern).unwrap();
            assert!(pattern.is_match(name), "{pattern}");
            assert!(
                !pattern.is_match(&format!("{name} again")) && !pattern.is_match(&name.replace('.', "_")),
                "{pattern}"
            );
            assert!(!pattern.is_match(&format!("1{name}")), "{pattern}");
        }
    }

    #[test]
    fn results_are_read_by_file_and_no_folder_means_no_change() {
        let folder = run_folder();
        assert_eq!(Found::read(&folder.join("none")).unwrap(), Found::default());
        for (file, text) in [("missed", "a\nb\n"), ("caught", "c\n"), ("unviable", ""), ("timeout", "d\n")] {
            fs::write(folder.join(file).with_extension("txt"), text).unwrap();
        }
        let found = Found::read(&folder).unwrap();
        assert_eq!((&found.missed, &found.caught), (&names(["a", "b"]), &names(["c"])));
        assert_eq!((&found.unviable, &found.timed_out), (&Vec::new(), &names(["d"])));
        fs::remove_file(folder.join("timeout.txt")).unwrap();
        assert!(Found::read(&folder).unwrap_err().to_string().contains("timeout.txt"));
        fs::remove_dir_all(folder).unwrap();
    }

    fn run_folder() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("kprof-mutants-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}
