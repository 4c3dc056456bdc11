//! `record`: runs QEMU with the plugin, and writes what it sends. Stage: capture.
//!
//! In: a QEMU command line. Out: the profile, and QEMU's exit code. Ctrl-C ends QEMU, and what was sampled until then
//! is in the file. Of a QEMU that is killed, the file has no account, because some samples may be missing. A QEMU that
//! takes no such plugin is sampled by its gdb stub.

use crate::fallback;
use crate::finder::State;
use crate::message::Message;
use crate::place::Place;
use crate::profile::{About, Counts, Profile};
use crate::run::{self, NoPlugin, Run};
use crate::tables::{self, Unwind};
use crate::walk::Tables;
use crate::{Profiling, Record};
use anyhow::{Context, Result, bail};
use kprof_format::precision::Precision;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs QEMU and writes the profile.
///
/// # Errors
/// If QEMU cannot be run, takes no plugin, or the profile cannot be written.
pub fn run(arguments: &Record) -> Result<ExitCode> {
    match by_plugin(arguments) {
        Err(error) if error.is::<NoPlugin>() && arguments.every.is_none() && has_fallback(arguments) => {
            eprintln!("kprof-qemu: {error}");
            eprintln!("kprof-qemu: without the plugin, samples are taken by QEMU's gdb stub: it costs the guest more");
            fallback::run(arguments)
        }
        done => done,
    }
}

/// Writes a message of a sampled machine into its profile.
///
/// # Errors
/// If the profile cannot be written.
pub fn take(message: &Message, profile: &mut Profile<BufWriter<File>>, place: Option<&mut Place>) -> Result<()> {
    match (message, place) {
        (Message::Place(outcome), Some(place)) => {
            place.take(outcome);
            if outcome.state == State::Placed {
                profile.found_kernel();
            }
            Ok(())
        }
        (Message::Reset, place) => {
            let is_reboot = profile.reset()?;
            place.into_iter().for_each(|place| place.reset(is_reboot));
            if is_reboot {
                eprintln!("kprof-qemu: the guest reboots; its next boot is another one in the profile, too");
            }
            Ok(())
        }
        _ => profile.take(message),
    }
}

/// The gdb stub is read for one processor only.
fn has_fallback(arguments: &Record) -> bool {
    arguments.qemu.first().is_some_and(|program| run::arch(program).is_ok_and(|arch| arch == "x86_64"))
}

fn by_plugin(arguments: &Record) -> Result<ExitCode> {
    let run = Run::of_any(&arguments.qemu)?;
    let rate = arguments.every.map_or(format!("hz={}", arguments.hz), |every| format!("every={every}"));

    let common = &arguments.profiling;
    let about = About {
        arch: run.arch(),
        hz: arguments.every.is_none().then_some(arguments.hz),
        seed: common.seed,
        precision: if run.has_icount() { Precision::Instruction } else { Precision::Block },
        code: common.code(),
        boot: boot(),
    };
    let mut place = place(common)?;
    let mut found = place.as_ref().map_or(Ok(String::new()), |place| place.options(&run))?;
    if let Some(tables) = tables(common)? {
        found += &format!(",tables={}", run.file("tables", &tables::bytes(&tables))?);
    }
    if !arguments.cpu.is_empty() {
        let list: Vec<String> = arguments.cpu.iter().map(u32::to_string).collect();
        found += &format!(",cpus={}", list.join(":"));
    }
    let mut profile = create(&common.output, &about)?;
    let options = format!("{rate},seed={}{found}", common.seed);
    let status = run.run(&options, |message| take(message, &mut profile, place.as_mut()));
    let status = match status {
        Ok(status) => status,
        Err(error) if error.is::<NoPlugin>() => {
            // Nothing is in it: it must not take the place of the older one.
            fs::remove_file(&common.output)?;
            return Err(error);
        }
        Err(error) => {
            let samples = profile.cut_off()?;
            let file = common.output.display();
            return Err(error.context(format!("{file}: has {samples} samples, and no account: some may be missing")));
        }
    };
    let counts = profile.finish()?;
    summary(&common.output, &counts);
    if let Some(cpu) = arguments.cpu.iter().find(|cpu| !counts.contains_key(cpu)) {
        eprintln!("kprof-qemu: vCPU {cpu} had no tick: either the run was too short, or the machine has no such vCPU");
    }
    placed(place.as_ref(), &common.output)?;
    draw(common)?;
    Ok(run::exit_code(status))
}

