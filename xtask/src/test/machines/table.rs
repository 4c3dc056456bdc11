//! The group `outside table`: the table of `docs/outside.md`, which says what each verb of `kprof-qemu` can do.
//!
//! In: the QEMU of this system, of Debian 13 and of sid. Each runs the checks that are listed here, in a process of its
//! own. Out: a cell for each verb, guest and QEMU. A cell says what its check has shown, so it is empty if the check
//! has not passed. The group compares the cells with those of the document; with `KPROF_REWRITE=1` it writes them. A
//! run of the long groups takes one QEMU, by the commit.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::LIMIT;
use crate::archive::Archive;
use crate::qemu::{self, Version};
use crate::run;
use crate::test::outcome::{Context, Outcome};

/// A check, and what it shows of a verb if it passes.
struct Check {
    group: &'static str,
    /// The part of the group that has it.
    part: &'static str,
    /// Its name, with `{}` for the guest's processor.
    name: &'static str,
    shows: &'static str,
}

const WORKS: &str = "yes";
const IS_REFUSED: &str = "refused";

const fn outside(part: &'static str, name: &'static str) -> Check {
    Check { group: "outside", part, name, shows: WORKS }
}

const fn long(part: &'static str, name: &'static str) -> Check {
    Check { group: "outside long", part, name, shows: WORKS }
}

const OTHERS: [&str; 2] = ["aarch64", "riscv64"];
const SAMPLED: Check = long("guests", "a guest of {} has its shares and its stacks");
const COUNTED: Check = long("guests", "every instruction of a guest of {} is counted");
const REFUSED: Check = Check { shows: IS_REFUSED, ..long("guests", "for a guest of {} all else is refused") };

/// Each verb with its checks: that of a guest of x86_64, and that of the others.
const VERBS: [(&str, Check, Check); 7] = [
    ("`record`", outside("record", "by time, every tick is accounted for"), SAMPLED),
    (
        "`record --every`",
        outside("record", "by instructions, the samples repeat and the kernel does not notice"),
        SAMPLED,
    ),
    ("`count --flat`", outside("exact", "two runs, by context and flat, have the same counts"), COUNTED),
    ("`count`", outside("exact", "every instruction is counted, and known calls are found"), REFUSED),
    (
        "`syscalls`",
        long("calls", "system calls are counted exactly, and planted instructions are found in theirs"),
        REFUSED,
    ),
    ("`probe`", long("probes", "the kernel does not notice hundreds of probes, and known calls are found"), REFUSED),
    ("`attach`", outside("attached", "a machine that runs is sampled, and runs on"), REFUSED),
];

const DOCUMENT: &str = "docs/outside.md";
/// How the table's first line begins.
const HEAD: &str = "| Verb | Guest | ";

/// A QEMU, and the names of the checks that have passed with it.
struct Column {
    version: String,
    passed: BTreeSet<String>,
}

impl Column {
    /// Runs the checks.
    fn of(qemu: &Path, context: &Context) -> Result<Self> {
        let version = Version::of(&qemu.join("qemu-system-x86_64"))?.text;
        let (mut done, mut passed) = (BTreeSet::new(), BTreeSet::new());
        for Check { group, part, .. } in VERBS.iter().flat_map(|(_, x86, others)| [x86, others]) {
            if !done.insert((group, part)) {
                continue;
            }
            let mut test = Command::new(std::env::current_exe()?);
            test.args(["test", "--names", "--only", group, "--filter", part, "--qemu"]).arg(qemu);
            test.args((!context.install.0).then_some("--no-install"));
            let text = run::caught(&mut test, LIMIT)?.text;
            println!("QEMU {version}, {group}, {part}:\n{text}");
            passed.extend(text.lines().filter_map(|line| line.strip_prefix("passed ")).map(str::to_owned));
        }
        Ok(Self { version, passed })
    }

    fn cell(&self, check: &Check, guest: &str) -> &'static str {
        if self.passed.contains(&check.of(guest)) { check.shows } else { "" }
    }
}

impl Check {
    fn of(&self, guest: &str) -> String {
        self.name.replace("{}", guest)
    }
}

/// The lines of the table.
fn table(columns: &[Column]) -> String {
    let versions: String = columns.iter().map(|column| format!("QEMU {} | ", column.version)).collect();
    let line = "---|".repeat(columns.len() + 3);
    let mut text = format!("{HEAD}{versions}Group, part: check |\n|{line}\n");
    for (verb, x86, others) in &VERBS {
        for (guest, check) in [("x86_64", x86)].into_iter().chain(OTHERS.map(|guest| (guest, others))) {
            let cells: Vec<&str> = columns.iter().map(|column| column.cell(check, guest)).collect();
            let Check { group, part, .. } = check;
            let (cells, name) = (cells.join(" | "), check.of(guest));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {verb} | {guest} | {cells} | `{group}`, `{part}`: {name} |");
        }
    }
    text
}

