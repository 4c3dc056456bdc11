//! The end of the machine, with a word to whoever started it.

use x86_64::instructions::port::Port;

/// What the machine's exit says to whoever started it: QEMU's exit code is `2 * value + 1` (isa-debug-exit).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum ExitCode {
    /// All went well: 33.
    Success = 0x10,
    /// A scenario failed: 35.
    Failure = 0x11,
    /// The kernel panicked: 37.
    Panic = 0x12,
}

/// Ends the machine.
pub fn power_off(code: ExitCode) -> ! {
    // SAFETY: port 0xf4 is isa-debug-exit; on a machine without one nothing happens and the CPU halts below.
    unsafe { Port::new(0xf4).write(code as u32) };
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
