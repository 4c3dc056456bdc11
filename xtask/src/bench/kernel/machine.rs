//! One run of the test kernel with a scenario. In: kernel, scenario, machine. Out: the serial log and the shared
//! folder.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::{self, Accel, Verdict};
use crate::run;

/// The results of a run.
pub struct Ran {
    /// The serial log.
    pub log: String,
    /// The folder that the guest saw as /root.
    pub share: PathBuf,
}

impl Ran {
    /// Checks that the scenario has passed: `must-fail` is run too, for its boot.
    ///
    /// # Errors
    /// If it has not.
    pub fn passed(&self) -> Result<()> {
        ensure!(self.log.contains("init: scenario ") && self.log.contains(" has passed"), "its log:\n{}", self.log);
        Ok(())
    }

    /// When init was started, in microseconds of guest time since boot.
    ///
    /// # Errors
    /// If it was not started.
    pub fn boot_us(&self) -> Result<f64> {
        let text = self.log.lines().find_map(|line| line.split_once("boot: ")?.1.strip_suffix(" us, starting init"));
        text.and_then(|text| text.parse().ok()).context("the log does not say when init was started")
    }
}

/// Runs `scenario` to its end.
///
/// # Errors
/// If the machine does not end by itself.
pub fn run(parts: &Parts, kernel: &Kernel, scenario: &str, accel: Accel, cpus: u32, more: &str) -> Result<Ran> {
    let folder = run::root().join("target/bench-kernel").join(scenario);
    let share = folder.join("root");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&share)?;
    let serial = folder.join("serial.log");
    let append = format!("scenario={scenario} accel={} {more}", accel.name());
    let machine = parts.machine(kernel, &share, &serial, (accel, cpus), append, Duration::from_secs(900))?;
    eprintln!("running {scenario} on {cpus} CPUs ({})", accel.name());
    match machine.run(&parts.qemu, || ())? {
        Verdict::Success | Verdict::Failure => {}
        verdict => bail!("{scenario}: {verdict:?}; the end of the log:\n{}", qemu::last_lines(&serial, 30)),
    }
    let log = String::from_utf8_lossy(&std::fs::read(&serial)?).into_owned();
    Ok(Ran { log, share })
}
