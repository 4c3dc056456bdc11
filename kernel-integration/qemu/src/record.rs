//! `record`: runs QEMU with the plugin, and writes what it sends. Stage: capture.
//!
//! In: a QEMU command line. Out: the profile, and QEMU's exit code. Ctrl-C ends QEMU, and what was sampled until then
//! is in the file. Of a QEMU that is killed, the file has no account, because some samples may be missing. A QEMU that
//! takes no such plugin, or runs with KVM, is sampled by its gdb stub.

use crate::arguments::Record;
use crate::profile::About;
use crate::recording::{boot, create, draw, place, placed, summary, take};
use crate::run::{self, NoPlugin, Run};
use crate::{fallback, recording, tables};
use anyhow::Result;
use kprof_format::precision::Precision;
use std::fs;
use std::process::ExitCode;

/// Runs QEMU and writes the profile.
///
/// # Errors
/// If QEMU cannot be run, takes no plugin, or the profile cannot be written.
pub fn run(arguments: &Record) -> Result<ExitCode> {
    match by_plugin(arguments) {
        Err(error) if error.is::<NoPlugin>() && arguments.every.is_none() && has_fallback(arguments) => {
            eprintln!("kprof-qemu: {error}");
            eprintln!("kprof-qemu: without the plugin, samples are taken by QEMU's gdb stub: it costs the guest more");
            fallback::run(arguments)
        }
        done => done,
    }
}

/// The gdb stub is read for one processor only.
fn has_fallback(arguments: &Record) -> bool {
    arguments.qemu.first().is_some_and(|program| run::arch(program).is_ok_and(|arch| arch == "x86_64"))
}

fn by_plugin(arguments: &Record) -> Result<ExitCode> {
    let run = Run::of_any(&arguments.qemu)?;
    let rate = arguments.every.map_or(format!("hz={}", arguments.hz), |every| format!("every={every}"));

    let common = &arguments.profiling;
    let about = About {
        arch: run.arch(),
        hz: arguments.every.is_none().then_some(arguments.hz),
        seed: common.seed,
        precision: if run.has_icount() { Precision::Instruction } else { Precision::Block },
        code: common.code(),
        boot: boot(),
    };
    let mut place = place(common)?;
    let mut found = place.as_ref().map_or(Ok(String::new()), |place| place.options(&run))?;
    if let Some(tables) = recording::tables(common)? {
        found += &format!(",tables={}", run.file("tables", &tables::bytes(&tables))?);
    }
    if !arguments.cpu.is_empty() {
        let list: Vec<String> = arguments.cpu.iter().map(u32::to_string).collect();
        found += &format!(",cpus={}", list.join(":"));
    }
    let mut profile = create(&common.output, &about)?;
    let options = format!("{rate},seed={}{found}", common.seed);
    let status = run.run(&options, |message| take(message, &mut profile, place.as_mut()));
    let status = match status {
        Ok(status) => status,
        Err(error) if error.is::<NoPlugin>() => {
            // Nothing is in it: it must not take the place of the older one.
            fs::remove_file(&common.output)?;
            return Err(error);
        }
        Err(error) => {
            let samples = profile.cut_off()?;
            let file = common.output.display();
            return Err(error.context(format!("{file}: has {samples} samples, and no account: some may be missing")));
        }
    };
    let counts = profile.finish()?;
    summary(&common.output, &counts);
    if let Some(cpu) = arguments.cpu.iter().find(|cpu| !counts.contains_key(cpu)) {
        eprintln!("kprof-qemu: vCPU {cpu} had no tick: either the run was too short, or the machine has no such vCPU");
    }
    placed(place.as_ref(), &common.output)?;
    draw(common)?;
    Ok(run::exit_code(status))
}
