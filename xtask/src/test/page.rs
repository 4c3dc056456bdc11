//! The interactive page of `kprof-fold html`, opened in a real browser: its numbers against `folded`, `report` and
//! `diff`, and its clicks, keys and drags. The scripts `xtask/readers/page*.mjs` drive the browser; node and a browser
//! are installed where they are missing.

mod events;
mod heap;
mod profile;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::outcome::{Context, Outcome};
use super::readers::{browser, npm_packages};
use crate::build;
use crate::run;
use crate::tools;
use events::Made;
use profile::{Shape, image, profile};

/// The time limit of the script.
const LIMIT: Duration = Duration::from_secs(600);
/// The lanes of a page with many.
const CPUS: u64 = 127;
/// Ranges in microseconds whose numbers are compared. They begin and end anywhere, also within a loss.
const RANGES: [(u64, u64); 10] = [
    (0, 1),
    (0, 400_000),
    (1_234_567, 1_234_999),
    (1_000_000, 3_000_000),
    (2_718_281, 8_284_590),
    (3_141_592, 3_592_653),
    (5_000_001, 5_000_002),
    (6_400_000, 9_000_000),
    (9_999_999, 12_000_000),
    (500_000, 20_000_000),
];

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let node = tools::program("node", "nodejs", context.install)?;
    let browser = browser(context.install)?;
    let folder = run::root().join("target/page");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(&folder)?;
    prepare(&folder)?;
    prepare_events(&folder)?;
    for name in ["page.mjs", "page-time.mjs", "page-use.mjs", "page-event.mjs"] {
        let mut script = Command::new(&node);
        script.arg(run::root().join("xtask/readers").join(name)).arg(&folder).arg(&browser).current_dir(&folder);
        outcome.script(&mut script, LIMIT)?;
    }
    match npm_packages(context.install) {
        Ok(packages) => {
            let mut script = Command::new(&node);
            script.arg(run::root().join("xtask/readers/page-axe.mjs")).arg(&folder).arg(&browser);
            script.arg(packages.join("node_modules/axe-core/axe.min.js")).current_dir(&folder);
            outcome.script(&mut script, LIMIT)?;
        }
        Err(why) => outcome.not_passed(&format!("axe: {why:#}"), &why),
    }
    Ok(outcome)
}

/// Makes profiles of the hits of a point and of a heap, their pages, and what other outputs say of them.
fn prepare_events(folder: &Path) -> Result<()> {
    let program = build::tool("kprof-fold")?;
    let write = |name: &str, made: Made| {
        std::fs::write(folder.join(format!("event-{name}.txt")), made.text)?;
        std::fs::write(folder.join(format!("event-{name}.json")), made.truth)
    };
    let fold = |name: &str, event: &str, words: &[&str], output: &str| {
        let input = format!("event-{name}.txt");
        let mut fold = Command::new(&program);
        fold.args(words).args(["--event", event, "-q", &input, "events.syms", "-o", output]);
        run::output(fold.current_dir(folder)).map(drop)
    };
    let exact = events::Shape { seed: 12, unit: "ns", mean: None, has_missing: true, heavy: None };
    let drawn = events::Shape { seed: 11, unit: "bytes", mean: Some(20_000), ..exact };
    for (name, shape, options) in [("exact", exact, &[][..]), ("drawn", drawn, &[]), ("counted", drawn, &["--count"])] {
        write(name, events::profile(shape)?)?;
        let of = |words: &[&str], output: String| fold(name, "work", &[words, options].concat(), &output);
        of(&["html"], format!("event-{name}.html"))?;
        of(&["folded"], format!("event-{name}.folded"))?;
        of(&["folded", "--cpu", "2"], format!("event-{name}-cpu.folded"))?;
        of(&["folded", "--task", "copy"], format!("event-{name}-task.folded"))?;
        // The same with other hits, of which those of one function are heavier.
        let older = format!("{name}-old");
        write(&older, events::profile(events::Shape { seed: shape.seed + 10, heavy: Some(3), ..shape })?)?;
        compare(&program, folder, ("work", name, &older), options)?;
    }
    let whole = events::Shape { has_missing: false, ..exact };
    write("whole", events::profile(whole)?)?;
    write("whole-old", events::profile(events::Shape { seed: 22, heavy: Some(3), ..whole })?)?;
    compare(&program, folder, ("work", "whole", "whole-old"), &[])?;
    for (name, mean_bytes, lost) in [("heap", 5000, 0), ("heap-old", 7000, 0), ("heap-lossy", 5000, 2)] {
        write(name, heap::profile(mean_bytes, lost)?)?;
    }
    for (name, options) in [("heap", &[][..]), ("heap-count", &["--count"])] {
        fold("heap", "heap.live", &[&["html"], options].concat(), &format!("event-{name}.html"))?;
        fold("heap", "heap.live", &[&["folded"], options].concat(), &format!("event-{name}.folded"))?;
    }
    fold("heap", "heap.live", &["folded", "--task", "copy"], "event-heap-task.folded")?;
    compare(&program, folder, ("heap.live", "heap", "heap-old"), &[])?;
    compare(&program, folder, ("heap.live", "heap-lossy", "heap-old"), &[])
}