/// The kernel's file, if one was given.
///
/// # Errors
/// If it cannot be read.
pub fn place(common: &Profiling) -> Result<Option<Place>> {
    common.kernel.as_ref().map(|kernel| Place::open(kernel, common.slide)).transpose()
}

/// The kernel's unwind tables, if stacks are found by them.
///
/// # Errors
/// If it was asked for and there are none.
pub fn tables(common: &Profiling) -> Result<Option<Tables>> {
    match &common.kernel {
        Some(kernel) => tables::choose(kernel, common.tables.as_deref(), common.unwind),
        None if common.unwind == Unwind::Tables => bail!("--unwind tables: needs the tables in the file of --kernel"),
        None => Ok(None),
    }
}

/// Says where the kernel ran, and writes it into the profile.
///
/// # Errors
/// If another kernel ran; if the file cannot be written.
pub fn placed(place: Option<&Place>, output: &Path) -> Result<()> {
    let Some(place) = place else { return Ok(()) };
    place.say().with_context(|| format!("{}: has all samples, and was not folded", output.display()))?;
    place.write(output)
}

/// A number that no other recording has.
pub fn boot() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Begins a profile in a new file.
///
/// # Errors
/// If it cannot be written.
pub fn create(output: &Path, about: &About) -> Result<Profile<BufWriter<File>>> {
    keep_older(output)?;
    let file = File::create(output).with_context(|| format!("{}: cannot create", output.display()))?;
    Profile::new(BufWriter::new(file), about)
}

/// Says what the ticks have become.
pub fn summary(output: &Path, counts: &BTreeMap<u32, Counts>) {
    let sum = |part: fn(&Counts) -> u64| counts.values().map(part).sum::<u64>();
    let kernel = match sum(|counts| counts.kernel) {
        0 => String::new(),
        ticks => format!("{ticks} in the kernel, "),
    };
    eprintln!(
        "kprof-qemu: {}: {} samples of {} vCPUs; {} ticks in user code, {kernel}{} idle, {} coalesced, 0 lost",
        output.display(),
        sum(|counts| counts.recorded),
        counts.len(),
        sum(|counts| counts.user),
        sum(|counts| counts.idle),
        sum(|counts| counts.coalesced),
    );
    let (unknown, recorded) = (sum(|counts| counts.unknown), sum(|counts| counts.recorded));
    if unknown * 2 > recorded {
        eprintln!(
            "kprof-qemu: {unknown} of {recorded} samples are of code in kernel mode that is not the kernel's: \
             firmware, a boot loader, or code that is not in long mode"
        );
    }
}

/// An older file keeps its samples under another name.
fn keep_older(file: &Path) -> Result<()> {
    let mut old = file.as_os_str().to_owned();
    old.push(".old");
    match fs::rename(file, PathBuf::from(&old)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.with_context(|| format!("{}: cannot rename to {}", file.display(), old.display())),
    }
}

/// Shows the result, or says how to.
///
/// # Errors
/// If kprof-fold cannot be run.
pub fn draw(common: &Profiling) -> Result<()> {
    let (file, Some(kernel)) = (common.output.display().to_string(), &common.kernel) else {
        eprintln!("kprof-qemu: next: kprof-fold html {} KERNEL -o page.html", common.output.display());
        return Ok(());
    };
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("kprof-fold")).filter(|fold| fold.exists());
    let fold = beside.unwrap_or_else(|| PathBuf::from("kprof-fold"));
    let page = format!("{file}.html");
    let mut is_drawn = false;
    // The report has the account; the page need not print it again.
    for words in [&["report", "--top", "12"][..], &["html", "--quiet", "-o", &page]] {
        let user = common.code().has_user().then_some("--user");
        let done = Command::new(&fold).args(words).args(user).arg(&file).arg(kernel).status();
        match done {
            // What went wrong has been said by kprof-fold.
            Ok(status) => is_drawn = status.success(),
            Err(error) => bail!("{}: cannot run ({error}); cargo install kprof-fold installs it", fold.display()),
        }
    }
    if is_drawn {
        eprintln!("kprof-qemu: the page is {page}");
    }
    Ok(())
}
