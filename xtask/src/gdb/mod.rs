//! `cargo xtask gdb`: the stacks of `kprof-qemu attach` beside those that gdb finds at the same stops.
//!
//! In: a kernel with debug information, and a QEMU command line. The machine runs under `kprof-qemu count --stops`,
//! whose shadow stack decides where the two differ; sampler and gdb share its gdb stub: see [`shared`]. Out: how many
//! stacks are the same, and the others with their reasons. The walker of `attach` is that of `record`.

mod judge;
mod shared;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::build;
use crate::run::{self, Guard};
use crate::stacks;
use crate::tools::{self, Install};
use judge::{Frame, Sample};
use shared::Shared;

/// Compares stacks of a kernel in QEMU with those of gdb.
#[derive(Args)]
#[command(
    after_help = "Example: cargo xtask gdb --kernel kernel.elf -- qemu-system-x86_64 -kernel kernel.elf -nographic
    -accel tcg,thread=single -icount shift=0,sleep=off"
)]
pub struct Arguments {
    /// The kernel's ELF file, with debug information
    #[arg(long)]
    pub kernel: PathBuf,
    /// Stops of the machine
    #[arg(long, default_value_t = 400)]
    pub samples: u32,
    /// Milliseconds that the machine runs between two stops, on average
    #[arg(long, default_value_t = 10)]
    pub rest: u64,
    /// How much higher the kernel runs than its file says (KASLR, PIE), as `kprof-qemu record` prints it
    #[arg(long, value_name = "0xBYTES", default_value = "0", value_parser = slide)]
    pub slide: u64,
    /// How stacks are found: auto, frames, tables
    #[arg(long, default_value = "auto")]
    pub unwind: String,
    /// The output folder
    #[arg(short, long, default_value = "target/gdb")]
    pub output: PathBuf,
    /// The QEMU command line, with -icount or -accel tcg,thread=single; -S and -gdb are added
    #[arg(last = true, required = true)]
    pub qemu: Vec<String>,
}

const LIMIT: Duration = Duration::from_secs(500);
/// The connection of the sampler stops the machine before the first sample.
const STOPS_BEFORE: std::ops::Range<u64> = 0..4;

/// The address of code that the profile does not tell: firmware.
const UNKNOWN: u64 = 1 << 63;

/// By number of the vCPU: what gdb has found, with the number of the stop.
type Stops = BTreeMap<u32, Vec<(u64, Vec<Frame>)>>;

/// Runs the verb.
///
/// # Errors
/// If a stack is wrong, or too few can be compared.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let tool = build::tool("kprof-qemu")?;
    let fold = build::tool("kprof-fold")?;
    let check =
        Check { tool, fold, gdb: find(Install(true))?, folder: arguments.output.clone(), slide: arguments.slide };
    check.prepare(&arguments.kernel, &build::symbols_of(&arguments.kernel)?)?;
    check.machine(&arguments.qemu, arguments.samples, arguments.rest, &arguments.unwind)?;
    ensure!(check.judge()? > 0, "there are no samples of kernel code");
    Ok(ExitCode::SUCCESS)
}

/// A number of bytes: hex with `0x`, or decimal.
fn slide(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    number.map_err(|error| format!("{error}: 0x1800000 would be one"))
}

/// Finds gdb, or installs it.
///
/// # Errors
/// If it cannot be had; the message has the command to type.
pub fn find(install: Install) -> Result<PathBuf> {
    tools::program("gdb", "gdb", install)
}

/// The address of a TCP port that is free now. The host does not soon give it to another program.
///
/// # Errors
/// If there is none.
pub fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// The programs, and the folder of one comparison.
pub struct Check {
    pub tool: PathBuf,
    pub fold: PathBuf,
    pub gdb: PathBuf,
    pub folder: PathBuf,
    /// How much higher the kernel runs than its file says.
    pub slide: u64,
}

