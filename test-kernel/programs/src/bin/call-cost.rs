//! Measures a system call: the TSC ticks of one, which are instructions if QEMU counts them. Runs on Linux too, so both
//! kernels can be compared.
//!
//! In: the call, `getppid`, `write` (one byte to the null device) or `timer` (on Linux: stops a timer that does not
//! run); the path of the null device. Out: the median over many loops, as one number. Loops that an interrupt has made
//! longer do not matter.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

const LOOPS: usize = 201;
const CALLS: u64 = 50;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [call, null] = &arguments[..] else {
        eprintln!("call-cost: getppid|write|timer NULL-DEVICE");
        return ExitCode::FAILURE;
    };
    let mut null = match OpenOptions::new().write(true).open(null) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("call-cost: {null}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let median = match &call[..] {
        // SAFETY: it has no effect.
        "getppid" => median(|| unsafe { libc::getppid() } > 0),
        "write" => median(|| null.write(b"0").is_ok()),
        "timer" => median(|| {
            let stopped = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let value = libc::itimerval { it_interval: stopped, it_value: stopped };
            // SAFETY: the value outlives the call, and no old one is asked for.
            unsafe { libc::setitimer(libc::ITIMER_VIRTUAL, &value, std::ptr::null_mut()) == 0 }
        }),
        _ => None,
    };
    match median {
        Some(ticks) => {
            println!("{ticks}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("call-cost: {call}: this call is not known, or has failed");
            ExitCode::FAILURE
        }
    }
}

/// The median of the ticks of one call. `None` if one fails.
fn median(mut call: impl FnMut() -> bool) -> Option<f64> {
    // SAFETY: RDTSC has no effect.
    let now = || unsafe { core::arch::x86_64::_rdtsc() };
    let mut loops = Vec::with_capacity(LOOPS);
    for _ in 0..LOOPS {
        let begun = now();
        for _ in 0..CALLS {
            if !call() {
                return None;
            }
        }
        loops.push(now() - begun);
    }
    loops.sort_unstable();
    Some(loops[LOOPS / 2] as f64 / CALLS as f64)
}
