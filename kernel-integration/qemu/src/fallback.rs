//! `record` without the plugin: runs QEMU with a gdb stub, and samples it by that. Stage: capture.
//!
//! In: a QEMU command line. Out: the profile, and QEMU's exit code. The stub listens on 127.0.0.1, on a port that was
//! free. A signal that tells this program to end ends QEMU.

use crate::arguments::{Attach, Record};
use crate::gdb::Gdb;
use crate::machine::{Machine, POLL};
use crate::{attach, recording, run};
use anyhow::{Context, Result, bail};
use std::net::TcpListener;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long QEMU may take until its stub listens.
const START: Duration = Duration::from_secs(20);

/// Runs QEMU and writes the profile.
///
/// # Errors
/// If QEMU cannot be run or has no gdb stub, or the profile cannot be written.
pub fn run(arguments: &Record) -> Result<ExitCode> {
    let (program, words) = arguments.qemu.split_first().context("the QEMU command line is missing")?;
    // The port is free again when QEMU takes it.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let stub = ["-S", "-gdb", &format!("tcp:{address}")].map(str::to_owned);
    let machine = Machine::start(Command::new(program).args(words).args(stub))?;
    let start = Instant::now();
    let gdb = loop {
        match Gdb::connect(&address) {
            Ok(gdb) => break gdb,
            Err(error) if start.elapsed() > START => return Err(error),
            Err(_) => {}
        }
        if let Some(status) = machine.try_wait()? {
            bail!("{program} ended ({status}) before its gdb stub listened");
        }
        std::thread::sleep(POLL);
    };
    let profiling = arguments.profiling.clone();
    let common =
        Attach { gdb: address, profiling, hz: arguments.hz, cpu: arguments.cpu.clone(), duration: None, samples: None };
    let sampled = attach::with(gdb, &common, &AtomicBool::new(false));
    if sampled.is_err() {
        eprintln!("kprof-qemu: no more samples are taken; waiting for QEMU to end");
    }
    let status = machine.wait()?;
    sampled?;
    recording::draw(&arguments.profiling)?;
    Ok(run::exit_code(status))
}
