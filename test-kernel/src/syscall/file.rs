//! System calls on open files.

use alloc::sync::Arc;

use super::path;
use crate::cpu::clock;
use crate::errno::{Errno, Result};
use crate::fs::file::{MAX_FILES, OpenFile, flags};
use crate::fs::{UserBuffer, pipe};
use crate::memory::user;
use crate::task::process;
use crate::wait::{self, Wakeup};
use core::sync::atomic::Ordering;

/// The open file with this number.
pub fn get(number: u64) -> Result<Arc<OpenFile>> {
    process::current().ok_or(Errno::EBADF)?.files.lock().get(number)
}

fn buffer(address: u64, bytes: u64) -> Result<UserBuffer> {
    // As on Linux, at most 2 GiB less a page in one call.
    let bytes = bytes.min(0x7fff_f000);
    if !user::is_user(address, bytes) {
        return Err(Errno::EFAULT);
    }
    Ok(UserBuffer { address, bytes: bytes as usize })
}

pub fn read(number: u64, address: u64, bytes: u64) -> Result<u64> {
    Ok(get(number)?.read(buffer(address, bytes)?)? as u64)
}

pub fn write(number: u64, address: u64, bytes: u64) -> Result<u64> {
    Ok(get(number)?.write(buffer(address, bytes)?)? as u64)
}

pub fn read_write_at(number: u64, address: u64, bytes: u64, offset: u64, write: bool) -> Result<u64> {
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    Ok(get(number)?.at(offset, buffer(address, bytes)?, write)? as u64)
}

