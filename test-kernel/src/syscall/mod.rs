//! System calls with Linux's numbers, arguments and errors for x86-64, as far as static programs need them.
//!
//! In: the registers at the entry. Out: rax. A call that is not supported returns ENOSYS, and its number is logged
//! once.

mod file;
mod memory;
mod path;
mod process;
mod signal;
mod time;

use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::interrupts;

use crate::cpu::entry::TrapFrame;
use crate::errno::{Errno, Result};
use crate::{log, profiling};
use crate::{preempt, task};

/// Called by the system call stub, interrupts off. Returns with interrupts off.
#[unsafe(no_mangle)]
extern "C" fn syscall_enter(frame: &mut TrapFrame) {
    let before = profiling::enter(frame);
    serve(frame);
    profiling::leave(frame, before);
}

/// A separate function, so that `syscall_enter` does almost nothing before and after it. With published places the time
/// outside of this function counts as user code.
#[inline(never)]
fn serve(frame: &mut TrapFrame) {
    interrupts::enable();
    let number = frame.rax;
    let begun = profiling::syscall_begins(number);
    let result = dispatch(number, frame);
    profiling::syscall_ends(begun);
    let mut interrupted = None;
    match result {
        Ok(value) => frame.rax = value,
        Err(error) => {
            frame.rax = (-(error as i64)) as u64;
            if error == Errno::EINTR && may_restart(number) {
                interrupted = Some(number);
            }
        }
    }
    interrupts::disable();
    preempt::on_interrupt_exit();
    deliver_signals(frame, interrupted);
}

/// Delivers pending signals with interrupts on; returns with interrupts off and none pending.
pub fn deliver_signals(frame: &mut TrapFrame, interrupted: Option<u64>) {
    let mut interrupted = interrupted;
    while task::signal::is_pending() || task::signal::is_suspended() {
        interrupts::enable();
        task::signal::deliver(frame, interrupted.take());
        interrupts::disable();
    }
}

/// Whether a call is restarted after a signal handler. Sleeps and waits for signals are not (Linux signal(7)).
fn may_restart(number: u64) -> bool {
    !matches!(number, 7 | 34 | 35 | 130 | 230 | 271)
}

/// The number of the system call that is slower.
#[cfg(kprof_slower)]
pub static SLOWER_CALL: AtomicU64 = AtomicU64::new(u64::MAX);

/// `cargo xtask yardstick --planted` must find these 200 instructions in that system call and in this function.
#[cfg(kprof_slower)]
#[inline(never)]
fn slower() {
    // SAFETY: the instructions do nothing.
    unsafe { core::arch::asm!(".rept 200", "nop", ".endr", options(nomem, nostack, preserves_flags)) }
}

