//! `record`: runs QEMU with the plugin, and writes what it sends. Stage: capture.
//!
//! In: a QEMU command line. Out: the profile, and QEMU's exit code. The plugin is part of this program; it is written
//! to a temporary folder, which is removed at the end. Ctrl-C ends QEMU, and what was sampled until then is in the
//! file.

use crate::Record;
use crate::message;
use crate::profile::{About, Profile};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufReader, BufWriter, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The plugin; `build.rs` has compiled it.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));
/// The first version of QEMU that refuses plugins of version 1.
const TOO_NEW: u32 = 9;
/// How often it is checked whether QEMU has ended before it has loaded the plugin.
const POLL: Duration = Duration::from_millis(10);

/// Runs QEMU and writes the profile.
///
/// # Errors
/// If QEMU cannot be run, takes no plugin, or the profile cannot be written.
pub fn run(arguments: &Record) -> Result<ExitCode> {
    let (program, words) = arguments.qemu.split_first().context("the QEMU command line is missing")?;
    check_version(program)?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let [plugin, socket] = ["plugin.so", "socket"].map(|name| folder.path().join(name));
    fs::write(&plugin, PLUGIN).with_context(|| format!("{}: cannot write", plugin.display()))?;
    let listener = UnixListener::bind(&socket).with_context(|| format!("{}: cannot listen", socket.display()))?;
    let rate = arguments.every.map_or(format!("hz={}", arguments.hz), |every| format!("every={every}"));
    let given = format!("{},{rate},seed={},socket={}", plugin.display(), arguments.seed, socket.display());

    keep_older(&arguments.output)?;
    let file =
        File::create(&arguments.output).with_context(|| format!("{}: cannot create", arguments.output.display()))?;
    let about = About {
        hz: arguments.every.is_none().then_some(arguments.hz),
        seed: arguments.seed,
        icount: words.iter().any(|word| word == "-icount"),
        user: arguments.user,
        boot: RandomState::new().hash_one(std::process::id()),
    };
    let mut profile = Profile::new(BufWriter::new(file), &about)?;
    // Ctrl-C is for QEMU, which is in the same process group; this program ends after it.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::new(AtomicBool::new(false)))?;
    let mut child = Command::new(program)
        .args(["-plugin", &given])
        .args(words)
        .spawn()
        .with_context(|| format!("{program}: cannot run"))?;
    let read = match accept(&listener, &mut child)? {
        Some(stream) => receive(stream, &mut profile),
        None => bail!(
            "{program} ended ({}) before it loaded the plugin; if it said that -plugin is unknown, it was built \
             without plugin support",
            child.wait()?
        ),
    };
    if read.is_err() {
        // Nobody reads any more: the plugin takes no more samples, and QEMU goes on to its end.
        eprintln!("kprof-qemu: the profile ends here; waiting for QEMU to end");
    }
    let status = child.wait()?;
    read?;
    let counts = profile.finish()?;
    let sum = |part: fn(&crate::profile::Counts) -> u64| counts.values().map(part).sum::<u64>();
    eprintln!(
        "kprof-qemu: {}: {} samples of {} vCPUs; {} ticks in user code, {} idle, {} coalesced, 0 lost",
        arguments.output.display(),
        sum(|counts| counts.recorded),
        counts.len(),
        sum(|counts| counts.user),
        sum(|counts| counts.idle),
        sum(|counts| counts.coalesced),
    );
    draw(arguments)?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Refuses a QEMU that does not take this plugin.
fn check_version(program: &str) -> Result<()> {
    ensure!(
        program.rsplit('/').next().is_some_and(|name| name.contains("x86_64")),
        "{program}: only guests of qemu-system-x86_64 are sampled yet"
    );
    let said = Command::new(program).arg("--version").output().with_context(|| format!("{program}: cannot run"))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = text.split("version ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    match version {
        Some(major) if major < TOO_NEW => Ok(()),
        Some(major) => bail!(
            "{program} is version {major}; its plugin interface is another one from {TOO_NEW}.0 on, use an older QEMU \
             (7.2 to 8.2)"
        ),
        None => bail!("{program} --version does not say which QEMU it is: {}", text.lines().next().unwrap_or_default()),
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

/// Waits for the plugin; `None` if QEMU has ended before.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<Option<UnixStream>> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

fn receive(stream: UnixStream, profile: &mut Profile<BufWriter<File>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(message) = message::read(&mut stream)? {
        profile.take(&message)?;
    }
    Ok(())
}

/// Shows the result, or says how to.
fn draw(arguments: &Record) -> Result<()> {
    let (file, Some(kernel)) = (arguments.output.display().to_string(), &arguments.kernel) else {
        eprintln!("kprof-qemu: next: kprof-fold html {} KERNEL -o page.html", arguments.output.display());
        return Ok(());
    };
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("kprof-fold")).filter(|fold| fold.exists());
    let fold = beside.unwrap_or_else(|| PathBuf::from("kprof-fold"));
    let page = format!("{file}.html");
    for words in [&["report", "--top", "12"][..], &["html", "-o", &page]] {
        let done = Command::new(&fold).args(words).arg(&file).arg(kernel).status();
        match done {
            Ok(_) => {}
            Err(error) => bail!("{}: cannot run ({error}); cargo install kprof-fold installs it", fold.display()),
        }
    }
    Ok(())
}
