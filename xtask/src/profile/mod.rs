//! `cargo xtask profile`: builds everything, boots the kernel, profiles it, folds the profile, draws it, and prints a
//! report.

pub mod bare;
mod choices;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};
use indicatif::{ProgressBar, ProgressStyle};

use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::qemu::{self, Accel, Machine, Verdict};
use crate::run;
use crate::toolchain::Choice;
use crate::tools::Install;
use crate::workloads;
pub use choices::{Arch, Include, Intervals, Trigger};

/// How many functions the last table shows.
const TOP: &str = "15";

/// Boots the test kernel in QEMU, profiles it while a workload runs, and draws the profile: a page with timeline, flame
/// graph and tables, and a flame graph alone.
///
/// Writes to the output folder: profile.html, flamegraph.svg, profile.folded, profiling.txt, syms.txt, kernel (the
/// ELF), serial.log.
#[derive(Args)]
#[command(after_help = "Example: eight CPUs, ten thousand samples a second and CPU, only the dd workload:
  cargo xtask profile --cpus 8 --hz 10000 --workload dd -o target/dd --open
The same by hand, with kprof-fold and inferno installed:
  cd target/dd && kprof-fold profiling.txt kernel | inferno-flamegraph > f.svg")]
pub struct Arguments {
    /// The processor. Other processors than x86_64 run the bare kernel with 2 CPUs (with --accel tcg as many as --cpus
    /// says, up to 4). It is sampled by --trigger nmi or ipi, and its profile is serial.log
    #[arg(long, value_enum, default_value_t = Arch::X86)]
    arch: Arch,
    /// CPUs of the machine; one of them samples the others
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    cpus: u32,
    /// Samples per second and CPU; rates above 20000 must be forced, which this command does
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    hz: u32,
    /// Ends the workload after this many seconds of guest time
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// What the machine does during the recording
    #[arg(long, default_value = "default")]
    workload: String,
    /// Lists the workloads and ends
    #[arg(long)]
    list_workloads: bool,
    /// How QEMU runs the machine, and with it what time means
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,
    /// How the sampler reaches the other CPUs, and with it what the profile can claim
    #[arg(long, value_enum, default_value_t = Trigger::Nmi)]
    trigger: Trigger,
    /// With --arch riscv64 --trigger timer: a tick after N loads that miss the data TLB, not by time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    dtlb_load_misses: Option<u64>,
    /// Writes profiling.bin instead, in the binary form: less than a tenth of the bytes, for high rates
    #[arg(long)]
    binary: bool,
    /// Records samples that are otherwise filtered: of an idle CPU, of user code
    #[arg(long, value_enum, value_delimiter = ',')]
    include: Vec<Include>,
    /// Random intervals between ticks, or fixed ones, which may be in step with the work
    #[arg(long, value_enum, default_value_t = Intervals::Random)]
    interval: Intervals,
    /// Words of each CPU's ring, a power of two
    #[arg(long, default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(1024..=16_777_216))]
    ring_words: u32,
    /// Leaves the samples in the rings until the work is done, and starts profiled only then
    #[arg(long)]
    drain_after: bool,
    /// The seed of the intervals between ticks
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// The same kernel, workload and seed give the same files to the byte (see docs/repeatable.md)
    #[arg(long)]
    repeatable: bool,
    /// Samples the boot instead of a workload, from the kernel's first instructions to the first process, with its
    /// phases as marks; the 8254 timer samples (up to 100000 per second) until the sampler takes over
    #[arg(long, conflicts_with_all = ["repeatable", "workload", "seconds", "include", "drain_after", "live"])]
    boot: bool,
    /// The output folder
    #[arg(short, long, default_value = "target/kprof")]
    output: PathBuf,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// The way to compile for the kernel's target
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    toolchain: Choice,
    /// Shows the busiest functions every two seconds while the machine runs (`kprof-fold top` on the growing file)
    #[arg(long)]
    live: bool,
    /// Opens the page when it is made
    #[arg(long)]
    open: bool,
    /// A program and its words that run QEMU; empty: none does.
    #[arg(skip)]
    pub runner: Vec<String>,
}

/// The workload that stands for the boot itself, and the mark in the profile where the first process begins.
const BOOT: &str = "boot";
const FIRST_PROCESS: &str = "init";

/// Words that the test kernel's image reserves for the first ring when the boot is sampled.
const MAX_EARLY_RING_WORDS: u32 = 65536;

