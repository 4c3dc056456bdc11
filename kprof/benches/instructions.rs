//! Instructions of the whole handler, counted by valgrind: ours and the reference, at 6, 16, 28 and 64 frames.
//!
//! `cargo bench -p kprof --features profiling --bench instructions`. If `valgrind` is missing, the program says so and
//! fails. For each figure it starts itself under callgrind, which counts only inside the measured function.

#[path = "handler/common.rs"]
mod common;

use common::{Ours, PlainRing, World, reference, walk_alone};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::process::{Command, ExitCode};

/// Calls counted for each figure.
const TICKS: u64 = 6400;

/// Frames of the program whose system call is interrupted.
const CALLERS: usize = 2;

/// What is measured: a name, and the function in which callgrind counts.
const MEASURED: [(&str, &str); 6] = [
    ("ours", "*Ours*handler*"),
    ("ours-through-syscall", "*Ours*handler*"),
    ("ours-into-user-code", "*Ours*handler*"),
    ("ours-in-user-code", "*Ours*handler*"),
    ("reference", "*common*reference*"),
    ("reference-walk", "*common*walk_alone*"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, inner, name, frames] = &arguments[..]
        && inner == "--inner"
    {
        run(name, frames.parse().expect("a number of frames"));
        return ExitCode::SUCCESS;
    }
    println!("instructions per call     frames {:>8} {:>8} {:>8} {:>8}", 6, 16, 28, 64);
    for (name, function) in MEASURED {
        let mut line = format!("{name:<32}");
        for frames in [6, 16, 28, 64] {
            match count(name, function, frames) {
                Ok(instructions) => line += &format!(" {:>8.1}", instructions as f64 / TICKS as f64),
                Err(reason) => {
                    eprintln!("{reason}");
                    return ExitCode::FAILURE;
                }
            }
        }
        println!("{line}");
    }
    ExitCode::SUCCESS
}

/// The instructions of all calls of `function` in a run of this program.
fn count(name: &str, function: &str, frames: usize) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={function}"))
        .arg(program)
        .args(["--inner", name, &frames.to_string()])
        .output()
        .map_err(|error| format!("cannot start valgrind ({error}): install it, e.g. `apt-get install valgrind`"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    collected.filter(|count| *count > 0).ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}

fn run(name: &str, frames: usize) {
    let mut world = World::new(frames);
    match name {
        "ours-through-syscall" => world.end_in_syscall(frames),
        "ours-into-user-code" => world.end_in_syscall_of(frames, CALLERS),
        "ours-in-user-code" => world.in_user_code(),
        _ => {}
    }
    world.touch();
    let mut ring = PlainRing::new();
    let mut ours = Ours::new(name.ends_with("user-code"));
    let mut buffer = MaybeUninit::uninit();
    for tick in 0..TICKS {
        let registers = black_box(&world.registers);
        match name {
            "reference" => reference(registers, &mut ring),
            "reference-walk" => {
                black_box(walk_alone(registers, &mut buffer));
            }
            _ => ours.tick(registers),
        }
        if tick % 64 == 0 {
            ring.drain();
            ours.drain();
        }
    }
}
