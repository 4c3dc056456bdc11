//! Signals, as flags that the drain loop checks once a round.
//!
//! In: SIGTERM, SIGINT, SIGHUP, SIGCHLD. Out: flags. Runs in: the handlers only store a flag; they never wait, allocate
//! or print. A kernel ends the wait of a reader when a signal arrives; every wait of the daemon is short
//! too, so a flag is seen soon in any case.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The requests that signals have made.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    reopen: Arc<AtomicBool>,
    hung_up: Arc<AtomicBool>,
    child_ended: Arc<AtomicBool>,
}

impl Signals {
    /// Flags that are set by SIGTERM and SIGINT (stop). A second SIGTERM or SIGINT ends the process immediately;
    /// records that were not acknowledged by then stay in the kernel.
    ///
    /// # Errors
    /// If the system refuses to install a handler.
    pub fn installed() -> io::Result<Self> {
        let signals = Self::default();
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signals.stop))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        Ok(signals)
    }

    /// The signals of `profiled`: SIGHUP asks to reopen the file.
    ///
    /// # Errors
    /// If the system refuses to install a handler.
    pub fn of_profiled() -> io::Result<Self> {
        let signals = Self::installed()?;
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.reopen))?;
        Ok(signals)
    }

    /// The signals of `kprof-record`: SIGCHLD says that the command has ended; SIGHUP ends the recording, because its
    /// terminal has gone, unless it was ignored from the beginning (nohup).
    ///
    /// # Errors
    /// If the system refuses to install a handler.
    pub fn of_recording() -> io::Result<Self> {
        let signals = Self::installed()?;
        signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::clone(&signals.child_ended))?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if !ignores_hangup(&status) {
            signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.hung_up))?;
        }
        Ok(signals)
    }

    /// Whether something has happened that ends a pause early.
    pub fn any(&self) -> bool {
        [&self.stop, &self.reopen, &self.hung_up, &self.child_ended].iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Whether the session has been asked to end.
    pub fn stop_wanted(&self) -> bool {
        // A flag of its own: after a hang-up, one SIGTERM does not end the process immediately.
        self.stop.load(Ordering::Relaxed) || self.hung_up.load(Ordering::Relaxed)
    }

    /// Whether the session has been asked to end, or the command that it records has ended.
    pub fn end_wanted(&self) -> bool {
        self.stop_wanted() || self.child_ended.load(Ordering::Relaxed)
    }

    /// Whether the file is to be reopened.
    pub fn reopen_wanted(&self) -> bool {
        self.reopen.load(Ordering::Relaxed)
    }

    /// Whether the file is to be reopened; clears the flag.
    pub fn take_reopen(&self) -> bool {
        self.reopen.swap(false, Ordering::Relaxed)
    }

    /// Clears the flag of an earlier child, before another one is started.
    pub fn forget_child(&self) {
        self.child_ended.store(false, Ordering::Relaxed);
    }

    /// Requests the end of the session, as SIGTERM does.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Says that the recorded command has ended, as SIGCHLD does.
    pub fn child_ended(&self) {
        self.child_ended.store(true, Ordering::Relaxed);
    }

    /// Requests that the file is reopened, as SIGHUP does.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }
}

/// Whether a process with this `/proc/PID/status` ignores SIGHUP. A system without this file ignores it nowhere.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal_hook::consts::SIGHUP - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_of_the_ignored_signals_is_that_of_a_hangup() {
        for (status, ignores) in [
            ("Name:\ta\nSigIgn:\t0000000000000001\n", true),
            ("SigIgn:\t0000000000001006\nSigCgt:\t0000000000000001\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), ignores, "{status}");
        }
    }

    #[test]
    fn a_request_to_reopen_counts_once_and_a_request_to_end_stays() {
        let signals = Signals::default();
        assert!(!signals.any() && !signals.take_reopen());
        signals.reopen();
        assert!(signals.any() && signals.reopen_wanted() && signals.take_reopen());
        assert!(!signals.any() && !signals.reopen_wanted() && !signals.take_reopen());
        signals.child_ended();
        assert!(signals.any() && signals.end_wanted() && !signals.stop_wanted());
        signals.forget_child();
        assert!(!signals.any() && !signals.end_wanted());
        signals.stop();
        assert!(signals.any() && signals.end_wanted() && signals.stop_wanted());
        signals.forget_child();
        assert!(signals.clone().stop_wanted(), "the flags are the same ones");
    }
}
