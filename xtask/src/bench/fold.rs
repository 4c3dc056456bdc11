//! `cargo xtask bench fold`: the fold against the reference pipeline and against `wc -l`.
//!
//! In: nothing. Inputs are generated and the other programs installed, both under target/. Out: a line per goal, with
//! the figure, its limit, and the verdict. Runs are paired: ours, then the other, and again. The median of the ratios
//! is judged.

mod image;
pub(super) mod input;

pub use image::functions;
pub use input::Random;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::measure::{self, Run, median};
use crate::build;
use crate::run;
use crate::tools::{self, Install};
use input::Shape;

/// The fold against redox-kprofiling | inferno-collapse-perf and against wc -l.
#[derive(Args)]
#[command(after_help = "Example: everything but the file of 1 GB:
  cargo xtask bench fold --no-large")]
pub struct Arguments {
    /// Pairs of runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Leaves out the file of 1 GB
    #[arg(long)]
    no_large: bool,
    /// Only goals whose name has this in it
    #[arg(long, default_value = "")]
    filter: String,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
}

/// The peers: crate, version, program.
const PEERS: [(&str, &str, &str); 2] =
    [("redox-kprofiling", "=0.2.2", "redox-kprofiling"), ("inferno", "=0.12.8", "inferno-collapse-perf")];

/// The limit of a figure.
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// The programs that are measured, and the results.
struct Bench {
    ours: PathBuf,
    peers: PathBuf,
    folder: PathBuf,
    pairs: u32,
    filter: String,
    missed: usize,
    met: usize,
    skipped: usize,
}

