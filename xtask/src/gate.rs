//! `cargo xtask gate OLD`: checks whether a change has made anything slower. Two kernels do the same work without
//! noise.
//!
//! In: OLD, a git revision or the folder of a stored profile; NEW is the source in this folder. Out: the comparison,
//! and one line for each function whose self time has changed. The exit code is 4 if one takes more time. Both runs are
//! repeatable, so an unchanged kernel gives exactly the same file.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};

use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::toolchain::Choice;
use crate::tools::Install;
use crate::{profile, run};

/// Profiles the kernel of OLD and the one in this folder repeatably, and shows which functions take more or less time.
#[derive(Args)]
#[command(after_help = "Examples: against the last commit, and against a profile that was kept
  cargo xtask gate HEAD
  cargo xtask gate --keep kept && cargo xtask gate kept
Exit code 4: some function takes more time than before.")]
pub struct Arguments {
    /// A git revision, or the folder of a stored profile
    #[arg(required_unless_present = "keep", default_value = "")]
    pub old: String,
    /// Only stores a profile of the present kernel in FOLDER, to compare with it later
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// What both kernels do
    #[arg(long, default_value = "gate")]
    pub workload: String,
    /// Samples per second and CPU; with more of them smaller changes are found
    #[arg(long, default_value_t = HZ)]
    pub hz: u32,
    /// The seed of both runs
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Builds the present kernel with a function that is three percent slower, which must be found
    #[arg(long, hide = true)]
    pub slower: bool,
    /// The output folder
    #[arg(short, long, default_value = "target/gate")]
    pub output: PathBuf,
}

impl Arguments {
    /// The arguments of a comparison of the present kernel with the kernel `old`. All options but `output` have their
    /// default values.
    pub fn against(old: String, output: PathBuf) -> Self {
        Self { old, keep: None, workload: "gate".to_owned(), hz: HZ, seed: 42, slower: false, output }
    }
}

/// Exit code: a function takes more time.
const SLOWER: u8 = 4;

/// A function whose self time has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its name.
    pub function: String,
    /// The change, as a part of OLD's samples.
    pub change: f64,
}

/// Runs the verb.
///
/// # Errors
/// If a kernel cannot be built or profiled.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(folder) = &arguments.keep {
        println!("kept: {}", keep(arguments, folder)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    let changes = changes(arguments)?;
    for Change { function, change } in &changes {
        let word = if *change > 0.0 { "slower" } else { "faster" };
        println!("{word}: {function} {:+.2} % of all time", change * 100.0);
    }
    if changes.is_empty() {
        println!("no function has changed");
    }
    Ok(if changes.iter().any(|change| change.change > 0.0) { ExitCode::from(SLOWER) } else { ExitCode::SUCCESS })
}

/// Returns the functions whose self time has changed by more than chance, and prints the table of the comparison.
///
/// # Errors
/// If a kernel cannot be built or profiled.
pub fn changes(arguments: &Arguments) -> Result<Vec<Change>> {
    let parts = Parts::prepare(Choice::Auto, Install(true))?;
    let kept = PathBuf::from(&arguments.old);
    let old = if kept.join("profiling.txt").is_file() {
        kept
    } else {
        let kernel = build::kernel_in(&checkout(arguments)?, parts.toolchain, "profiling", &[])?;
        profile(arguments, &parts, &kernel, &arguments.output.join("old"))?
    };
    let flags: &[&str] = if arguments.slower { &["--cfg", "kprof_slower"] } else { &[] };
    let new = profile(
        arguments,
        &parts,
        &build::kernel(parts.toolchain, "profiling", flags)?,
        &arguments.output.join("new"),
    )?;
    let diff = |format: &str| run::output(&mut comparison(&parts.fold, [&old, &new], format));
    let table = diff("text")?;
    println!("{}", table.lines().take(TABLE_LINES).collect::<Vec<_>>().join("\n"));
    significant(&diff("json")?)
}

const HZ: u32 = 50_000;
/// Large enough for every sample of a run, because no sample may be lost.
const RING_WORDS: &str = "2097152";
/// Lines of the comparison that are shown.
const TABLE_LINES: usize = 15;

