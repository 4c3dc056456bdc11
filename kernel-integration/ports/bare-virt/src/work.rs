//! The work that is sampled: the same loop in ordinary code, with interrupts masked, in handlers of an interrupt, an
//! exception and a system call, and in user mode. The turns are the true shares.

use crate::boot;
use crate::machine::{self, OFFSET};
use crate::memory::{self, MAX_CPUS};
use crate::profiling::{self, Saved};
use crate::timer;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// For each CPU: it has interrupted itself.
static HAS_INTERRUPTED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// All of the work once.
#[inline(never)]
pub fn round() {
    half();
    third();
    fifth();
    machine::mask_interrupts(true);
    masked();
    machine::mask_interrupts(false);
    interrupted_round();
}

/// The part of the work that is in entries and in user mode.
#[inline(always)]
pub fn interrupted_round() {
    HAS_INTERRUPTED[machine::cpu()].store(true, Relaxed);
    machine::interrupt_here();
    machine::break_here();
    let (program, stack) = (user as *const () as u64 - OFFSET, memory::user_stack(machine::cpu()) - OFFSET);
    // SAFETY: program and stack are mapped there for user mode, and the program's last call returns to here.
    unsafe { boot::enter_user(program, stack) };
}

macro_rules! loops {
    ($($name:ident $count:literal),*) => {$( #[inline(never)] fn $name() { black_box(turns($count)); } )*};
}

loops!(half 500_000, third 300_000, fifth 200_000, masked 250_000, interrupting 100_000, breaking 150_000,
    calling 350_000);

/// A little work.
pub fn short() {
    black_box(turns(20_000));
}

#[inline(never)]
fn turns(count: u64) -> u64 {
    (0..count).fold(1, |sum, turn| black_box(sum) ^ turn)
}

/// The program of user mode. All that it uses is addressed relative to the instruction.
extern "C" fn user() -> ! {
    black_box(turns(250_000));
    machine::call_kernel(1);
    loop {
        machine::call_kernel(0);
    }
}

/// An interrupt; it is a tick if `is_tick`, the timer's if `is_timer`, or what this CPU has sent itself, or both.
pub fn interrupt(saved: &Saved, is_tick: bool, is_timer: bool) {
    if is_tick {
        profiling::tick(saved);
    }
    if is_timer {
        timer::tick(saved);
    }
    if HAS_INTERRUPTED[machine::cpu()].swap(false, Relaxed) {
        interrupting();
    }
}

/// The breakpoint in [`round`].
pub fn exception(saved: &mut Saved) {
    breaking();
    saved.0[2] += 4; // after it
}

/// A system call of user mode; number 0 is the last one.
pub fn system_call(saved: &Saved, number: u64) {
    if number == 0 {
        // SAFETY: the entry came from user mode, so the stack is as `enter_user` has left it.
        unsafe { boot::leave_user(saved) }
    }
    calling();
}
