//! What signals do to a recording: the real program, on device files that are ordinary files.
//!
//! In: SIGHUP and SIGTERM. Out: whether the recording and its command end, and how. An ordinary file takes every
//! command and gives them back as its state, so it says `protocol 1` after the claim; there are no streams.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A test ends after this time if the program does not.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tests may run under nohup, which a shell cannot undo.
const PLAIN: &str = "exec env --default-signal=HUP";

struct Recording {
    process: Child,
    folder: tempfile::TempDir,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

/// Waits until something is there.
#[track_caller]
fn until<T>(mut there: impl FnMut() -> Option<T>, what: &str) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Recording {
    /// Begins one and returns when its handlers are installed. `start` is how the shell starts it.
    fn begin(start: &str, command: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scheme = folder.path().join("ctl-profiling");
        fs::write(scheme, "protocol 1\nstate stopped\nboot 1\n").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{start} \"$@\""), "sh", env!("CARGO_BIN_EXE_kprof-record"), "--scheme"]);
        shell.arg(folder.path()).arg("-o").arg(folder.path().join("file")).args(command);
        let process = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let this = Self { process, folder };
        // The file is opened after the handlers are installed.
        let file = this.file();
        until(|| fs::metadata(&file).ok().filter(|facts| facts.len() > 0), "no file was begun");
        this
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn send(&self, signal: &str) {
        let kill = format!("kill -{signal} $0");
        assert!(Command::new("sh").args(["-c", &kill, &self.process.id().to_string()]).status().unwrap().success());
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        until(|| self.process.try_wait().unwrap(), "it goes on")
    }
}

/// The commands that the kernel has got.
fn commands(folder: &Path) -> String {
    fs::read_to_string(folder.join("ctl-profiling")).unwrap()
}

#[test]
fn a_recording_without_a_command_ends_with_its_terminal_and_stops_sampling() {
    let mut recording = Recording::begin(PLAIN, &[]);
    recording.send("HUP");
    assert_eq!(recording.end().code(), Some(0));
    assert!(commands(recording.folder.path()).contains("\nstop\n"));
}

#[test]
fn a_recording_that_ignores_the_end_of_its_terminal_goes_on_until_another_signal() {
    let mut recording = Recording::begin("trap '' HUP; exec", &[]);
    recording.send("HUP");
    let waits = || commands(recording.folder.path()).matches("\nwait ").count();
    let before = waits();
    until(|| (waits() > before + 5).then_some(()), "it has ended");
    recording.send("TERM");
    assert_eq!(recording.end().code(), Some(0));
}

#[test]
fn a_signal_ends_the_command_of_a_recording_too() {
    for signal in ["TERM", "HUP", "INT"] {
        let mut recording = Recording::begin(PLAIN, &["--", "sleep", "1000"]);
        recording.send(signal);
        assert_eq!(recording.end().code(), Some(128 + 15), "{signal}");
    }
}
