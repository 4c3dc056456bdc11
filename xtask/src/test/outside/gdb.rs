//! The stacks of `attach` beside those of gdb, of the bare kernel and of the test kernel's default workload, which has
//! two CPUs, interrupts, exceptions, system calls and changes of tasks; with and without frame pointers.
//! `cargo xtask gdb` does the same with any kernel.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;

use super::unwound::FLAGS;
use super::{COUNTED, Context, Outcome, Outside, moved};
use crate::build::{self, Kernel};
use crate::gdb::{self, Check};
use crate::parts::Parts;
use crate::profile;

/// Stops of the machine; user code and firmware are among them.
const SAMPLES: u32 = 700;
/// How long it runs between two of them. The bare kernel comes to its end sooner than the test kernel.
const REST_MS: u64 = 8;
const BARE_REST_MS: u64 = 3;
/// So many stacks of kernel code must be compared.
const MIN_STACKS: usize = 200;

/// Runs the checks.
pub fn check(context: &mut Context, outside: &Outside, outcome: &mut Outcome) {
    let program = match gdb::find(context.install) {
        Ok(program) => program,
        Err(why) => return outcome.skipped.push(format!("stacks beside those of gdb: {why:#}")),
    };
    outcome.check("stacks are those of gdb", bare(outside, &program, (&outside.kernel, &outside.kernel), 0));
    let moved = context.parts().and_then(|parts| moved::kernels(parts.toolchain, &outside.folder));
    let moved = moved.and_then(|[file, runs]| bare(outside, &program, (&file, &runs), moved::SLIDE));
    outcome.check("stacks of a kernel that was moved are those of gdb", moved);
    let kernels: [(&str, &str, &[&str]); 2] =
        [("stacks of the default workload", "frames", &[]), ("stacks by unwind tables", "tables", &FLAGS)];
    for (what, unwind, flags) in kernels {
        let compared = context.parts().and_then(|parts| {
            let kernel = match flags {
                [] => build::kernel(parts.toolchain, "profiling", &[])?,
                flags => build::kernel_only_with(parts.toolchain, "profiling", flags)?,
            };
            test_kernel(parts, outside, &program, &kernel, unwind)
        });
        outcome.check(&format!("{what} are those of gdb"), compared);
    }
}

fn in_folder(outside: &Outside, program: &Path, fold: &Path, name: &str, slide: u64) -> Check {
    let (tool, fold, gdb) = (outside.tool.clone(), fold.to_owned(), program.to_owned());
    Check { tool, fold, gdb, folder: outside.file(name), slide }
}

/// In: the kernel's file, and the kernel that runs, so much higher.
fn bare(outside: &Outside, program: &Path, (file, runs): (&Path, &Path), slide: u64) -> Result<()> {
    let check = in_folder(outside, program, &outside.fold, &format!("gdb-{slide:x}"), slide);
    check.prepare(file, &build::symbols_of(file)?)?;
    let outside = &Outside { kernel: runs.to_owned(), ..outside.clone() };
    let machine = [vec![outside.qemu.display().to_string()], outside.machine("gdb.log", &COUNTED)].concat();
    check.machine(&machine, SAMPLES, BARE_REST_MS, "auto")?;
    enough(check.judge()?)
}

fn test_kernel(parts: &Parts, outside: &Outside, program: &Path, kernel: &Kernel, unwind: &str) -> Result<()> {
    let check = in_folder(outside, program, &parts.fold, &format!("gdb-{unwind}"), 0);
    check.prepare(&kernel.elf, &kernel.symbols)?;
    let folder = check.folder.display().to_string();
    let line = ["profile", "--repeatable", "--cpus", "2", "--hz", "2000", "--seed", "7", "-o", &folder];
    let mut profile = profile::Line::try_parse_from(line)?.profile;
    let stub = gdb::free_address()?;
    // The words of QEMU come last.
    let script = format!("exec \"$0\" \"$@\" -S -gdb tcp:{stub}");
    let runner = ["sh", "-c", &script, &check.tool.display().to_string()].map(str::to_owned);
    profile.runner = runner.into_iter().chain(check.count()).collect();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| profile::of_kernel(&profile, parts, kernel));
        let sampled = check.sample(&stub, SAMPLES, REST_MS, unwind);
        let run = run.join().map_err(|_| anyhow::anyhow!("the run has panicked"))?;
        sampled?;
        run.context("the test kernel").map(drop)
    })?;
    enough(check.judge()?)
}

fn enough(stacks: usize) -> Result<()> {
    ensure!(stacks >= MIN_STACKS, "{stacks} stacks show nothing");
    Ok(())
}