/// The command line of a run, for the other verbs: `Line::try_parse_from(["name", "--hz", "1000"])`.
#[derive(Parser)]
pub struct Line {
    /// The run.
    #[command(flatten)]
    pub profile: Arguments,
}

/// How often `--live` shows a table.
const LIVE_EVERY: Duration = Duration::from_secs(2);

impl Arguments {
    /// The workload.
    fn work(&self) -> &str {
        if self.boot { BOOT } else { &self.workload }
    }

    /// The name of the file with the samples.
    fn profile_name(&self) -> &'static str {
        if self.binary { "profiling.bin" } else { "profiling.txt" }
    }

    /// The options that init gives to profiled, with commas instead of spaces.
    fn daemon_options(&self) -> String {
        let form = if self.binary { "--binary," } else { "" };
        let folder = if self.repeatable { "" } else { "/root" };
        format!("{form}-o,{folder}/{}", self.profile_name())
    }

    /// The options of the kernel's command line about time and random numbers. A repeatable run only depends on its
    /// seed, and uses no device before the samples are taken.
    fn origin(&self) -> Result<String> {
        let seed = self.seed;
        if self.repeatable {
            return Ok(format!(
                "seed={seed} random-seed={seed} boot-id={} share=late late=/{}",
                seed.max(1),
                self.profile_name()
            ));
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        Ok(format!("seed={seed} epoch={}", now.as_secs()))
    }
}

/// Runs the verb.
///
/// # Errors
/// If any step fails. The message says what to do if that is known.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list_workloads {
        for workload in workloads::all()? {
            println!("{:12} {}", workload.name, workload.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(processor) = arguments.arch.bare() {
        return bare::run(arguments, processor);
    }
    if arguments.dtlb_load_misses.is_some() {
        bail!("--dtlb-load-misses is for --arch riscv64 --trigger timer");
    }
    workloads::check(&arguments.workload)?;
    if arguments.boot && arguments.ring_words > MAX_EARLY_RING_WORDS {
        bail!(
            "--boot: the rings can have {MAX_EARLY_RING_WORDS} words at most: the first one is part of the kernel image"
        );
    }
    if arguments.cpus == 1 && arguments.trigger != Trigger::Timer {
        bail!(
            "a sampler needs a second CPU: one samples, the others are sampled. Use --cpus 2 or more, or --trigger timer"
        );
    }
    let parts = Parts::prepare(arguments.toolchain, Install(!arguments.no_install))?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    of_kernel(arguments, &parts, &kernel)
}

/// Does the same as [`run()`] with a kernel that is already built.
///
/// # Errors
/// As [`run()`].
pub fn of_kernel(arguments: &Arguments, parts: &Parts, kernel: &Kernel) -> Result<ExitCode> {
    let accel = match (arguments.repeatable, arguments.accel) {
        (true, Accel::Auto | Accel::Icount) => Accel::Icount,
        (true, other) => bail!("--repeatable needs --accel icount: nothing is repeatable under {}", other.name()),
        (false, other) => qemu::resolve(other, &parts.qemu),
    };

    let folder = &arguments.output;
    clear(folder)?;
    std::fs::copy(&kernel.elf, folder.join("kernel"))?;
    std::fs::write(folder.join("syms.txt"), &kernel.symbols)?;
    let initrd = folder.join("initrd");
    parts.write_initrd(kernel, &initrd)?;
    boot(arguments, parts, accel, folder, initrd.clone())?;
    std::fs::remove_file(&initrd)?;
    let title = match arguments.boot {
        true => "kprof test kernel, from its first instructions to the first process".to_owned(),
        false => format!("kprof test kernel, workload {}", arguments.workload),
    };
    // The ELF file, because only code tells which candidates are callers.
    draw(&parts.fold, arguments, [arguments.profile_name(), "kernel"], &title)
}

/// Creates the output folder and removes the files of an earlier run, so that old files cannot be taken for new ones.
fn clear(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for name in ["profiling.txt", "profiling.bin", "profile.folded", "profile.html", "flamegraph.svg", "serial.log"] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| folder.join(name).display().to_string());
            }
            _ => {}
        }
    }
    Ok(())
}

