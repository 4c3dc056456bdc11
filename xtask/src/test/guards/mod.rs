//! Checks for readable sources, which no compiler makes. They are a part of the group `lint`.
//!
//! In: the files that git knows. Out: checks of the paths that are named, of import circles, of the commands and of the
//! Rust code in documents, and of line lengths. A failed check names the file and the line.

mod blocks;
mod circles;
mod commands;
mod imports;
mod lines;
mod paths;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::outcome::Outcome;
use crate::run;

/// The folders of sources whose imports must have no circle of more than one folder. Packages of a single folder need
/// no check.
const NO_CIRCLES: [&str; 12] = [
    "kernel-integration/ports/bare-virt/src",
    "kernel-integration/ports/redox/src",
    "kernel-integration/qemu/plugin",
    "kernel-integration/qemu/src",
    "kprof/src",
    "kprof/events/src",
    "kprof/format/src",
    "kprof/port/src",
    "kprof-daemon/src",
    "kprof-fold/src",
    "test-kernel/src",
    "xtask/src",
];

/// Not checked is the template for ports: its optional parts use the profiler, whose hooks call them.
const MAY_HAVE_CIRCLES: [&str; 1] = ["kernel-integration/ports/bare/src"];

/// A file: its path from the repository's root, and its text.
struct Source {
    path: String,
    text: String,
}

/// Runs the checks. `verbs` is the command line of this program.
///
/// # Errors
/// If git does not list the files.
pub fn run(outcome: &mut Outcome, verbs: fn() -> clap::Command) -> Result<()> {
    let root = run::root();
    let listed = run::output(Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(&root))?;
    let files: Vec<&str> = listed.lines().filter(|path| root.join(path).is_file()).collect();
    let sources = read(&root, &files)?;
    outcome.check("every path named in docs and comments exists", none(&paths::missing(&sources, &files)));
    outcome.check("the import circles of every package of several folders are looked for", none(&unchecked(&files)));
    for folder in NO_CIRCLES {
        let found = circles::in_package(&sources, folder);
        outcome.check(&format!("{folder} has no import circle of more than one folder"), none(&found));
    }
    let refused = commands::refused(&sources, verbs)?;
    outcome.check("every command in documents is accepted by its program", none(&refused));
    outcome.check("the Rust code in documents is compiled", none(&blocks::not_compiled(&sources)));
    outcome.check("lines have at most 120 characters", none(&lines::too_long(&sources)));
    Ok(())
}

/// The files that people read: code, documents, scripts.
fn read(root: &Path, files: &[&str]) -> Result<Vec<Source>> {
    const READ: [&str; 12] = ["rs", "md", "sh", "toml", "mjs", "js", "css", "html", "py", "yml", "ld", "mk"];
    let is_read = |path: &&&str| path.rsplit_once('.').is_some_and(|(_, end)| READ.contains(&end));
    let one = |path: &&str| {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| (*path).to_owned())?;
        Ok(Source { path: (*path).to_owned(), text })
    };
    files.iter().filter(is_read).map(one).collect()
}

/// The packages of several folders whose circles nobody looks for.
fn unchecked(files: &[&str]) -> Vec<String> {
    let folder = |path: &&str| {
        let (package, inside) = path.rsplit_once("/src/").filter(|_| path.ends_with(".rs"))?;
        inside.split_once('/').filter(|(inner, _)| *inner != "bin").map(|_| format!("{package}/src"))
    };
    let found: BTreeSet<String> = files.iter().filter_map(folder).collect();
    let is_known = |folder: &String| [&NO_CIRCLES[..], &MAY_HAVE_CIRCLES].concat().contains(&&folder[..]);
    found.into_iter().filter(|folder| !is_known(folder)).collect()
}

fn none(found: &[String]) -> Result<()> {
    if found.is_empty() { Ok(()) } else { bail!("{} found:\n{}", found.len(), found.join("\n")) }
}

/// A source for the tests of the checks.
#[cfg(test)]
fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_several_folders_must_be_checked() {
        let files = ["new/src/lib.rs", "new/src/a/mod.rs", "one/src/lib.rs", "tools/src/bin/a.rs", "kprof/src/a/b.rs"];
        assert_eq!(unchecked(&files), ["new/src"]);
    }

    #[test]
    fn files_of_every_kind_that_people_read_are_read() {
        let root = run::root().join("target/tmp/guards");
        std::fs::create_dir_all(&root).unwrap();
        let names =
            ["a.rs", "a.md", "a.sh", "a.toml", "a.mjs", "a.js", "a.css", "a.html", "a.py", "a.yml", "a.ld", "a.mk"];
        let all = [&names[..], &["a.png", "a.case", "a"]].concat();
        all.iter().for_each(|name| std::fs::write(root.join(name), "text").unwrap());
        let read: Vec<String> = read(&root, &all).unwrap().into_iter().map(|source| source.path).collect();
        assert_eq!(read, names);
    }
}
