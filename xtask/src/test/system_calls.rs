//! The system calls of the real `profiled`, seen and made to fail by strace.
//!
//! In: device files that are ordinary files (`kprof-daemon/tests/daemon/support/devices.rs`). Out: what is created,
//! locked, written and synced in which order, and that a call that fails ends the session with its name, or is waited
//! for. The host tests run the daemon on a simulated system, so they do not notice if `system/host.rs` leaves a call
//! out.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::outcome::{Context, Outcome};
use crate::tools;
use crate::{build, run};

#[path = "../../../kprof-daemon/tests/daemon/support/devices.rs"]
mod devices;

/// The time limit of one run.
const LIMIT: Duration = Duration::from_secs(60);
/// The system calls that strace shows.
const CALLS: &str = "trace=openat,flock,fsync,fdatasync,write,ftruncate,rename,fchmod";

/// A folder, and the programs to run profiled in it under strace.
struct Traced {
    strace: PathBuf,
    profiled: PathBuf,
    folder: PathBuf,
}

/// What a run of profiled has done.
struct Done {
    /// The traced calls that concern the folder.
    calls: Vec<String>,
    /// What it has said.
    said: String,
}

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let strace = tools::program("strace", "strace", context.install)?;
    let probe = run::caught(Command::new(&strace).args(["-o", "/dev/null", "true"]), LIMIT)?;
    if !probe.status.is_some_and(|status| status.success()) {
        outcome.skipped.push(format!("strace may not trace a process here: {}", probe.text.trim()));
        return Ok(outcome);
    }
    let profiled = build::tool("profiled")?;
    let folder = run::root().join("target/test/system-calls");
    let traced = Traced { strace, profiled, folder };
    outcome.check("a new file is private, locked, and synced with its folder", traced.new_file());
    outcome.check("everything that is written is synced before the session goes on", traced.writes_are_synced());
    outcome.check("what is read of an existing file is synced before it is acknowledged", traced.existing_file());
    outcome.check("a rotation syncs the new file before it is renamed, and the folder after", traced.rotation());
    for (call, said) in [
        ("fdatasync:error=EIO:when=2", "writing it to the disk failed: Input/output error"),
        ("ftruncate:error=EIO", "cutting it back to its last finished batch failed: Input/output error"),
        ("fsync:error=ENOSPC", "writing its folder to the disk failed: No space left on device"),
        ("flock:error=EAGAIN", "is being written by another process"),
    ] {
        outcome.check(&format!("{call} ends the session with its name"), traced.fails(call, said));
    }
    // The first write is the header, the second one all batches.
    let full = traced.disturbed("write:error=ENOSPC:when=2..3", "there is room again, going on");
    outcome.check("a disk that is full for two attempts is waited for", full);
    let interrupted = traced.disturbed("write,fdatasync,ftruncate:error=EINTR:when=1+2", "5000 samples");
    outcome.check("a call that a signal interrupts is made again", interrupted);
    Ok(outcome)
}

impl Traced {
    /// Empties the folder.
    fn anew(&self) -> Result<&Self> {
        let _ = std::fs::remove_dir_all(&self.folder);
        std::fs::create_dir_all(&self.folder)?;
        Ok(self)
    }

    /// Runs profiled in the folder. Returns whether it succeeded.
    fn run(&self, strace: &[&str], more: &[&str]) -> Result<(Done, bool)> {
        let mut command = Command::new(&self.strace);
        command.args(["-y", "-s", "16", "-o", "calls", "-e", CALLS]).args(strace).current_dir(&self.folder);
        // New ones for each run: what the daemon has acknowledged is not read again.
        let devices = devices::devices();
        command.arg(&self.profiled).arg("--scheme").arg(devices.path());
        // A session whose calls fail may have to try again, a second later.
        let duration = if strace.is_empty() { "10ms" } else { "4s" };
        command.args(["--duration", duration, "-o", "profiling.txt"]).args(more);
        let done = run::caught(&mut command, LIMIT)?;
        let calls = std::fs::read_to_string(self.folder.join("calls")).with_context(|| done.text.clone())?;
        let is_ours = |line: &&str| line.contains("profiling.txt") || line.contains("/system-calls>) = ");
        let calls = calls.lines().filter(is_ours).map(str::to_owned).collect();
        Ok((Done { calls, said: done.text }, done.status.is_some_and(|status| status.success())))
    }

