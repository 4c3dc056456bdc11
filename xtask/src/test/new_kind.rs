//! Adds a record kind, to check that the compiler then reports exactly the files that ARCHITECTURE.md lists for this.
//!
//! In: the sources. Out: the group `new record kind`. A copy of the sources under `target/` gets one more variant in
//! `Kind`, of the meta stream. Kernel and daemon must then fail to compile. The copy is compiled in a target folder of
//! its own: in a shared one cargo takes one for the other.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};

use super::cargo::{LIMIT, cargo};
use super::outcome::{Context, Outcome};
use crate::run;

/// Where the variant is added, and the line before it.
const KINDS: &str = "kprof/format/src/record.rs";
const ENUM: &str = "    pub enum Kind {\n";
const VARIANT: &str = "        /// A kind that a test adds.\n        Added = 200,\n";
/// The row of the table, and what comes before the files.
const ROW: &str = "| a record kind |";
const FOUND: &str = "the compiler then finds ";

/// Runs the group.
pub fn run(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.check("the compiler finds what ARCHITECTURE.md lists", compare());
    Ok(outcome)
}

fn compare() -> Result<()> {
    let root = run::root();
    let listed = listed(&std::fs::read_to_string(root.join("ARCHITECTURE.md"))?)?;
    let copy = root.join("target/new-kind/tree");
    run::copy_source(&root, &copy)?;
    let kinds = copy.join(KINDS);
    let text = std::fs::read_to_string(&kinds)?;
    std::fs::write(&kinds, replace(&text, ENUM, &[ENUM, VARIANT].concat())?)?;
    let check = |packages: &[&str]| {
        let mut check = cargo(&["check", "--quiet", "--keep-going", "--message-format", "short"]);
        // A target folder of its own: in that of the tree cargo takes what it has compiled of one for the other.
        check.args(packages).current_dir(&copy).env("CARGO_TARGET_DIR", root.join("target/new-kind/target"));
        Ok::<_, anyhow::Error>(run::caught(&mut check, LIMIT)?.text)
    };
    let mut printed = check(&["-p", "kprof", "-p", "kprof-events", "--features", "profiling"])?;
    printed += &check(&["-p", "kprof-daemon", "-p", "kprof-fold"])?;
    let found = without_an_arm(&printed);
    if found != listed {
        bail!("ARCHITECTURE.md lists {listed:?}, the compiler found {found:?}:\n{printed}");
    }
    Ok(())
}

/// `text` with one part replaced, which must be there.
fn replace(text: &str, part: &str, by: &str) -> Result<String> {
    let (before, after) = text.split_once(part).with_context(|| format!("{KINDS} has no `{part}`"))?;
    Ok([before, by, after].concat())
}

/// The files in the row of the table.
fn listed(page: &str) -> Result<BTreeSet<String>> {
    let row = page.lines().find(|line| line.starts_with(ROW)).with_context(|| format!("no row `{ROW}`"))?;
    let (_, files) = row.split_once(FOUND).with_context(|| format!("the row has no `{FOUND}`"))?;
    let files = files.split(';').next().unwrap_or(files);
    Ok(files.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// The files in which a `match` lacks an arm: lines `FILE:LINE:COLUMN: error[E0004]: ...`.
fn without_an_arm(printed: &str) -> BTreeSet<String> {
    let errors = printed.lines().filter(|line| line.contains(" error[E0004]: "));
    errors.filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_row_are_those_before_the_semicolon() {
        let page =
            "| a line | `x.rs` |\n| a record kind | `a.rs`; the compiler then finds `b.rs`, `c/d.rs`; `e.md` |\n";
        assert_eq!(listed(page).unwrap().into_iter().collect::<Vec<_>>(), ["b.rs", "c/d.rs"]);
        assert!(listed("| a line | `x.rs` |").is_err());
    }

    #[test]
    fn only_a_missing_arm_counts() {
        let printed = "a.rs:1:2: error[E0004]: non-exhaustive patterns\nb.rs:3:4: error[E0308]: mismatched types\n\
                       a.rs:9:2: error[E0004]: non-exhaustive patterns\nerror: could not compile `a`\n";
        assert_eq!(without_an_arm(printed).into_iter().collect::<Vec<_>>(), ["a.rs"]);
    }
}
