//! Checks that the profile is whole if `kprof-qemu record` is told to end, that it has no account if QEMU is killed
//! (what the plugin had not sent is missing then, and nobody has counted it), and that it has two boots if the machine
//! is reset.
//!
//! In: the bare kernel, in a machine that does not end by itself. Out: an error if the profile claims more than is in
//! it, or less. A shell script runs in QEMU's place, and does what is to happen when the kernel has written a line.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{LIMIT, MIN_SAMPLES, Outcome, Outside};
use crate::run;

/// Runs the checks.
pub fn check(outside: &Outside, outcome: &mut Outcome) {
    let told = one(outside, "told", "kill -TERM $PPID", 0, " coalesced, 0 lost").and_then(|text| {
        ensure!(text.contains("\n# account cpu=0 "), "no account: {text:.600}");
        Ok(())
    });
    outcome.check("a signal for the tool alone ends QEMU, and the profile has its account", told);
    let killed = one(outside, "killed", "kill -KILL $qemu", 2, "samples, and no account").and_then(|text| {
        ensure!(text.starts_with("# kprof-profile ") && !text.contains("\n# account "), "{text:.600}");
        Ok(())
    });
    outcome.check("of a QEMU that is killed, the profile has no account", killed);
    outcome.check("a machine that is reset has two boots, each with its account and its place", is_reset(outside));
}

/// Samples until the signal. Returns the profile.
fn one(outside: &Outside, name: &str, signal: &str, code: i32, said: &str) -> Result<String> {
    let log = outside.file(&format!("{name}.log"));
    let script = format!(
        "{} \"$@\" & qemu=$!\ntrap 'kill -TERM $qemu' TERM\nuntil [ -s {} ]; do sleep 0.05; done\n{signal}\n\
         wait $qemu\nwait $qemu",
        outside.qemu.display(),
        log.display()
    );
    record(outside, name, &script, (code, said))
}

/// Resets the machine by QEMU's monitor.
fn is_reset(outside: &Outside) -> Result<()> {
    let log = outside.file("reset.log");
    let script = format!(
        "works() {{ until [ \"$(grep -c 'bare: round 1 on' {})\" -ge $1 ]; do sleep 0.05; done; }}\n\
         {{ works 1; echo system_reset; works 2; sleep 1; echo quit; }} | {} \"$@\" -monitor stdio",
        log.display(),
        outside.qemu.display()
    );
    let text = record(outside, "reset", &script, (0, "the guest reboots"))?;
    for line in ["# kprof-profile 1", "# account cpu=0 ", "# account cpu=1 ", "# load ffffffff80"] {
        let count = text.lines().filter(|found| found.starts_with(line)).count();
        ensure!(count == 2, "`{line}` is {count} times in the profile");
    }
    outside.has_the_work("reset.txt", 50, MIN_SAMPLES)
}

/// Runs a script in QEMU's place. Returns the profile.
fn record(outside: &Outside, name: &str, script: &str, (code, said): (i32, &str)) -> Result<String> {
    let profile = outside.file(&format!("{name}.txt"));
    // Without the device by which the kernel ends QEMU it waits at its end.
    let mut machine = outside.machine(&format!("{name}.log"), &["-smp", "2", "-cpu", "max"]);
    let exit = machine.iter().position(|word| word == "-device").context("the device of the exit code")?;
    machine.drain(exit..exit + 2);
    machine.retain(|word| word != "-no-reboot");
    let qemu = outside.qemu.display();
    let script = format!("[ \"$1\" != --version ] || exec {qemu} --version\n{script}");
    let script = outside.script(name, &script)?;
    let mut command = run::bound(&outside.tool);
    command.args(["record", "--kernel"]).arg(&outside.kernel).arg("-o").arg(&profile).arg("--").arg(script);
    command.args(machine);
    let done = run::caught(&mut command, LIMIT)?;
    let ended = done.status.and_then(|status| status.code());
    ensure!(ended == Some(code) && done.text.contains(said), "exit code {ended:?}, `{said}` expected: {}", done.text);
    fs::read_to_string(&profile).with_context(|| profile.display().to_string())
}