    /// Runs profiled in the folder. If it fails, returns what it said as an error.
    fn succeeds(&self, strace: &[&str], more: &[&str]) -> Result<Done> {
        let (done, success) = self.run(strace, more)?;
        if success { Ok(done) } else { bail!("it fails: {}", done.said) }
    }

    fn new_file(&self) -> Result<()> {
        let calls = self.anew()?.succeeds(&[], &[])?.calls;
        let create = index(&calls, 0, |call| call.contains("O_CREAT"))?;
        ensure!(calls[create].contains(", 0600)"), "{}", calls[create]);
        let lock = index(&calls, create, |call| call.starts_with("flock(") && call.contains("LOCK_EX|LOCK_NB"))?;
        let synced = index(&calls, lock, |call| call.starts_with("fsync(") && call.contains("system-calls>"))?;
        index(&calls, synced, is_write).map(drop)
    }

    fn writes_are_synced(&self) -> Result<()> {
        for form in [&[][..], &["--binary"]] {
            let calls = self.anew()?.succeeds(&[], form)?.calls;
            let calls: Vec<_> = calls.iter().filter(|call| is_write(call) || call.starts_with("fdatasync(")).collect();
            let unsynced = calls.windows(2).filter(|two| is_write(two[0]) && is_write(two[1])).count();
            let writes = calls.iter().filter(|call| is_write(call)).count();
            let is_last_synced = calls.last().is_some_and(|call| !is_write(call));
            ensure!(writes >= 2 && unsynced == 0 && is_last_synced, "{calls:#?}");
        }
        Ok(())
    }

    fn existing_file(&self) -> Result<()> {
        self.anew()?.succeeds(&[], &[])?;
        let done = self.succeeds(&[], &[])?;
        ensure!(done.said.contains("were in the file already"), "{}", done.said);
        let synced = index(&done.calls, 0, |call| call.starts_with("fdatasync("))?;
        ensure!(!done.calls[..synced].iter().any(|call| is_write(call)), "{:#?}", done.calls);
        Ok(())
    }

    fn rotation(&self) -> Result<()> {
        let calls = self.anew()?.succeeds(&[], &["--max-size", "200K", "--rotate", "2"])?.calls;
        let is_new = |call: &str| call.contains("profiling.txt.new");
        let rename = index(&calls, 0, |call| call.starts_with("rename(") && is_new(call))?;
        let create = index(&calls[..rename], 0, |call| call.contains("O_CREAT") && call.contains("O_NOFOLLOW"))?;
        let written = index(&calls[..rename], create, |call| is_write(call) && is_new(call))?;
        index(&calls[..rename], written, |call| call.starts_with("fdatasync(") && is_new(call))?;
        index(&calls, rename, |call| call.starts_with("fsync(")).map(drop)
    }

    fn fails(&self, call: &str, expected: &str) -> Result<()> {
        let (done, success) = self.anew()?.run(&["-e", &format!("inject={call}")], &[])?;
        ensure!(!success && done.said.contains(expected), "it says: {}", done.said);
        Ok(())
    }

    /// Makes calls on the file fail, which the session must survive. The file must be what a session without them
    /// writes.
    fn disturbed(&self, calls: &str, expected: &str) -> Result<()> {
        let file = self.anew()?.folder.join("profiling.txt");
        // strace selects calls by the path of a file that exists.
        std::fs::write(&file, "")?;
        let (inject, path) = (format!("inject={calls}"), file.to_string_lossy());
        let done = self.succeeds(&["-P", &path, "-e", &inject], &[])?;
        ensure!(done.said.contains(expected), "it says: {}", done.said);
        ensure!(done.calls.iter().any(|call| call.contains("(INJECTED)")), "no call has failed: {:#?}", done.calls);
        let disturbed = std::fs::read(&file)?;
        self.anew()?.succeeds(&[], &[])?;
        ensure!(disturbed == std::fs::read(&file)?, "the file differs from that of an undisturbed session");
        Ok(())
    }
}

fn is_write(call: &str) -> bool {
    call.starts_with("write(")
}

/// The index of the first call from `from` on that is wanted.
fn index(calls: &[String], from: usize, is_wanted: impl Fn(&str) -> bool) -> Result<usize> {
    match calls[from..].iter().position(|call| is_wanted(call)) {
        Some(at) => Ok(from + at),
        None => bail!("a call is missing after number {from} of {calls:#?}"),
    }
}