/// `readv` and `writev`: one buffer after the other until one is not filled.
pub fn vectors(number: u64, address: u64, count: u64, write: bool) -> Result<u64> {
    if count > 1024 {
        return Err(Errno::EINVAL);
    }
    let file = get(number)?;
    let mut done = 0;
    for index in 0..count {
        let part = buffer(user::read_u64(address + 16 * index)?, user::read_u64(address + 16 * index + 8)?)?;
        if part.bytes == 0 {
            continue;
        }
        let bytes = match if write { file.write(part) } else { file.read(part) } {
            Ok(bytes) => bytes,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        done += bytes as u64;
        if bytes < part.bytes {
            break;
        }
    }
    Ok(done)
}

pub fn close(number: u64) -> Result<u64> {
    let file = process::current().ok_or(Errno::EBADF)?.files.lock().remove(number)?;
    drop(file);
    Ok(0)
}

pub fn fstat(number: u64, address: u64) -> Result<u64> {
    path::write_stat(&get(number)?.node.stat()?, address)
}

pub fn seek(number: u64, offset: i64, whence: u32) -> Result<u64> {
    get(number)?.seek(offset, whence)
}

pub fn sync(number: u64) -> Result<u64> {
    get(number)?.node.sync().map(|()| 0)
}

/// `flock`.
pub fn lock(number: u64, operation: u64) -> Result<u64> {
    const NO_WAIT: u64 = 4;
    const UNLOCK: u64 = 8;
    let file = get(number)?;
    match operation & !NO_WAIT {
        1 | 2 => file.lock(operation & NO_WAIT == 0).map(|()| 0),
        UNLOCK => {
            file.unlock();
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

pub fn truncate(number: u64, bytes: u64) -> Result<u64> {
    let file = get(number)?;
    if file.flags.load(Ordering::Relaxed) & 3 == 0 || bytes > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    file.node.truncate(bytes).map(|()| 0)
}

pub fn change_mode(number: u64, mode: u32) -> Result<u64> {
    get(number)?.node.set_mode(mode).map(|()| 0)
}

/// Supports only `FIONBIO`. There are no terminals, so every other request is refused as on a regular file.
pub fn ioctl(number: u64, request: u64, argument: u64) -> Result<u64> {
    const NON_BLOCKING: u64 = 0x5421;
    let file = get(number)?;
    if request != NON_BLOCKING {
        return Err(Errno::ENOTTY);
    }
    let mut on = [0; 4];
    user::read(argument, &mut on)?;
    if on == [0; 4] {
        file.flags.fetch_and(!flags::NON_BLOCKING, Ordering::Relaxed);
    } else {
        file.flags.fetch_or(flags::NON_BLOCKING, Ordering::Relaxed);
    }
    Ok(0)
}

pub fn pipe(address: u64, flag_bits: u32) -> Result<u64> {
    let (reads, writes) = pipe::new();
    let status = flag_bits & flags::NON_BLOCKING;
    let close_on_exec = flag_bits & flags::CLOSE_ON_EXEC != 0;
    let (first, second) = {
        let mut files = process::current().ok_or(Errno::EMFILE)?.files.lock();
        let first = files.insert(OpenFile::new(reads, "pipe".into(), status), close_on_exec, 0)?;
        let write_end = OpenFile::new(writes, "pipe".into(), flags::WRITE_ONLY | status);
        (first, files.insert(write_end, close_on_exec, 0)?)
    };
    user::write(address, &(first | second << 32).to_le_bytes())?;
    Ok(0)
}

pub fn dup(number: u64) -> Result<u64> {
    let mut files = process::current().ok_or(Errno::EBADF)?.files.lock();
    let file = files.get(number)?;
    files.insert(file, false, 0)
}

pub fn dup2(number: u64, to: u64, flag_bits: u32, same_is_fine: bool) -> Result<u64> {
    let old = {
        let mut files = process::current().ok_or(Errno::EBADF)?.files.lock();
        let file = files.get(number)?;
        if to as usize >= MAX_FILES {
            return Err(Errno::EBADF);
        }
        if number == to {
            return if same_is_fine { Ok(to) } else { Err(Errno::EINVAL) };
        }
        files.set(to as usize, file, flag_bits & flags::CLOSE_ON_EXEC != 0)
    };
    drop(old);
    Ok(to)
}

/// `fcntl`.
pub fn control(number: u64, command: u64, argument: u64) -> Result<u64> {
    const DUP: u64 = 0;
    const GET_FD: u64 = 1;
    const SET_FD: u64 = 2;
    const GET_FLAGS: u64 = 3;
    const SET_FLAGS: u64 = 4;
    const LOCKS: core::ops::RangeInclusive<u64> = 5..=7;
    const DUP_CLOSE_ON_EXEC: u64 = 1030;
    let mut files = process::current().ok_or(Errno::EBADF)?.files.lock();
    let file = files.get(number)?;
    match command {
        DUP | DUP_CLOSE_ON_EXEC if argument as usize >= MAX_FILES => Err(Errno::EINVAL),
        DUP | DUP_CLOSE_ON_EXEC => files.insert(file, command == DUP_CLOSE_ON_EXEC, argument as usize),
        GET_FD => Ok(files.closes_on_exec(number)? as u64),
        SET_FD => files.set_close_on_exec(number, argument & 1 != 0).map(|()| 0),
        GET_FLAGS => Ok((file.flags.load(Ordering::Relaxed) & !flags::CLOSE_ON_EXEC) as u64),
        SET_FLAGS => {
            let changeable = flags::APPEND | flags::NON_BLOCKING;
            let kept = file.flags.load(Ordering::Relaxed) & !changeable;
            file.flags.store(kept | argument as u32 & changeable, Ordering::Relaxed);
            Ok(0)
        }
        // Advisory locks always succeed, because here only one process at a time opens a file that it locks.
        command if LOCKS.contains(&command) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `poll`: events 1 = readable, 4 = writable. It checks every millisecond until something is ready.
pub fn poll(address: u64, count: u64, timeout_ms: i64) -> Result<u64> {
    let deadline = (timeout_ms >= 0).then(|| clock::now_ns() + timeout_ms as u64 * 1_000_000);
    poll_until(address, count, deadline)
}

/// `ppoll`.
pub fn poll_ns(address: u64, count: u64, timeout: u64) -> Result<u64> {
    let deadline = match timeout {
        0 => None,
        at => Some(clock::now_ns() + user::read_u64(at)? * 1_000_000_000 + user::read_u64(at + 8)?),
    };
    poll_until(address, count, deadline)
}

fn poll_until(address: u64, count: u64, deadline_ns: Option<u64>) -> Result<u64> {
    const READ: u16 = 1;
    const WRITE: u16 = 4;
    const INVALID: u16 = 0x20;
    if count > MAX_FILES as u64 {
        return Err(Errno::EINVAL);
    }
    loop {
        let mut ready = 0;
        for index in 0..count {
            let entry = user::read_u64(address + 8 * index)?;
            let (number, wanted) = (entry as u32 as i32, (entry >> 32) as u16);
            let mut events = 0;
            if number >= 0 {
                match get(number as u64) {
                    Ok(file) => {
                        events |= if wanted & READ != 0 && file.node.is_ready(false) { READ } else { 0 };
                        events |= if wanted & WRITE != 0 && file.node.is_ready(true) { WRITE } else { 0 };
                    }
                    Err(_) => events = INVALID,
                }
            }
            ready += (events != 0) as u64;
            user::write(address + 8 * index + 6, &events.to_le_bytes())?;
        }
        let now = clock::now_ns();
        if ready > 0 || deadline_ns.is_some_and(|deadline| now >= deadline) {
            return Ok(ready);
        }
        let next = deadline_ns.unwrap_or(u64::MAX).min(now + 1_000_000);
        if wait::sleep_until(next, true) == Wakeup::Interrupted {
            return Err(Errno::EINTR);
        }
    }
}

/// `pselect6`, only as a sleep: programs here call it without files.
pub fn select(count: u64, reads: u64, writes: u64, errors: u64, timeout: u64) -> Result<u64> {
    if count != 0 && (reads | writes | errors) != 0 {
        return Err(Errno::ENOSYS);
    }
    let deadline = match timeout {
        0 => u64::MAX,
        at => clock::now_ns() + user::read_u64(at)? * 1_000_000_000 + user::read_u64(at + 8)?,
    };
    match wait::sleep_until(deadline, true) {
        Wakeup::Interrupted => Err(Errno::EINTR),
        _ => Ok(0),
    }
}

/// `sendfile` is not supported; programs then read and write instead.
pub fn send_file(_to: u64, _from: u64, _offset: u64, _bytes: u64) -> Result<u64> {
    Err(Errno::EINVAL)
}