/// Runs the bench.
///
/// # Errors
/// If something cannot be built, installed or run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = run::root();
    let built = build::host("kprof-fold", "parquet")?.join("kprof-fold");
    let peers = root.join("target/peers");
    for (name, version, program) in PEERS {
        if !peers.join("bin").join(program).exists() {
            ensure!(
                !arguments.no_install,
                "{name} is missing and --no-install forbids installing it under target/peers"
            );
            eprintln!("installing {name} {version} under target/peers");
            let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            install.args(["install", "--quiet", "--locked", "--version", version, name, "--root"]).arg(&peers);
            run::output(install.env("CARGO_TARGET_DIR", root.join("target/peers-build")).current_dir(&root))?;
        }
    }
    let folder = root.join("target/bench-fold");
    std::fs::create_dir_all(&folder)?;
    // A build with other features, beside this run, would replace the program.
    let ours = folder.join("kprof-fold");
    std::fs::copy(built, &ours)?;
    let (pairs, filter) = (arguments.pairs, arguments.filter.clone());
    let mut bench = Bench { ours, peers, folder, pairs, filter, missed: 0, met: 0, skipped: 0 };
    bench.all(arguments)?;
    println!("{} goals met, {} missed, {} skipped", bench.met, bench.missed, bench.skipped);
    Ok(if bench.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Bench {
    fn all(&mut self, arguments: &Arguments) -> Result<()> {
        let folder = self.folder.clone();
        let shape = |megabytes, stacks, functions, skewed| Shape { megabytes, stacks, functions, skewed }.make(&folder);
        let (few, many) = (input::symbols(&folder, 3_000)?, input::symbols(&folder, 50_000)?);
        let (one, ten) = (shape(0, 1, 3_000, false)?, shape(10, 20_000, 3_000, true)?);
        let hundred = shape(100, 20_000, 3_000, false)?;

        self.against_the_peer("100 MB", &hundred, &few, &[(Figure::Cpu, 140.0), (Figure::Wall, 80.0)])?;
        self.against_the_peer("100 MB, drawn with skew", &shape(100, 20_000, 3_000, true)?, &few, &[])?;
        let (real, real_syms) = input::real(&folder, 100)?;
        self.against_the_peer("100 MB of real Redox lines", &real, &real_syms, &[])?;
        self.against_the_peer("10 MB", &ten, &few, &[(Figure::Cpu, 40.0)])?;
        self.against_the_peer("one line, 50 000 symbols", &one, &many, &[(Figure::Cpu, 2.0), (Figure::Wall, 2.0)])?;
        self.instructions("10 MB", &ten, &few, 100.0, arguments)?;
        self.instructions("10 MB, 50 000 symbols", &shape(10, 20_000, 50_000, true)?, &many, 150.0, arguments)?;
        self.alone("100 MB, 284 000 distinct stacks", &shape(100, 284_000, 3_000, false)?, &few, 1.0)?;
        if self.is_wanted("100 000 samples of a 20 MB image, inlined frames") {
            let (image, profile) = image::make(&folder)?;
            self.alone("100 000 samples of a 20 MB image, inlined frames", &profile, &image, 2.0)?;
        }
        if arguments.no_large {
            self.skip("1 GB", "--no-large");
        } else if self.is_wanted("1 GB") {
            let gigabyte = shape(1000, 20_000, 3_000, false)?;
            self.against_wc("1 GB", &gigabyte, &few)?;
            self.verbs("1 GB", &gigabyte, &few)?;
        }
        Ok(())
    }

    /// Every subcommand that reads a whole profile, with the CPU time and the memory that it may take.
    fn verbs(&mut self, name: &str, file: &Path, syms: &Path) -> Result<()> {
        let (file, syms) = (file.display().to_string(), syms.display().to_string());
        let export = |form| (["export", "--to", form].to_vec(), Some((5.0, 256.0)));
        // Compression is not part of the goal: a `.pb` has none.
        let (plain, tables) = (self.folder.join("out.pb"), self.folder.join("tables"));
        let [plain, tables] = [plain, tables].map(|path| path.display().to_string());
        let verbs = [
            (vec!["report"], Some((3.0, 20.0))),
            (vec!["flamegraph"], Some((3.0, 20.0))),
            (vec!["info"], Some((2.0, 64.0))),
            export("speedscope"),
            export("firefox"),
            export("perfetto"),
            (vec!["export", "--to", "pprof", "-o", &plain], Some((5.0, 256.0))),
            (vec!["export", "--to", "parquet", "-o", &tables], Some((5.0, 256.0))),
            (vec!["export", "--to", "pprof"], None),
            (vec!["script"], None),
        ];
        for (words, goals) in verbs {
            let what = format!("{name}, {}", words.join(" ").replace(&format!("{}/", self.folder.display()), ""));
            if !self.is_wanted(&what) {
                continue;
            }
            let mut command = vec![self.ours.display().to_string()];
            command.extend(words.iter().map(|word| (*word).to_owned()));
            match words[..] {
                ["info"] => command.extend([file.clone(), "2.2".to_owned()]),
                _ => command.extend(["-q".to_owned(), file.clone(), syms.clone(), "2.2".to_owned()]),
            }
            let runs = (0..self.pairs).map(|_| measure::run(&command)).collect::<Result<Vec<Run>>>()?;
            let cpu_s = median(runs.iter().map(|run| run.cpu_s));
            let peak_mib = runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
            match goals {
                Some((max_s, max_mib)) => {
                    self.judge(&format!("{what}: CPU s"), cpu_s, Goal::AtMost(max_s));
                    self.judge(&format!("{what}: peak memory in MiB"), peak_mib, Goal::AtMost(max_mib));
                }
                None => println!("       {what}: CPU {cpu_s:.2} s, {peak_mib:.1} MiB"),
            }
        }
        Ok(())
    }

    fn fold(&self, file: &Path, syms: &Path) -> Vec<String> {
        words(&[&self.ours, Path::new("-q"), file, syms, Path::new("2.2")])
    }

    fn is_wanted(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    fn pairs(&self, ours: &[String], other: &[String]) -> Result<Vec<(Run, Run)>> {
        (0..self.pairs).map(|_| Ok((measure::run(ours)?, measure::run(other)?))).collect()
    }

    /// Ours and the reference pipeline; both must fold the same number of samples.
    fn against_the_peer(&mut self, name: &str, file: &Path, syms: &Path, goals: &[(Figure, f64)]) -> Result<()> {
        if !self.is_wanted(name) {
            return Ok(());
        }
        let bin = self.peers.join("bin");
        let arguments = [Path::new("_"), Path::new("2.2"), Path::new("|")];
        let (first, second) = (bin.join("redox-kprofiling"), bin.join("inferno-collapse-perf"));
        let peer = words(&[&[&*first, file, syms], &arguments[..], &[&*second]].concat());
        let ours = self.fold(file, syms);
        let (our_samples, peer_samples) = (samples(&ours)?, samples(&peer)?);
        ensure!(our_samples == peer_samples, "{name}: {our_samples} samples folded, by the peer {peer_samples}");
        let pairs = self.pairs(&ours, &peer)?;
        println!("{name}: {our_samples} samples; ours {}; peer {}", figures(&pairs, |p| p.0), figures(&pairs, |p| p.1));
        for figure in [Figure::Cpu, Figure::Wall] {
            let ratio = median(pairs.iter().map(|(ours, peer)| figure.of(peer) / figure.of(ours)));
            let what = format!("{name}: {} times less than the peer", figure.word());
            match goals.iter().find(|(one, _)| *one == figure) {
                Some((_, least)) => self.judge(&what, ratio, Goal::AtLeast(*least)),
                None => println!("       {what}: {ratio:.1}"),
            }
        }
        Ok(())
    }

    fn against_wc(&mut self, name: &str, file: &Path, syms: &Path) -> Result<()> {
        let pairs = self.pairs(&self.fold(file, syms), &words(&[Path::new("wc"), Path::new("-l"), file]))?;
        println!("{name}: ours {}; wc -l {}", figures(&pairs, |p| p.0), figures(&pairs, |p| p.1));
        let ratio = median(pairs.iter().map(|(ours, wc)| ours.cpu_s / wc.cpu_s));
        self.judge(&format!("{name}: CPU time beside that of wc -l"), ratio, Goal::AtMost(4.0));
        let peak = pairs.iter().map(|(ours, _)| ours.peak_mib).fold(0.0, f64::max);
        self.judge(&format!("{name}: peak memory in MiB"), peak, Goal::AtMost(20.0));
        Ok(())
    }

    fn alone(&mut self, name: &str, file: &Path, syms: &Path, max_s: f64) -> Result<()> {
        if self.is_wanted(name) {
            let fold = self.fold(file, syms);
            let runs = (0..self.pairs).map(|_| measure::run(&fold)).collect::<Result<Vec<Run>>>()?;
            self.judge(&format!("{name}: CPU s"), median(runs.iter().map(|run| run.cpu_s)), Goal::AtMost(max_s));
        }
        Ok(())
    }

    fn instructions(&mut self, name: &str, file: &Path, syms: &Path, max_m: f64, arguments: &Arguments) -> Result<()> {
        let name = format!("{name}: millions of instructions (callgrind)");
        if !self.is_wanted(&name) {
            return Ok(());
        }
        if let Err(error) = tools::program("valgrind", "valgrind", Install(!arguments.no_install)) {
            self.skip(&name, &format!("{error:#}"));
            return Ok(());
        }
        let [file, syms] = [file, syms].map(|path| path.display().to_string());
        let count = measure::instructions(&self.ours, &["-q", &file, &syms, "2.2"], &self.folder)?;
        self.judge(&name, count as f64 / 1e6, Goal::AtMost(max_m));
        Ok(())
    }

    fn judge(&mut self, what: &str, is: f64, goal: Goal) {
        let (met, must) = match goal {
            Goal::AtLeast(least) => (is >= least, format!("at least {least}")),
            Goal::AtMost(most) => (is <= most, format!("at most {most}")),
        };
        if met {
            self.met += 1;
        } else {
            self.missed += 1;
        }
        println!("{} {what}: {is:.2} ({must})", if met { "ok    " } else { "MISSED" });
    }

    fn skip(&mut self, what: &str, why: &str) {
        self.skipped += 1;
        println!("skipped {what}: {why}");
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Figure {
    Cpu,
    Wall,
}

impl Figure {
    fn of(self, run: &Run) -> f64 {
        match self {
            Self::Cpu => run.cpu_s,
            Self::Wall => run.wall_s,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Wall => "wall time",
        }
    }
}

fn figures(pairs: &[(Run, Run)], side: impl Fn(&(Run, Run)) -> Run) -> String {
    let of = |value: &dyn Fn(Run) -> f64| median(pairs.iter().map(|pair| value(side(pair))));
    format!(
        "CPU {:.3} s, wall {:.3} s, {:.1} MiB",
        of(&|run| run.cpu_s),
        of(&|run| run.wall_s),
        of(&|run| run.peak_mib)
    )
}

fn words(parts: &[&Path]) -> Vec<String> {
    parts.iter().map(|part| part.display().to_string()).collect()
}

/// How many samples a command folds: the sum of its counts.
fn samples(command: &[String]) -> Result<u64> {
    let text = measure::printed(command)?;
    let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    text.lines().map(|line| count(line).with_context(|| format!("`{line}` has no count"))).sum()
}