/// Makes the page of a comparison, and what `diff` says of it.
fn compare(program: &Path, folder: &Path, (event, name, older): (&str, &str, &str), options: &[&str]) -> Result<()> {
    let [new, old] = [name, older].map(|name| format!("event-{name}.txt"));
    let fold = |words: &[&str]| {
        let mut fold = Command::new(program);
        run::output(fold.args(words).args(["--event", event, "-q"]).args(options).current_dir(folder)).map(drop)
    };
    fold(&["html", &new, "events.syms", "--compare", &old, "-o", &format!("compared-{name}.html")])?;
    fold(&["diff", &old, &new, "events.syms", "--format", "json", "-o", &format!("diff-{name}.json")])
}

/// Makes two profiles, their pages, and what other outputs say of them.
fn prepare(folder: &Path) -> Result<()> {
    let program = build::tool("kprof-fold")?;
    let image = image(folder)?;
    for (name, shape) in [("old", Shape { seed: 1, favourite: 3 }), ("new", Shape { seed: 2, favourite: 20 })] {
        let made = profile(&image, shape)?;
        std::fs::write(folder.join(format!("{name}.txt")), made.text)?;
        std::fs::write(folder.join(format!("{name}.ticks.json")), made.truth.json(made.first))?;
    }
    let fold = |words: &[&str], output: &str| {
        let mut fold = Command::new(&program);
        run::output(fold.args(words).args(["-q", "-o", output]).current_dir(folder)).map(drop)
    };
    fold(&["html", "new.txt", "image", "--title", "a <b> & \"c\""], "page.html")?;
    fold(&["html", "new.txt", "image", "--compare", "old.txt"], "compared.html")?;
    let both = ["old.txt", "new.txt"].map(|name| std::fs::read_to_string(folder.join(name)));
    let [old, new] = both;
    std::fs::write(folder.join("boots.txt"), old? + &new?)?;
    fold(&["html", "boots.txt", "image"], "boots.html")?;
    fold(&["html", "new.txt", "image", "--between", "2.5", "3"], "part.html")?;
    fold(&["diff", "old.txt", "new.txt", "image", "--format", "json"], "diff.json")?;
    let address = events::TEXT;
    let lines = (0..CPUS * 20).map(|at| format!("init {:x} {:x} {address:x}\n", at % CPUS + 1, (at + 1) * 100_000));
    std::fs::write(folder.join("lanes.txt"), lines.collect::<String>())?;
    std::fs::write(folder.join("events.syms"), events::symbols()?)?;
    fold(&["html", "lanes.txt", "events.syms", "1"], "lanes.html")?;
    for (number, (from, to)) in RANGES.into_iter().enumerate() {
        let seconds = [from, to].map(|micros| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000));
        let of = |verb, words: &[&str], output: &str| {
            let range = ["new.txt", "image", "--between", &seconds[0], &seconds[1]];
            fold(&[&[verb][..], &range, words].concat(), &format!("{output}-{number}"))
        };
        of("folded", &["--inline"], "all")?;
        of("report", &["--top", "0"], "report")?;
        // Each of these in every second range.
        if number % 2 == 0 {
            of("folded", &["--no-inline"], "none")?;
            of("folded", &["--inline", "--user"], "user")?;
        } else {
            of("folded", &["--inline", "--cpu", "1"], "cpu")?;
            of("folded", &["--inline", "--task", "copy"], "task")?;
        }
    }
    let ranges: Vec<String> = RANGES.iter().map(|(from, to)| format!("[{from},{to}]")).collect();
    std::fs::write(folder.join("ranges.json"), format!("[{}]", ranges.join(",")))?;
    Ok(())
}
