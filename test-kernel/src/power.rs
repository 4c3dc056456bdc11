//! Powers the machine off, with an exit code for the program that started it.

use x86_64::instructions::port::Port;

/// The value that becomes QEMU's exit code, which is `2 * value + 1` (isa-debug-exit).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum ExitCode {
    /// Everything succeeded: 33.
    Success = 0x10,
    /// A scenario failed: 35.
    Failure = 0x11,
    /// The kernel panicked: 37.
    Panic = 0x12,
}

/// Powers the machine off.
pub fn power_off(code: ExitCode) -> ! {
    // SAFETY: port 0xf4 is isa-debug-exit. On a machine without it nothing happens, and the CPU halts below.
    unsafe { Port::new(0xf4).write(code as u32) };
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