impl Check {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Puts the kernel into the folder.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn prepare(&self, kernel: &Path, symbols: &str) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::copy(kernel, self.file("kernel")).with_context(|| kernel.display().to_string())?;
        let moved = |line: &str| {
            let (address, rest) = line.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?.wrapping_add(self.slide);
            Some(format!("{address:x} {rest}\n"))
        };
        Ok(fs::write(self.file("syms.txt"), symbols.lines().filter_map(moved).collect::<String>())?)
    }

    /// The words by which `kprof-qemu` counts, before those of QEMU.
    pub fn count(&self) -> Vec<String> {
        let file = |name: &str| self.file(name).display().to_string();
        let words = ["count", "--kernel", &file("kernel"), "-o", &file("counts.txt"), "--stops", &file("stops.txt")];
        words.into_iter().chain(["--"]).map(str::to_owned).collect()
    }

    /// Runs a machine, takes samples of it, and ends it.
    ///
    /// # Errors
    /// If a program fails.
    pub fn machine(&self, qemu: &[String], samples: u32, rest_ms: u64, unwind: &str) -> Result<()> {
        let stub = free_address()?;
        let mut command = run::bound(&self.tool);
        command.args(self.count()).args(qemu).args(["-S", "-gdb", &format!("tcp:{stub}")]);
        // A group of its own, so that the signal below reaches QEMU, as Ctrl-C does.
        let mut machine = Guard(command.process_group(0).spawn().context("kprof-qemu cannot be started")?);
        let sampled = self.sample(&stub, samples, rest_ms, unwind);
        // QEMU ends, and the stops are written. It may have ended.
        let _ = Command::new("sh").args(["-c", "kill -INT -$0", &machine.0.id().to_string()]).status();
        machine.0.wait()?;
        sampled
    }

    /// Takes samples of a machine whose stub listens soon, by both.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn sample(&self, stub: &str, samples: u32, rest_ms: u64, unwind: &str) -> Result<()> {
        let shared = Shared::new()?;
        let [sampler_port, gdb_port] = shared.ports()?;
        let mut gdb = run::bound(&self.gdb);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gdb/stacks.py");
        let given = format!("python PORT, OUT = {gdb_port}, {:?}", self.file("gdb.txt").display().to_string());
        let symbols = format!("symbol-file -readnow -o {:#x} {}", self.slide, self.file("kernel").display());
        gdb.args(["-nx", "-batch", "-ex", &symbols, "-ex", &given, "-x"]).arg(script);
        let log = fs::File::create(self.file("gdb.log"))?;
        gdb.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let _gdb = Guard(gdb.spawn().context("gdb cannot be started")?);
        let mut attach = run::bound(&self.tool);
        attach.args(["attach", "--gdb", &sampler_port.to_string(), "--samples", &samples.to_string(), "--user", "-o"]);
        attach.arg(self.file("samples.txt")).args(["--unwind", unwind, "--kernel"]).arg(self.file("kernel"));
        let mut random = 0_u64;
        let rest = move || {
            // Another time after each stop, so that no loop of the kernel is in step with the stops.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Duration::from_micros(rest_ms * 500 + (random >> 33) % (rest_ms * 1000).max(1))
        };
        let stub = stub.to_owned();
        let served = std::thread::spawn(move || shared.serve(&stub, rest));
        let done = run::caught(&mut attach, LIMIT)?;
        let served = served.join().map_err(|_| anyhow::anyhow!("the stub could not be shared"))?;
        let code = done.status.and_then(|status| status.code());
        ensure!(code == Some(0), "attach ended with {code:?}: {}", done.text);
        served
    }

    /// Compares what both have found, after the machine has ended, and returns how many are of kernel code.
    ///
    /// # Errors
    /// As [`judge::judge`]; if there are other samples than stops.
    pub fn judge(&self) -> Result<usize> {
        let (mut by_gdb, mut exact) = (self.by_gdb()?, stacks::stops(&self.folder)?);
        let mut samples = Vec::new();
        let first = |gdb: &[(u64, String)]| gdb.first().map(|(address, _)| *address);
        for (cpu, stops) in &mut by_gdb {
            let sampled = stacks::sampled(&self.fold, &self.folder, *cpu)?;
            let count = sampled.len();
            // The sampler has gone when gdb sees the last stop, and gdb when it has ended.
            ensure!(stops.len().abs_diff(count) <= 1, "CPU {cpu}: {count} samples, and {} stops", stops.len());
            let exact = exact.remove(cpu).unwrap_or_default();
            let at = |before: u64, stop: u64| {
                let next = exact.partition_point(|(number, _)| *number < stop + before);
                exact.get(next).map(|(_, exact)| exact)
            };
            let matches = |before: &u64| {
                let same = stops
                    .iter()
                    .filter(|(stop, gdb)| at(*before, *stop).is_some_and(|exact| Some(exact.address) == first(gdb)));
                same.count()
            };
            let before = STOPS_BEFORE.max_by_key(matches).context("a number of stops")?;
            for (ours, (stop, gdb)) in sampled.into_iter().zip(stops.drain(..)) {
                // gdb prints no frame of a CPU that is just being started, in real mode.
                let Some(address) = first(&gdb).filter(|_| ours.address != UNKNOWN) else { continue };
                ensure!(ours.address == address, "CPU {cpu}, stop {stop}: {ours:x?} and {gdb:x?}");
                let exact = at(before, stop).filter(|exact| exact.address == address).cloned();
                samples.push(Sample { ours, gdb, exact });
            }
        }
        // User code has no frames.
        samples.retain(|sample| !sample.ours.addresses.is_empty());
        judge::judge(&samples)
    }

    /// For each vCPU the stops at which it was not halted, with its stack.
    fn by_gdb(&self) -> Result<Stops> {
        let mut stops = Stops::new();
        let text = fs::read_to_string(self.file("gdb.txt"));
        let text = text.with_context(|| fs::read_to_string(self.file("gdb.log")).unwrap_or_default())?;
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let [stop, cpu, stack] = words[..] else { bail!("gdb.txt: {line}") };
            let frame = |frame: &str| {
                let (at, name) = frame.split_once(':').with_context(|| line.to_owned())?;
                Ok((u64::from_str_radix(at, 16)?, name.to_owned()))
            };
            stops
                .entry(cpu.parse()?)
                .or_default()
                .push((stop.parse()?, stack.split_whitespace().map(frame).collect::<Result<_>>()?));
        }
        ensure!(!stops.is_empty(), "gdb has found nothing: {}", fs::read_to_string(self.file("gdb.log"))?);
        Ok(stops)
    }
}