/// The comparison of the profiles in two folders, each with the symbols of its own kernel. These come from the ELF
/// file: a list of symbols does not say who called a leaf function. Inlined functions are left out, because another
/// build inlines other ones.
fn comparison(fold: &Path, sides: [&PathBuf; 2], format: &str) -> Command {
    let mut command = Command::new(fold);
    command.args([
        "diff",
        "--quiet",
        "--no-inline",
        "--same-work",
        "--strict",
        "--max-loss",
        "0%",
        "--top",
        "0",
        "--format",
        format,
    ]);
    for side in sides {
        command.arg(side.join("profiling.txt")).arg(side.join("kernel"));
    }
    command
}

/// The functions in a comparison whose self time has changed.
fn significant(json: &str) -> Result<Vec<Change>> {
    let diff: serde_json::Value = serde_json::from_str(json).context("the comparison as JSON")?;
    let rows = diff["rows"].as_array().context("a comparison has rows")?;
    let changed = rows.iter().filter(|row| row["kind"] == "self" && row["significant"] == true);
    changed
        .map(|row| {
            let function = row["name"].as_str().context("a row has a name")?.to_owned();
            Ok(Change { function, change: row["change"].as_f64().context("a row has a change")? })
        })
        .collect()
}

/// Profiles the present kernel for later comparisons. Returns the folder, which can be given as OLD.
///
/// # Errors
/// If it cannot be built or profiled.
pub fn keep(arguments: &Arguments, folder: &Path) -> Result<PathBuf> {
    let parts = Parts::prepare(Choice::Auto, Install(true))?;
    profile(arguments, &parts, &build::kernel(parts.toolchain, "profiling", &[])?, folder)
}

fn profile(arguments: &Arguments, parts: &Parts, kernel: &Kernel, folder: &Path) -> Result<PathBuf> {
    let (seed, hz, output) = (arguments.seed.to_string(), arguments.hz.to_string(), folder.display().to_string());
    let line = [
        "gate",
        "--repeatable",
        "--seed",
        &seed,
        "--hz",
        &hz,
        "--workload",
        &arguments.workload,
        "--drain-after",
        "--ring-words",
        RING_WORDS,
        "-o",
        &output,
    ];
    profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
    Ok(folder.to_owned())
}

/// Checks out the source of a revision in a separate folder.
fn checkout(arguments: &Arguments) -> Result<PathBuf> {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(run::root());
        command
    };
    let commit = format!("{}^{{commit}}", arguments.old);
    let hash = run::output(&mut git(&["rev-parse", "--verify", "--quiet", &commit]))
        .with_context(|| format!("{} is neither a git revision nor a folder with a profiling.txt", arguments.old))?;
    let tree = run::root().join(&arguments.output).join(format!("tree-{}", hash.trim()));
    if !tree.is_dir() {
        std::fs::create_dir_all(&tree)?;
        let archive = tree.join("source.tar");
        run::output(git(&["archive", "-o"]).arg(&archive).arg(hash.trim()))?;
        unpack(&archive, &tree)?;
    }
    Ok(tree)
}

fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder).status()?;
    if !status.success() {
        bail!("{} cannot be unpacked", archive.display());
    }
    Ok(std::fs::remove_file(archive)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_is_named_by_the_elf_file_of_its_own_kernel() {
        let [old, new] = ["old", "new"].map(PathBuf::from);
        let command = comparison(Path::new("kprof-fold"), [&old, &new], "json");
        let files: Vec<_> = command.get_args().skip_while(|word| *word != "json").skip(1).collect();
        assert_eq!(files, ["old/profiling.txt", "old/kernel", "new/profiling.txt", "new/kernel"]);
    }

    #[test]
    fn only_self_times_that_changed_by_more_than_chance_count() {
        let row = |kind: &str, name: &str, change: f64, significant: bool| serde_json::json!({"kind": kind, "name": name, "change": change, "significant": significant});
        let rows = [row("self", "a", 0.02, true), row("total", "b", 0.02, true), row("self", "c", 0.01, false)];
        let changes = significant(&serde_json::json!({ "rows": rows }).to_string()).unwrap();
        assert_eq!(changes, [Change { function: "a".into(), change: 0.02 }]);
        assert!(significant("{}").is_err());
    }
}