#[inline(never)]
fn dispatch(number: u64, frame: &mut TrapFrame) -> Result<u64> {
    #[cfg(kprof_slower)]
    if number == SLOWER_CALL.load(Ordering::Relaxed) {
        slower();
    }
    let (a, b, c, d, e, f) = (frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9);
    match number {
        0 => file::read(a, b, c),
        1 => file::write(a, b, c),
        2 => path::open(path::AT_FDCWD, a, b as u32, c as u32),
        3 => file::close(a),
        4 => path::stat(path::AT_FDCWD, a, b, 0),
        5 => file::fstat(a, b),
        6 => path::stat(path::AT_FDCWD, a, b, path::AT_SYMLINK_NOFOLLOW),
        7 => file::poll(a, b, c as i32 as i64),
        8 => file::seek(a, b as i64, c as u32),
        9 => memory::mmap(a, b, c, d, e, f),
        10 => memory::mprotect(a, b, c),
        11 => memory::munmap(a, b),
        12 => memory::brk(a),
        13 => signal::action(a as u32, b, c, d),
        14 => signal::mask(a, b, c, d),
        15 => task::signal::sigreturn(frame),
        16 => file::ioctl(a, b, c),
        17 => file::read_write_at(a, b, c, d, false),
        18 => file::read_write_at(a, b, c, d, true),
        19 => file::vectors(a, b, c, false),
        20 => file::vectors(a, b, c, true),
        21 => path::access(path::AT_FDCWD, a),
        22 => file::pipe(a, 0),
        24 => process::yield_now(),
        25 => Err(Errno::ENOMEM),
        28 => Ok(0),
        32 => file::dup(a),
        33 => file::dup2(a, b, 0, true),
        34 => signal::pause(),
        35 => time::nanosleep(a, b),
        39 => process::pid(),
        40 => file::send_file(a, b, c, d),
        56 => process::clone(frame, a, b, d),
        57 => process::fork(frame),
        58 => process::vfork(frame),
        59 => process::execve(frame, a, b, c),
        60 | 231 => process::exit(a),
        61 => process::wait4(a as i32, b, c, d),
        62 => process::kill(a as i32, b as u32),
        63 => process::uname(a),
        72 => file::control(a, b, c),
        73 => file::lock(a, b),
        74 | 75 => file::sync(a),
        76 => path::truncate(a, b),
        77 => file::truncate(a, b),
        79 => path::current_folder(a, b),
        80 => path::change_folder(a),
        82 => path::rename(path::AT_FDCWD, a, path::AT_FDCWD, b),
        83 => path::make_folder(path::AT_FDCWD, a, b as u32),
        84 => path::unlink(path::AT_FDCWD, a, path::AT_REMOVEDIR),
        85 => path::open(path::AT_FDCWD, a, path::CREATE, b as u32),
        87 => path::unlink(path::AT_FDCWD, a, 0),
        88 => path::symlink(a, path::AT_FDCWD, b),
        89 => path::read_link(path::AT_FDCWD, a, b, c),
        90 => path::change_mode(path::AT_FDCWD, a, b as u32),
        91 => file::change_mode(a, b as u32),
        92..=94 => Ok(0),
        95 => process::umask(a as u32),
        96 => time::time_of_day(a),
        99 => time::sysinfo(a),
        100 => time::times(a),
        98 => time::usage(b),
        102 | 104 | 107 | 108 => Ok(0),
        105 | 106 | 114 | 116 | 117 | 119 => Ok(0),
        109 => process::set_group(a as u32, b as u32),
        110 => process::parent(),
        111 => process::group(0),
        112 => process::new_session(),
        115 => Ok(0),
        121 | 124 => process::group(a as u32),
        127 => signal::pending(a, b),
        130 => signal::suspend(a, b),
        131 => signal::alternative_stack(a, b),
        157 => process::control(a, b),
        158 => process::arch_control(a, b),
        162 => Ok(0),
        169 => process::reboot(c as u32),
        186 => process::pid(),
        200 | 234 => process::kill(if number == 200 { a } else { b } as i32, if number == 200 { b } else { c } as u32),
        201 => time::time(a),
        202 => process::futex(a, b, c),
        203 => Ok(0),
        204 => process::affinity(b, c),
        217 => path::entries(a, b, c),
        218 => process::pid(),
        228 => time::clock_get(a, b),
        229 => time::clock_resolution(b),
        230 => time::clock_sleep(a, b, c, d),
        257 => path::open(a, b, c as u32, d as u32),
        258 => path::make_folder(a, b, c as u32),
        262 => path::stat(a, b, c, d),
        263 => path::unlink(a, b, c),
        264 | 316 => path::rename(a, b, c, d),
        266 => path::symlink(a, b, c),
        267 => path::read_link(a, b, c, d),
        268 => path::change_mode(a, b, c as u32),
        269 | 439 => path::access(a, b),
        270 => file::select(a, b, c, d, e),
        271 => file::poll_ns(a, b, c),
        273 | 334 => Err(Errno::ENOSYS),
        280 => Ok(0),
        285 => Ok(0),
        292 => file::dup2(a, b, c as u32, false),
        293 => file::pipe(a, b as u32),
        302 => process::limits(d),
        318 => memory::random(a, b),
        332 => Err(Errno::ENOSYS),
        _ => unknown(number),
    }
}

static NAMED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

static LAST_STRANGE: AtomicU64 = AtomicU64::new(0);

fn unknown(number: u64) -> Result<u64> {
    let is_new = match NAMED.get(number as usize / 64) {
        Some(word) => {
            let bit = 1 << (number % 64);
            word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        }
        // Linux does not have numbers this large. It is enough to remember the last one, so that it is logged when it
        // changes.
        None => LAST_STRANGE.swap(number, Ordering::Relaxed) != number,
    };
    if is_new {
        log!("system call {number} is not known here: ENOSYS");
    }
    Err(Errno::ENOSYS)
}
