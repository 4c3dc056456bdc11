//! Measures the cost of a hit of a point, off and counted. Under `-icount` the difference of the TSC is the number of
//! instructions.
//!
//! The log gets one line for each state: `point: count, 25.0 instructions`.

use core::hint::black_box;

use kprof::{Point, Unit};

use crate::{log, profiling};

static MEASURED: Point = Point::new("measured.hit", Unit::Count);

/// Measures `rounds` hits in each state.
pub fn measure(rounds: u64) {
    // The first hit lists the point.
    profiling::PROFILER.hit(&MEASURED, 1);
    for state in ["off", "count"] {
        let ctl = profiling::PROFILER.open_control(0);
        // The states are valid commands.
        if let Err(error) = ctl.write(alloc::format!("event {} {state}", "measured.hit").as_bytes()) {
            log!("point: {error}");
        }
        let mut spent = 0;
        for weight in 0..rounds {
            spent += x86_64::instructions::interrupts::without_interrupts(|| hit(black_box(weight)));
        }
        let tenths = spent * 10 / rounds.max(1);
        log!("point: {state}, {}.{} instructions", tenths / 10, tenths % 10);
    }
}

/// The instructions of a hit. Those of the measurement are measured without a hit, and subtracted.
#[inline(never)]
fn hit(weight: u64) -> u64 {
    // SAFETY: RDTSC has no effect.
    let look = || unsafe { core::arch::x86_64::_rdtsc() };
    let start = look();
    let begun = look();
    profiling::PROFILER.hit(&MEASURED, weight);
    let end = look();
    (end - begun) - (begun - start)
}
