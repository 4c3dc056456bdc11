//! The QEMU that this program has started. Stage: capture.
//!
//! In: a command; the signals that tell this program to end. Out: QEMU's exit status. The first SIGINT, SIGTERM or
//! SIGHUP asks QEMU to end, so that the plugin sends the rest; if QEMU hangs, the next one kills it. Nothing is sent to
//! a process after its exit status was read, because another process may have its number then.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it is checked whether QEMU has ended, and whether a signal has come.
pub const POLL: Duration = Duration::from_millis(10);

/// A QEMU that was started.
pub struct Machine {
    shared: Arc<Shared>,
}

struct Shared {
    child: Mutex<Child>,
    /// Set by a signal, until it was seen.
    signal: Arc<AtomicBool>,
    /// Whether QEMU was asked to end.
    is_asked: AtomicBool,
    is_over: AtomicBool,
}

impl Machine {
    /// Starts QEMU.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn start(command: &mut Command) -> Result<Self> {
        let signal = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(number, signal.clone())?;
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("{program}: cannot run"))?;
        let (is_asked, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { child: Mutex::new(child), signal, is_asked, is_over });
        let watched = shared.clone();
        thread::spawn(move || watched.pass_signals_on());
        Ok(Self { shared })
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        Ok(self.shared.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn wait(&self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }

    /// Whether a signal has asked it to end.
    pub fn is_told_to_end(&self) -> bool {
        self.shared.is_asked.load(Relaxed) || self.shared.signal.load(Relaxed)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
    }
}

impl Shared {
    fn pass_signals_on(&self) {
        while !self.is_over.load(Relaxed) {
            if self.signal.swap(false, Relaxed) {
                self.end();
            }
            thread::sleep(POLL);
        }
    }

    fn end(&self) {
        // Ctrl-C has reached QEMU too, which then has two reasons to end. A signal for this program alone has not.
        let signal = if self.is_asked.swap(true, Relaxed) { Signal::SIGKILL } else { Signal::SIGTERM };
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Ok(None), Ok(number)) = (child.try_wait(), i32::try_from(child.id())) {
            // It can only fail if QEMU has just ended.
            let _ = kill(Pid::from_raw(number), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    /// A program that ignores SIGTERM, as a QEMU that hangs. It prints a line when it does.
    const HANGS: &str = "trap '' TERM; echo ready; while :; do sleep 0.01; done";

    #[test]
    fn the_first_signal_asks_and_the_second_one_kills() {
        let mut command = Command::new("sh");
        let machine = Machine::start(command.args(["-c", HANGS]).stdout(std::process::Stdio::piped())).unwrap();
        let mut printed = machine.shared.child.lock().unwrap().stdout.take().unwrap();
        std::io::Read::read_exact(&mut printed, &mut [0; 6]).unwrap();
        assert!(!machine.is_told_to_end());
        machine.shared.end();
        assert!(machine.is_told_to_end());
        machine.shared.end();
        assert_eq!(machine.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_process_whose_status_was_read_gets_no_signal() {
        let machine = Machine::start(&mut Command::new("true")).unwrap();
        assert!(machine.wait().unwrap().success());
        machine.shared.end();
        assert!(machine.try_wait().unwrap().unwrap().success());
    }
}
