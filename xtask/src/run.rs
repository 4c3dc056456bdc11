//! Runs other programs. Their output is caught, they have a time limit, and none of them outlives this process.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// Waits until this process has the file `path` for itself, and keeps it until the value is dropped or the process
/// ends.
///
/// # Errors
/// If the file cannot be made or locked.
pub fn lock(path: &Path) -> Result<File> {
    let make = || {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = File::create(path)?;
        file.lock()?;
        Ok::<_, std::io::Error>(file)
    };
    make().with_context(|| format!("lock {}", path.display()))
}

/// Copies a file in such a way that `to` is complete at any moment, also for a process that is using it. Only one
/// caller at a time may copy to the same `to`.
///
/// # Errors
/// If a file cannot be read, written or renamed.
pub fn copy_whole(from: &Path, to: &Path) -> std::io::Result<()> {
    let new = to.with_extension("new");
    std::fs::copy(from, &new)?;
    std::fs::rename(&new, to)
}

/// Copies a folder without build outputs and version control; it need not be a git checkout. A file that already exists
/// with the same content is not written, so that cargo sees no change.
///
/// # Errors
/// If a file cannot be read or written.
pub fn copy_source(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() && name != "target" && name != ".git" {
            copy_source(&path, &to.join(name))?;
        } else if path.is_file() {
            let (source, copy) = (std::fs::read(&path).with_context(|| path.display().to_string())?, to.join(name));
            if std::fs::read(&copy).is_ok_and(|bytes| bytes == source) {
                continue;
            }
            std::fs::write(&copy, source).with_context(|| copy.display().to_string())?;
        }
    }
    Ok(())
}

/// The path of the program `name`, if PATH has it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Runs a command and gives what it printed.
///
/// # Errors
/// If the command cannot be started, or fails. The error contains what the command printed to standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{line} cannot be started"))?;
    if !output.status.success() {
        bail!("{line} failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a command with a time limit did.
pub struct Finished {
    /// Its exit status; `None`: the time limit ended it.
    pub status: Option<ExitStatus>,
    /// What it printed, standard output and error together.
    pub text: String,
}

/// How long the output of a command that has ended may stay open: a process that it left running holds it. On a busy
/// host the processes of Spark take long to end.
const PIPE_OPEN: Duration = Duration::from_secs(60);

fn hold(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    // A panic of the other side leaves whole blocks.
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command for at most `limit` and gives what it printed, whatever its exit code.
///
/// # Errors
/// If it cannot be started, or ends but leaves a process running that holds its output open.
pub fn caught(command: &mut Command, limit: Duration) -> Result<Finished> {
    caught_until(command, limit, PIPE_OPEN)
}

/// Runs a command that has to succeed within `limit`, and gives what it printed, standard output and error together.
///
/// # Errors
/// If it cannot be started, fails, or is ended by the limit. The error contains what the command printed.
pub fn must_succeed(command: &mut Command, limit: Duration) -> Result<String> {
    let line = format!("{command:?}");
    let Finished { status, text } = caught(command, limit)?;
    match status {
        Some(status) if status.success() => Ok(text),
        Some(status) => bail!("{line} failed ({status}):\n{text}"),
        None => bail!("{line} was ended after {} s:\n{text}", limit.as_secs()),
    }
}

/// The same as [`caught`]; the output may stay open for `open` after the end.
fn caught_until(command: &mut Command, limit: Duration, open: Duration) -> Result<Finished> {
    let line = format!("{command:?}");
    let (mut reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().with_context(|| format!("{line} cannot be started"));
    // `Command` keeps its copies of the pipe's write end. Unless they are dropped here, the reader below never sees the
    // end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut guard = Guard(child?);
    let text = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&text);
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut block = [0; 16 * 1024];
        // A read error counts as the end of the output.
        while let Ok(size @ 1..) = reader.read(&mut block) {
            hold(&collected).extend_from_slice(&block[..size]);
        }
        // Nobody receives this if the caller has stopped waiting.
        let _ = ended.send(());
    });
    let start = Instant::now();
    let status = loop {
        match guard.0.try_wait()? {
            Some(status) => break Some(status),
            None if start.elapsed() > limit => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if status.is_none() {
        end_children(&guard.0);
    }
    drop(guard);
    let is_complete = end.recv_timeout(open).is_ok();
    let text = String::from_utf8_lossy(&hold(&text)).into_owned();
    if !is_complete && status.is_some() {
        bail!("{line} has left a process running, which holds its output open. It printed:\n{text}");
    }
    Ok(Finished { status, text })
}

/// A command for `program`, which the kernel kills when this process ends for any reason. This needs util-linux's
/// setpriv. On a machine without it only [`Guard`] ends the program.
pub fn bound(program: &Path) -> Command {
    match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// [`bound`], run by another program: its name and its words; empty: by none.
pub fn bound_by(runner: &[String], program: &Path) -> Command {
    let Some((runner, words)) = runner.split_first() else { return bound(program) };
    let mut command = bound(Path::new(runner));
    command.args(words).arg(program);
    command
}

/// Ends the processes that a child has started: `bound` does not reach those of another program.
pub fn end_children(child: &Child) {
    let id = child.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        // It may have ended meanwhile.
        // The shell's own `kill` is used, because the program is in a package that may be missing.
        let _ = Command::new("sh").args(["-c", "kill -KILL $0", child]).status();
    }
}

/// A child process that does not outlive this value.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // An error means that the process has already ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Seconds of CPU time of all programs that this process has run and that have ended.
pub fn cpu_seconds() -> f64 {
    let of = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| of(usage.user_time()) + of(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_left_running_is_an_error_and_blocks_nobody() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; sleep 60 & exit 0"]);
        let [limit, open] = [50, 1].map(Duration::from_secs);
        let Err(error) = caught_until(&mut command, limit, open) else { panic!("it should be an error") };
        let said = error.to_string();
        assert!(said.contains("left a process running") && said.contains("before"), "{said}");
    }
}
