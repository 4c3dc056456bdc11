//! The bare kernel for aarch64 and riscv64, for QEMU's machine `virt` with two to four CPUs: it does some work, samples
//! itself, and writes its profile to the serial port. `boot`: the way to the upper half, entry stubs. `machine`:
//! interrupts, timer, serial port. (Both are in the folder of the processor.) `memory`: where things are. `profiling`:
//! the port of kprof. `timer`: ticks of a CPU that is alone. `counter`: ticks by events instead of time (riscv64).
//! `work`, `storm` and `misses`: what is sampled. Here: the log and the steps.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "riscv64", path = "riscv64/boot.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/boot.rs")]
mod boot;
#[cfg(target_arch = "riscv64")]
mod counter;
#[cfg_attr(target_arch = "riscv64", path = "riscv64/machine.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/machine.rs")]
mod machine;
mod memory;
#[cfg(target_arch = "riscv64")]
mod misses;
mod profiling;
mod storm;
mod timer;
mod work;

use core::fmt::{self, Display, Write};
use profiling::PROFILER;

/// The log: the serial port.
struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(machine::put);
        Ok(())
    }
}

/// Each CPU comes here from `boot`, on its own stack, with all interrupts masked. The first one samples, the others
/// work, and the second one also writes the profile. A CPU that is alone does all three.
#[unsafe(no_mangle)]
extern "C" fn kmain(cpu: usize) -> ! {
    machine::set_up(cpu);
    let cpus = if cpu == 0 { boot::start_others() } else { 0 };
    // `ENABLED` is a constant, so a build without the profiler has no code of the port.
    if kprof::ENABLED {
        profiling::begin(cpu, cpus);
    }
    machine::mask_interrupts(false);
    let work = if memory::number(b"storm=") == Some(1) { storm::round } else { work::round };
    #[cfg(target_arch = "riscv64")]
    let work = if timer::event().is_some() { misses::round } else { work };
    if cpu > 1 {
        loop {
            work();
        }
    }
    for round in 0..memory::number(b"rounds=").unwrap_or(40) {
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

/// Writes an error to the log.
fn tell(done: Result<(), impl Display>) {
    if let Err(error) = done {
        let _ = writeln!(Log, "bare: kprof: {error}");
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Log, "bare: {info}");
    boot::power_off()
}
