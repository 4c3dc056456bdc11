//! System calls on processes.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::FsBase;

use crate::cpu;
use crate::cpu::entry::TrapFrame;
use crate::errno::{Errno, Result};
use crate::fs;
use crate::memory::user;
use crate::power::{self, ExitCode};
use crate::task::process::{self, Fork, Which};
use crate::task::{exec, scheduler, signal, thread};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

pub fn pid() -> Result<u64> {
    Ok(process::current().ok_or(Errno::ESRCH)?.pid as u64)
}

pub fn parent() -> Result<u64> {
    Ok(process::current().ok_or(Errno::ESRCH)?.parent() as u64)
}

/// `clone`, only for processes: a child that shares memory must be a vfork.
pub fn clone(frame: &TrapFrame, flags: u64, stack: u64, child_tid: u64) -> Result<u64> {
    let share_memory = flags & CLONE_VM != 0;
    if flags & (CLONE_THREAD | CLONE_SETTLS) != 0 || share_memory && flags & CLONE_VFORK == 0 {
        crate::log!("clone with flags {flags:#x}: threads are not known here");
        return Err(Errno::ENOSYS);
    }
    let child_tid = if flags & CLONE_CHILD_SETTID != 0 { child_tid } else { 0 };
    let pid = process::fork(frame, &Fork { share_memory, stack, child_tid })?;
    if flags & CLONE_PARENT_SETTID != 0 {
        user::write(frame.rdx, &pid.to_le_bytes())?;
    }
    Ok(pid as u64)
}

pub fn fork(frame: &TrapFrame) -> Result<u64> {
    Ok(process::fork(frame, &Fork { share_memory: false, stack: 0, child_tid: 0 })? as u64)
}

pub fn vfork(frame: &TrapFrame) -> Result<u64> {
    Ok(process::fork(frame, &Fork { share_memory: true, stack: 0, child_tid: 0 })? as u64)
}

/// Reads a list of strings that ends with a null pointer. A null list is empty, as on Linux.
fn strings(address: u64) -> Result<Vec<String>> {
    let mut strings = Vec::new();
    if address == 0 {
        return Ok(strings);
    }
    loop {
        match user::read_u64(address + 8 * strings.len() as u64)? {
            0 => return Ok(strings),
            _ if strings.len() == 4096 => return Err(Errno::E2BIG),
            text => strings.push(user::read_string(text)?),
        }
    }
}

pub fn execve(frame: &mut TrapFrame, path: u64, arguments: u64, environment: u64) -> Result<u64> {
    let folder = process::current().ok_or(Errno::ESRCH)?.folder.lock().clone();
    let path = user::read_path(path)?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    exec::replace(&fs::absolute(&folder, &path), strings(arguments)?, strings(environment)?, frame)?;
    Ok(0)
}

pub fn exit(code: u64) -> ! {
    process::exit((code as u32 & 0xff) << 8)
}

pub fn wait4(pid: i32, status: u64, options: u64, usage: u64) -> Result<u64> {
    const NO_HANG: u64 = 1;
    let which = match pid {
        -1 => Which::Any,
        0 => Which::Group(process::current().ok_or(Errno::ECHILD)?.group.load(Ordering::Relaxed)),
        pid if pid > 0 => Which::Pid(pid as u32),
        group => Which::Group(group.unsigned_abs()),
    };
    if usage != 0 {
        user::zero(usage, 144)?;
    }
    match process::wait(which, options & NO_HANG == 0)? {
        Some((pid, code)) => {
            if status != 0 {
                user::write(status, &code.to_le_bytes())?;
            }
            Ok(pid as u64)
        }
        None => Ok(0),
    }
}

pub fn kill(pid: i32, number: u32) -> Result<u64> {
    if number > 64 {
        return Err(Errno::EINVAL);
    }
    let targets: Vec<_> = match pid {
        pid if pid > 0 => process::find(pid as u32).into_iter().collect(),
        0 => process::in_group(process::current().ok_or(Errno::ESRCH)?.group.load(Ordering::Relaxed)),
        -1 => process::all().into_iter().filter(|process| process.pid > 1).collect(),
        group => process::in_group(group.unsigned_abs()),
    };
    if targets.is_empty() {
        return Err(Errno::ESRCH);
    }
    targets.iter().for_each(|target| signal::send(target, number));
    Ok(0)
}

