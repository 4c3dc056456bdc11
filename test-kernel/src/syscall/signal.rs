//! System calls on signals.

use core::sync::atomic::Ordering;

use crate::errno::{Errno, Result};
use crate::memory::user;
use crate::task::process;
use crate::task::signal::{Action, is_pending};
use crate::wait::{Reason, WaitQueue};

fn check_set_size(bytes: u64) -> Result<()> {
    if bytes == 8 { Ok(()) } else { Err(Errno::EINVAL) }
}

pub fn action(signal: u32, new: u64, old: u64, set_bytes: u64) -> Result<u64> {
    check_set_size(set_bytes)?;
    let signals = &process::current().ok_or(Errno::ESRCH)?.signals;
    let word = |index: u64| user::read_u64(new + 8 * index);
    let new = match new {
        0 => None,
        _ => Some(Action { handler: word(0)?, flags: word(1)?, restorer: word(2)?, mask: word(3)? }),
    };
    let before = signals.set_action(signal, new)?;
    if old != 0 {
        for (index, word) in [before.handler, before.flags, before.restorer, before.mask].into_iter().enumerate() {
            user::write(old + 8 * index as u64, &word.to_le_bytes())?;
        }
    }
    Ok(0)
}

pub fn mask(how: u64, new: u64, old: u64, set_bytes: u64) -> Result<u64> {
    check_set_size(set_bytes)?;
    let blocked = &process::current().ok_or(Errno::ESRCH)?.signals.blocked;
    let before = blocked.load(Ordering::Relaxed);
    if new != 0 {
        let set = user::read_u64(new)?;
        let after = match how {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return Err(Errno::EINVAL),
        };
        blocked.store(after, Ordering::Relaxed);
    }
    if old != 0 {
        user::write(old, &before.to_le_bytes())?;
    }
    Ok(0)
}

pub fn pending(address: u64, set_bytes: u64) -> Result<u64> {
    check_set_size(set_bytes)?;
    let signals = &process::current().ok_or(Errno::ESRCH)?.signals;
    let set = signals.pending() & signals.blocked.load(Ordering::Relaxed);
    user::write(address, &set.to_le_bytes()).map(|()| 0)
}

static PAUSED: WaitQueue = WaitQueue::new(Reason::Signal);

pub fn pause() -> Result<u64> {
    PAUSED.wait_interruptible(is_pending);
    Err(Errno::EINTR)
}

/// Waits with another mask. The old mask is restored after the handler (see `signal::deliver`).
pub fn suspend(set: u64, set_bytes: u64) -> Result<u64> {
    check_set_size(set_bytes)?;
    let set = user::read_u64(set)?;
    let signals = &process::current().ok_or(Errno::ESRCH)?.signals;
    let before = signals.blocked.swap(set, Ordering::Relaxed);
    signals.suspended.store(before, Ordering::Relaxed);
    pause()
}

pub fn alternative_stack(new: u64, old: u64) -> Result<u64> {
    const DISABLE: u64 = 2;
    let mut stack = process::current().ok_or(Errno::ESRCH)?.signals.alternative.lock();
    let (base, bytes) = *stack;
    let fresh = match new {
        0 => None,
        at => Some((user::read_u64(at)?, user::read_u64(at + 8)? & 0xffff_ffff, user::read_u64(at + 16)?)),
    };
    if old != 0 {
        for (index, word) in [base, if bytes == 0 { DISABLE } else { 0 }, bytes].into_iter().enumerate() {
            user::write(old + 8 * index as u64, &word.to_le_bytes())?;
        }
    }
    if let Some((base, flags, bytes)) = fresh {
        *stack = if flags & DISABLE != 0 { (0, 0) } else { (base, bytes) };
    }
    Ok(0)
}
