//! A whole kernel without user space: it does some work, samples itself, and writes its profile to the serial port.
//!
//! `boot`: the way to 64-bit mode, start of the second CPU. `machine`: tables, stacks, clocks. `profiling`: the port of
//! kprof. This file: the log, the order of the steps, the work. `kprof-fold serial.log bare` reads the serial log.
#![no_std]
#![no_main]

mod boot;
mod machine;
mod more;
mod profiling;

use core::{fmt, fmt::Display, fmt::Write, hint::black_box};
use profiling::PROFILER;
use x86_64::instructions::{interrupts, port::Port};

/// The log: COM1, as the firmware has left it.
struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: COM1's ports on every PC: wait until it takes a byte, write it.
        text.bytes().for_each(|byte| unsafe {
            while Port::<u8>::new(0x3fd).read() & 1 << 5 == 0 {}
            Port::new(0x3f8).write(byte);
        });
        Ok(())
    }
}

/// Each CPU comes here from `boot`, on its own stack, with interrupts off. If there are several, the first one samples,
/// the others work, and the second one also writes the profile.
#[unsafe(no_mangle)]
extern "C" fn kmain(cpu: usize) -> ! {
    machine::set_up(cpu);
    more::set_up(cpu);
    let cpus = if cpu == 0 { boot::start_others() } else { 0 };
    // `ENABLED` is a constant, so a build without the profiler has no code of the port.
    if kprof::ENABLED {
        profiling::begin(cpu, cpus);
    }
    interrupts::enable();
    if cpu > 1 {
        loop {
            work(cpu as u64);
        }
    }
    more::begin(cpu);
    for round in 0..40 {
        work(round);
        more::work(round);
        // There is no line feed here, so the profile begins in the middle of a line of the log.
        let _ = write!(Log, "bare: round {round} on CPU {cpu} ");
        export();
    }
    tell(PROFILER.stop());
    export();
    let _ = writeln!(Log, "bare: NMIs that were not sent: {:?}\nbare: the end", profiling::UNSENT);
    power_off(0x10)
}

/// Writes the samples to the log.
fn export() {
    tell(if cfg!(feature = "export") { PROFILER.export(&mut Log) } else { Ok(()) });
}

/// Writes what went wrong.
fn tell(done: Result<(), impl Display>) {
    if let Err(error) = done {
        let _ = writeln!(Log, "bare: kprof: {error}");
    }
}

/// Ends the machine; QEMU's exit code is `2 * value + 1` (isa-debug-exit).
fn power_off(value: u32) -> ! {
    loop {
        // SAFETY: port 0xf4 is isa-debug-exit; on a machine without one nothing happens.
        unsafe { Port::new(0xf4).write(value) };
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Log, "bare: {info}");
    power_off(0x12)
}

/// The work that is sampled: sorting, counting primes, and a checksum with interrupts off.
#[inline(never)]
fn work(seed: u64) {
    let mut numbers: [u64; 1024] =
        core::array::from_fn(|index| (index as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    numbers.sort_unstable();
    black_box((2..30_000).filter(|number| is_prime(*number)).count());
    interrupts::without_interrupts(|| black_box(checksum(&numbers)));
}

#[inline(never)]
fn is_prime(number: u32) -> bool {
    (2..number).take_while(|divisor| divisor * divisor <= number).all(|divisor| !number.is_multiple_of(divisor))
}

#[inline(never)]
fn checksum(numbers: &[u64]) -> u64 {
    (0..400).fold(0, |sum, turn| numbers.iter().fold(sum, |sum: u64, number| sum.rotate_left(turn) ^ number))
}