pub fn uname(address: u64) -> Result<u64> {
    let mut bytes = [0u8; 6 * 65];
    // Programs require a Linux version, so one is given here. The node name is this kernel's own.
    let fields = ["Linux", "kprof-test-kernel", "6.1.0", "kprof", "x86_64", ""];
    for (field, text) in bytes.chunks_mut(65).zip(fields) {
        field[..text.len()].copy_from_slice(text.as_bytes());
    }
    user::write(address, &bytes)?;
    Ok(0)
}

pub fn umask(mask: u32) -> Result<u64> {
    Ok(process::current().ok_or(Errno::ESRCH)?.umask.swap(mask & 0o777, Ordering::Relaxed) as u64)
}

fn target(pid: u32) -> Result<alloc::sync::Arc<process::Process>> {
    match pid {
        0 => process::current().cloned().ok_or(Errno::ESRCH),
        pid => process::find(pid).ok_or(Errno::ESRCH),
    }
}

pub fn group(pid: u32) -> Result<u64> {
    Ok(target(pid)?.group.load(Ordering::Relaxed) as u64)
}

pub fn set_group(pid: u32, group: u32) -> Result<u64> {
    let process = target(pid)?;
    process.group.store(if group == 0 { process.pid } else { group }, Ordering::Relaxed);
    Ok(0)
}

pub fn new_session() -> Result<u64> {
    let process = process::current().ok_or(Errno::ESRCH)?;
    process.group.store(process.pid, Ordering::Relaxed);
    Ok(process.pid as u64)
}

pub fn yield_now() -> Result<u64> {
    scheduler::yield_now();
    Ok(0)
}

/// `prctl`: only the name of the thread has an effect here.
pub fn control(option: u64, argument: u64) -> Result<u64> {
    const SET_NAME: u64 = 15;
    match option {
        SET_NAME => {
            thread::rename_current(&user::read_string(argument)?);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

pub fn arch_control(option: u64, address: u64) -> Result<u64> {
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    let thread = thread::current().ok_or(Errno::ESRCH)?;
    match option {
        SET_FS if user::is_user(address, 8) => {
            thread.fs_base.store(address, Ordering::Relaxed);
            FsBase::write(VirtAddr::new(address));
            Ok(0)
        }
        SET_FS => Err(Errno::EPERM),
        GET_FS => user::write(address, &thread.fs_base.load(Ordering::Relaxed).to_le_bytes()).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// `reboot`: power off, restart and halt all power the machine off. Other commands are refused.
pub fn reboot(command: u32) -> Result<u64> {
    match command {
        0x4321_fedc | 0x0123_4567 | 0xcdef_0123 => power::power_off(ExitCode::Success),
        0 | 0x89ab_cdef => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `futex`: processes have one thread, so a wake finds no waiter, and a wait ends at once with "changed".
pub fn futex(_address: u64, operation: u64, _value: u64) -> Result<u64> {
    match operation & 0x7f {
        1 => Ok(0),
        0 => Err(Errno::EAGAIN),
        _ => Err(Errno::ENOSYS),
    }
}

pub fn affinity(bytes: u64, address: u64) -> Result<u64> {
    if bytes < 8 {
        return Err(Errno::EINVAL);
    }
    let threads = cpu::count() - cpu::sampler().is_some() as usize;
    user::write(address, &((1u64 << threads) - 1).to_le_bytes())?;
    Ok(8)
}

/// `prlimit64`: there are no limits except a stack of 8 MiB.
pub fn limits(old: u64) -> Result<u64> {
    if old != 0 {
        user::write(old, &(8u64 << 20).to_le_bytes())?;
        user::write(old + 8, &u64::MAX.to_le_bytes())?;
    }
    Ok(0)
}
