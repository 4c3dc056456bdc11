//! What every verb that writes a profile does with it. Stage: capture.
//!
//! In: the arguments of a profile, messages of a sampled machine. Out: the file, with what was found of the kernel; a
//! summary on stderr; the report and the page, which kprof-fold makes. An older file is kept under another name.

use crate::arguments::Profiling;
use crate::finder::State;
use crate::message::Message;
use crate::place::Place;
use crate::profile::{About, Counts, Profile};
use crate::tables::{self, Unwind};
use crate::walk::Tables;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

/// Prints the report and draws the page, or says how to.
///
/// # Errors
/// If the page was not drawn.
pub fn draw(common: &Profiling) -> Result<()> {
    let (file, Some(kernel)) = (common.output.display().to_string(), &common.kernel) else {
        eprintln!("kprof-qemu: next: kprof-fold html {} KERNEL -o page.html", common.output.display());
        return Ok(());
    };
    let page = format!("{file}.html");
    let text = fs::read_to_string(&common.output).with_context(|| file.clone())?;
    let boot: &[&str] = if has_moved(&text) { &["--boot", "last"] } else { &[] };
    if !boot.is_empty() {
        eprintln!("kprof-qemu: the kernel ran at several addresses: report and page are of the last boot (--boot)");
    }
    let fold = |words: &[&str]| {
        let user = common.code().has_user().then_some("--user");
        let words = words.iter().chain(boot).copied();
        let all = ["kprof-fold"].into_iter().chain(words).chain(user).chain([&*file, kernel]);
        // What goes wrong it says itself.
        kprof_fold::cli::main(all.map(OsString::from)) == ExitCode::SUCCESS
    };
    // The report has the account; the page need not print it again.
    fold(&["report", "--top", "12"]);
    ensure!(fold(&["html", "--quiet", "-o", &page]), "{file}: has all samples, and {page} was not drawn");
    eprintln!("kprof-qemu: the page is {page}");
    Ok(())
}

/// Whether a boot of the profile has other anchors than the first: names can be those of one address only.
fn has_moved(profile: &str) -> bool {
    let Some(first) = profile.lines().next() else { return false };
    let mut boots: Vec<Vec<&str>> = Vec::new();
    for line in profile.lines() {
        match boots.last_mut() {
            _ if line == first => boots.push(Vec::new()),
            Some(anchors) if line.starts_with("# anchor ") => anchors.push(line),
            _ => {}
        }
    }
    boots.iter().any(|anchors| *anchors != boots[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_moved_if_two_boots_have_other_anchors() {
        let boot = |anchor: &str| format!("# kprof 1\n# arch x86_64\n# anchor _stext {anchor}\nguest 0 1 2 3\n");
        let profile = |anchors: &[&str]| anchors.iter().map(|anchor| boot(anchor)).collect::<String>();
        assert!(has_moved(&profile(&["ffffffff81000000", "ffffffff92000000"])));
        assert!(!has_moved(&profile(&["ffffffff81000000", "ffffffff81000000"])));
        assert!(!has_moved(&profile(&["ffffffff81000000"])) && !has_moved(""));
    }
}
