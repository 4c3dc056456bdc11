//! `record` without the plugin: runs QEMU with a gdb stub, and samples it by that. Stage: capture.
//!
//! In: a QEMU command line. Out: the profile, and QEMU's exit code. The stub listens on 127.0.0.1, on a port that was
//! free. Ctrl-C ends QEMU, which is in the same process group.

use crate::gdb::Gdb;
use crate::{Attach, Record, attach, record, run};
use anyhow::{Context, Result, bail};
use signal_hook::consts::SIGINT;
use std::net::TcpListener;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long QEMU may take until its stub listens.
const START: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// Runs QEMU and writes the profile.
///
/// # Errors
/// If QEMU cannot be run or has no gdb stub, or the profile cannot be written.
pub fn run(arguments: &Record) -> Result<ExitCode> {
    let (program, words) = arguments.qemu.split_first().context("the QEMU command line is missing")?;
    // The port is free again when QEMU takes it.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
    let stub = ["-S", "-gdb", &format!("tcp:{address}")].map(str::to_owned);
    let mut child = Command::new(program).args(words).args(stub).spawn().context("QEMU cannot be run")?;
    let start = Instant::now();
    let gdb = loop {
        match Gdb::connect(&address) {
            Ok(gdb) => break gdb,
            Err(error) if start.elapsed() > START => return Err(error),
            Err(_) => {}
        }
        if let Some(status) = child.try_wait()? {
            bail!("{program} ended ({status}) before its gdb stub listened");
        }
        std::thread::sleep(POLL);
    };
    let profiling = arguments.profiling.clone();
    let common = Attach { gdb: address, profiling, hz: arguments.hz, cpu: Vec::new(), duration: None, samples: None };
    let sampled = attach::with(gdb, &common, &AtomicBool::new(false));
    if sampled.is_err() {
        eprintln!("kprof-qemu: no more samples are taken; waiting for QEMU to end");
    }
    let status = child.wait()?;
    sampled?;
    record::draw(&arguments.profiling)?;
    Ok(run::exit_code(status))
}