/// What comes before the table of the document, the table, and what comes after it.
fn parts(document: &str) -> Result<(&str, &str, &str)> {
    let begin = document.find(HEAD).with_context(|| format!("{DOCUMENT} has no table that begins with `{HEAD}`"))?;
    let (before, rest) = document.split_at(begin);
    let bytes = rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
    let (table, after) = rest.split_at_checked(bytes).context("the table is the end of the document")?;
    Ok((before, table, after))
}

/// The cells of the column of this QEMU.
fn column<'a>(table: &'a str, version: &str) -> Option<Vec<&'a str>> {
    let mut rows = table.lines().map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let at = rows.next()?.iter().position(|cell| cell.strip_prefix("QEMU ") == Some(version))?;
    Some(rows.skip(1).filter_map(|row| row.get(at).copied()).collect())
}

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let of_system =
        || -> Result<PathBuf> { Ok(qemu::find(context.install)?.parent().context("QEMU has a folder")?.to_owned()) };
    let of_suite = |suite| Archive::find(context.install)?.qemu(suite);
    let file = run::root().join(DOCUMENT);
    let document = fs::read_to_string(&file)?;
    let (before, mut written, after) = parts(&document)?;
    let mut columns = Vec::new();
    for suite in context.in_turn(&[None, Some("trixie"), Some("sid")])? {
        columns.push(Column::of(&suite.map_or_else(of_system, of_suite)?, context)?);
    }
    let made = table(&columns);
    if std::env::var_os("KPROF_REWRITE").is_some() {
        ensure!(columns.len() > 1, "the table is written by --only \"outside table\", which runs every QEMU");
        fs::write(&file, [before, &made, after].concat())?;
        written = &made;
    }
    for one in columns {
        let version = one.version.clone();
        let made = table(&[one]);
        let is_alike = || -> Result<()> {
            let written = column(written, &version).with_context(|| format!("{DOCUMENT} has no such column"))?;
            let made = column(&made, &version).unwrap_or_default();
            ensure!(written == made, "the document says {written:?}, the checks have shown {made:?}");
            Ok(())
        };
        outcome.check(&format!("QEMU {version}: the table says what the checks have shown"), is_alike());
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::outcome::sources;

    fn column_of(version: &str, passed: BTreeSet<String>) -> Column {
        Column { version: version.to_owned(), passed }
    }

    fn all() -> BTreeSet<String> {
        let of =
            |(_, x86, others): &(_, Check, Check)| [vec![x86.of("")], OTHERS.map(|guest| others.of(guest)).to_vec()];
        VERBS.iter().flat_map(of).flatten().collect()
    }

    #[test]
    fn the_table_of_the_document_is_the_one_that_the_group_makes_when_every_check_passes() {
        let document = fs::read_to_string(run::root().join(DOCUMENT)).unwrap();
        let written = parts(&document).unwrap().1;
        let head = written.lines().next().unwrap().split('|').filter_map(|cell| cell.trim().strip_prefix("QEMU "));
        let columns: Vec<Column> = head.map(|version| column_of(version, all())).collect();
        assert_eq!(columns.len(), 3);
        assert_eq!(written, table(&columns));
    }

    #[test]
    fn a_check_that_has_not_passed_leaves_its_cell_empty_in_the_column_of_its_qemu_only() {
        let mut some = all();
        some.remove(&COUNTED.of("riscv64"));
        let table = table(&[column_of("7.2.22", all()), column_of("11.1.3", some)]);
        let [whole, lacking] = ["7.2.22", "11.1.3"].map(|version| column(&table, version).unwrap());
        let differ: Vec<usize> = (0..whole.len()).filter(|row| whole[*row] != lacking[*row]).collect();
        assert_eq!((whole.len(), differ, lacking[8]), (21, vec![8], ""));
        assert!(column(&table, "9.2.0").is_none());
    }

    #[test]
    fn every_check_of_the_table_exists() {
        let texts = sources("machines/table.rs");
        for Check { group, part, name, .. } in VERBS.iter().flat_map(|(_, x86, others)| [x86, others]) {
            for text in [name, group, part] {
                assert!(texts.contains(&format!("\"{text}\"")), "{text}");
            }
        }
    }
}
