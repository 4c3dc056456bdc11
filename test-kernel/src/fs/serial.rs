//! The second serial port, `/dev/ttyS1`, to which samples are sent on machines without a shared folder.
//!
//! A write sends as many bytes as the port accepts at once, but at least one. If the file is non-blocking it returns
//! EAGAIN instead of waiting, so that a slow receiver does not delay the writer.

use uart_16550::{Config, Uart16550, backend::PioBackend};

use super::device::device_stat;
use super::{Node, Stat, UserBuffer};
use crate::cpu::clock;
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::memory::user;
use crate::wait::{self, Wakeup};

const PORT: u16 = 0x2f8;
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// The port.
pub struct Serial {
    uart: Lock<Uart16550<PioBackend>>,
}

/// The second port, if the machine has one.
pub fn second() -> Option<Serial> {
    // SAFETY: COM2 is at 0x2f8 on every PC that has one, and only this file accesses it.
    let mut uart = unsafe { Uart16550::new_port(PORT) }.ok()?;
    if !uart.check_present() || uart.init(Config::default()).is_err() {
        return None;
    }
    Some(Serial { uart: Lock::new(uart) })
}

impl Node for Serial {
    fn stat(&self) -> Result<Stat> {
        Ok(device_stat(10))
    }

    fn is_ready(&self, write: bool) -> bool {
        write && self.uart.lock().ready_to_send().is_ok()
    }

    fn read(&self, _offset: u64, _buffer: UserBuffer) -> Result<usize> {
        Ok(0)
    }

    fn write(&self, _offset: u64, buffer: UserBuffer) -> Result<usize> {
        let bytes = user::read_vec(buffer.address, buffer.bytes.min(4096))?;
        loop {
            let sent = self.uart.lock().send_bytes(&bytes);
            if sent > 0 || bytes.is_empty() {
                return Ok(sent);
            }
            if wait::sleep_until(clock::now_ns() + LOOK_AGAIN_NS, true) == Wakeup::Interrupted {
                return Err(Errno::EINTR);
            }
        }
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}
