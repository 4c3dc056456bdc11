//! The serial log: one line at a time on COM1. Runs in: anything except an NMI.
//!
//! In: formatted text. Out: bytes on the 16550. The panic handler ignores the lock, because a message that is mixed
//! with another one is better than none.

use core::fmt::{self, Write};

use uart_16550::{Config, Uart16550, backend::PioBackend};

use crate::lock::{IrqGuard, IrqLock};

static SERIAL: IrqLock<Option<Uart16550<PioBackend>>> = IrqLock::new(None);

/// Sets up COM1. On a machine without COM1 nothing is logged.
pub fn init() {
    // SAFETY: COM1 is at 0x3f8 on every PC, and only this file accesses it.
    let Ok(mut uart) = (unsafe { Uart16550::new_port(0x3f8) }) else { return };
    if uart.init(Config::default()).is_ok() {
        *SERIAL.lock() = Some(uart);
    }
}

struct Serial<'a>(&'a mut Uart16550<PioBackend>);

impl Write for Serial<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.send_bytes_exact(text.as_bytes());
        Ok(())
    }
}

/// The log as a sink for formatted text.
pub struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        bytes(text.as_bytes());
        Ok(())
    }
}

/// Writes raw bytes (what user programs print).
pub fn bytes(bytes: &[u8]) {
    if let Some(uart) = SERIAL.lock().as_mut() {
        uart.send_bytes_exact(bytes);
    }
}

/// Writes formatted text; used by [`log!`].
pub fn print(arguments: fmt::Arguments<'_>) {
    if let Some(uart) = SERIAL.lock().as_mut() {
        let _ = Serial(uart).write_fmt(arguments);
    }
}

/// Writes without waiting for another CPU: for the sampler CPU, when others are locked up.
///
/// Usually it has the lock, so that no other output is between its own. If the lock does not become free in time, its
/// output may be mixed with that of the CPU that has the lock.
pub struct Urgent(Port);

enum Port {
    Locked(IrqGuard<'static, Option<Uart16550<PioBackend>>>),
    Shared(Option<Uart16550<PioBackend>>),
}

impl Urgent {
    /// Takes the lock, if it becomes free while `may_wait` says yes.
    pub fn new(may_wait: impl Fn() -> bool) -> Self {
        while may_wait() {
            if let Some(guard) = SERIAL.try_lock() {
                return Self(Port::Locked(guard));
            }
            core::hint::spin_loop();
        }
        // SAFETY: as in `init`. The port was set up there; only bytes are written here, which other code may do too.
        Self(Port::Shared(unsafe { Uart16550::new_port(0x3f8) }.ok()))
    }
}

impl Write for Urgent {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let uart = match &mut self.0 {
            Port::Locked(guard) => guard.as_mut(),
            Port::Shared(uart) => uart.as_mut(),
        };
        if let Some(uart) = uart {
            uart.send_bytes_exact(text.as_bytes());
        }
        Ok(())
    }
}

/// Releases the lock by force, so that the panic handler can write. Only called there, after the other CPUs were
/// stopped.
pub fn break_lock() {
    if SERIAL.try_lock().is_none() {
        // SAFETY: the other CPUs are stopped and this one panics, so no code continues inside the lock.
        unsafe { SERIAL.force_unlock() };
    }
}

/// Writes a line to the serial log.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => { $crate::log::print(format_args!("{}\n", format_args!($($argument)*))) };
}