fn boot(arguments: &Arguments, parts: &Parts, accel: Accel, folder: &Path, initrd: PathBuf) -> Result<()> {
    let serial = folder.join("serial.log");
    let profile = folder.join(arguments.profile_name());
    let append = format!(
        "accel={} trigger={} hz={} seconds={} workload={} daemon={} include={} ring-words={} drain={} interval={} {} {}",
        accel.name(),
        arguments.trigger.name(),
        arguments.hz,
        arguments.seconds,
        arguments.work(),
        arguments.daemon_options(),
        arguments.include.iter().map(|who| who.name()).collect::<Vec<_>>().join(","),
        arguments.ring_words,
        if arguments.drain_after { "after" } else { "on" },
        if arguments.interval == Intervals::Fixed { "fixed" } else { "random" },
        arguments.origin()?,
        if arguments.boot { format!("boot-profile=1 cpus={}", arguments.cpus) } else { String::new() },
    );
    let machine = Machine {
        kernel: &folder.join("kernel"),
        initrd,
        share: folder,
        serial: &serial,
        second_serial: None,
        seed: arguments.repeatable.then_some(arguments.seed),
        accel,
        cpus: arguments.cpus,
        append,
        disks: Vec::new(),
        runner: arguments.runner.clone(),
        // Under `-icount` the guest's time is up to about ten times slower than real time.
        limit: Duration::from_secs(300 + 20 * u64::from(arguments.seconds)),
    };
    let mut shown = Instant::now();
    let bar = if arguments.live { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}")?);
    bar.set_message("booting");
    let start = Instant::now();
    let verdict = machine.run(&parts.qemu, || {
        let bytes = std::fs::metadata(&profile).map_or(0, |metadata| metadata.len());
        let last = qemu::last_lines(&serial, 1);
        if arguments.live && bytes > 0 && shown.elapsed() > LIVE_EVERY {
            shown = Instant::now();
            let mut top = Command::new(&parts.fold);
            top.args(["top", "--once", "--top", TOP]).arg(&profile).arg(folder.join("kernel"));
            // As long as the first batch of the file is not finished, there is no table.
            if let Ok(table) = run::output(&mut top) {
                println!("{table}");
            }
        }
        bar.set_message(format!("{} KiB of samples | {last}", bytes / 1024));
        bar.tick();
    })?;
    bar.finish_and_clear();
    let tail = || qemu::last_lines(&serial, 25);
    match verdict {
        Verdict::Success => {
            eprintln!("the machine ran for {:.1} s", start.elapsed().as_secs_f64());
            Ok(())
        }
        Verdict::Failure => bail!("the run failed. The last lines of {}:\n{}", serial.display(), tail()),
        Verdict::Panic => bail!("the kernel panicked. The last lines of {}:\n{}", serial.display(), tail()),
        Verdict::TimeLimit => bail!(
            "QEMU was ended by the time limit of {} s. The last lines of {}:\n{}",
            machine.limit.as_secs(),
            serial.display(),
            tail()
        ),
        Verdict::Died(code) => {
            let code = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            bail!("QEMU has ended by {code}. The last lines of {}:\n{}", serial.display(), tail())
        }
    }
}

/// Folds, draws, and prints the last table; `files` are the profile and the symbols.
fn draw(fold: &Path, arguments: &Arguments, files: [&str; 2], title: &str) -> Result<ExitCode> {
    let folder = &arguments.output;
    let [profile, symbols] = files.map(|name| folder.join(name));
    let command = |verb: &[&str], symbols: &Path| {
        let mut command = Command::new(fold);
        command.args(verb).arg(&profile).arg(symbols).arg("--strict");
        if arguments.boot {
            command.args(["--between", "start", FIRST_PROCESS]);
        }
        command
    };
    let output = |name: &str| folder.join(name).into_os_string();
    run::output(command(&["folded"], &symbols).arg("-o").arg(output("profile.folded")))?;
    let titled = |verb, symbols, file| {
        run::output(command(&[verb], symbols).args(["--title", title]).arg("-o").arg(output(file))).map(drop)
    };
    titled("flamegraph", &symbols, "flamegraph.svg")?;
    titled("html", &symbols, "profile.html")?;
    print!("{}", run::output(command(&["report"], &symbols).args(["--top", TOP]))?);
    let page = folder.join("profile.html");
    println!("page: {}", page.display());
    println!("flame graph: {}", folder.join("flamegraph.svg").display());
    if arguments.open {
        let opener = ["xdg-open", "open"].into_iter().find_map(run::find_program);
        let opener = opener.context("--open: there is no xdg-open here")?;
        Command::new(opener).arg(&page).spawn().context("--open")?;
    }
    Ok(ExitCode::SUCCESS)
}
