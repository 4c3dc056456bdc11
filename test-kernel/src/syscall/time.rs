//! System calls on time. All clocks count from boot; the real-time clocks add the time of the boot.

use crate::cpu::clock;
use crate::errno::{Errno, Result};
use crate::info;
use crate::memory::{frames, user};
use crate::wait::{self, Wakeup};

const SECOND_NS: u64 = 1_000_000_000;
const REALTIME: u64 = 0;
const REALTIME_COARSE: u64 = 5;
const ABSOLUTE: u64 = 1;

fn realtime_ns() -> u64 {
    info::epoch_s() * SECOND_NS + clock::now_ns()
}

fn now(clock: u64) -> Result<u64> {
    match clock {
        REALTIME | REALTIME_COARSE => Ok(realtime_ns()),
        1..=7 => Ok(clock::now_ns()),
        _ => Err(Errno::EINVAL),
    }
}

fn write_time(address: u64, ns: u64) -> Result<u64> {
    user::write(address, &(ns / SECOND_NS).to_le_bytes())?;
    user::write(address + 8, &(ns % SECOND_NS).to_le_bytes())?;
    Ok(0)
}

fn read_time(address: u64) -> Result<u64> {
    let (seconds, ns) = (user::read_u64(address)?, user::read_u64(address + 8)?);
    if seconds > i64::MAX as u64 || ns >= SECOND_NS {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(SECOND_NS).saturating_add(ns))
}

pub fn clock_get(clock: u64, address: u64) -> Result<u64> {
    write_time(address, now(clock)?)
}

pub fn clock_resolution(address: u64) -> Result<u64> {
    if address != 0 {
        write_time(address, 1)?;
    }
    Ok(0)
}

pub fn time(address: u64) -> Result<u64> {
    let seconds = realtime_ns() / SECOND_NS;
    if address != 0 {
        user::write(address, &seconds.to_le_bytes())?;
    }
    Ok(seconds)
}

pub fn time_of_day(address: u64) -> Result<u64> {
    if address != 0 {
        let ns = realtime_ns();
        user::write(address, &(ns / SECOND_NS).to_le_bytes())?;
        user::write(address + 8, &(ns % SECOND_NS / 1000).to_le_bytes())?;
    }
    Ok(0)
}

fn sleep(deadline_ns: u64, left: u64) -> Result<u64> {
    if wait::sleep_until(deadline_ns, true) == Wakeup::Interrupted {
        if left != 0 {
            write_time(left, deadline_ns.saturating_sub(clock::now_ns()))?;
        }
        return Err(Errno::EINTR);
    }
    Ok(0)
}

pub fn nanosleep(address: u64, left: u64) -> Result<u64> {
    sleep(clock::now_ns().saturating_add(read_time(address)?), left)
}

pub fn clock_sleep(clock: u64, flags: u64, address: u64, left: u64) -> Result<u64> {
    let (time, now) = (read_time(address)?, now(clock)?);
    if flags & ABSOLUTE != 0 {
        return sleep(clock::now_ns().saturating_add(time.saturating_sub(now)), 0);
    }
    sleep(clock::now_ns().saturating_add(time), left)
}

/// `times`: the ticks since boot. Times of processes are not measured.
pub fn times(address: u64) -> Result<u64> {
    if address != 0 {
        user::zero(address, 32)?;
    }
    Ok(clock::now_ns() / 10_000_000)
}

/// `getrusage`: usage is not measured, so everything is 0.
pub fn usage(address: u64) -> Result<u64> {
    user::zero(address, 144).map(|()| 0)
}

/// `sysinfo`: uptime and memory in use; all other fields are 0.
pub fn sysinfo(address: u64) -> Result<u64> {
    user::zero(address, 112)?;
    user::write(address, &(clock::now_ns() / SECOND_NS).to_le_bytes())?;
    user::write(address + 32, &(frames::in_use() as u64 * 4096).to_le_bytes())?;
    user::write(address + 104, &1u32.to_le_bytes())?;
    Ok(0)
}
