//! The bare kernel for aarch64, without user space, for QEMU's machine `virt` with GICv3 and two to four CPUs: it does
//! some work, samples itself, and writes its profile to the serial port. `boot`: the way to the upper half, exception
//! vectors. `machine`: stacks, interrupts, timer. `profiling`: the port of kprof. Here: the log, the steps, the work.
#![no_std]
#![no_main]

mod boot;
mod machine;
mod profiling;

use core::fmt::{self, Write};
use core::hint::black_box;
use kprof::Interrupted;
use profiling::{PROFILER, Saved, tell};

/// The log: the serial port.
struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(machine::put);
        Ok(())
    }
}

/// Each CPU comes here from `boot`, on its own stack, with all interrupts masked. The first one samples, the others
/// work, and the second one also writes the profile.
#[unsafe(no_mangle)]
extern "C" fn kmain(cpu: usize) -> ! {
    machine::set_up(cpu, profiling::IS_FIQ);
    let cpus = if cpu == 0 { boot::start_others() } else { 0 };
    // `ENABLED` is a constant, so a build without the profiler has no code of the port.
    if kprof::ENABLED {
        profiling::begin(cpu, cpus);
    }
    machine::mask_irqs(false);
    while machine::cpu() > 1 {
        work();
    }
    for round in 0..40 {
        work();
        // There is no line feed here, so the profile begins in the middle of a line of the log.
        let _ = write!(Log, "bare: round {round} on CPU {cpu} ");
        tell(PROFILER.export(&mut Log));
    }
    tell(PROFILER.stop());
    tell(PROFILER.export(&mut Log));
    let _ = writeln!(Log, "bare: the end");
    boot::power_off()
}

/// Called by the stub of every other exception.
#[unsafe(no_mangle)]
extern "C" fn faulted(saved: &Saved) {
    panic!("an exception at {:x}", saved.registers().pc);
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Log, "bare: {info}");
    boot::power_off()
}

/// The work that is sampled: 50, 30 and 20 percent of the same loop, and a quarter as much again with IRQs masked.
#[inline(never)]
fn work() {
    half();
    third();
    fifth();
    machine::mask_irqs(true);
    masked();
    machine::mask_irqs(false);
}

macro_rules! loops {
    ($($name:ident $count:literal),*) => {$( #[inline(never)] fn $name() { black_box(turns($count)); } )*};
}

loops!(half 500_000, third 300_000, fifth 200_000, masked 250_000);

#[inline(never)]
fn turns(count: u64) -> u64 {
    (0..count).fold(1, |sum, turn| black_box(sum) ^ turn)
}
