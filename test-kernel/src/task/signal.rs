//! Signals: pending bits, handlers, and frames on the user stack in Linux's layout for x86-64.
//!
//! Any thread can send a signal. It is delivered when the process returns to user mode. The frame is the `rt_sigframe`
//! that glibc and musl expect (Linux `arch/x86/include/uapi/asm/sigcontext.h`): a return address, `ucontext`,
//! `siginfo`, vector state.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::process::{self, Process};
use super::scheduler::SCHEDULER;
use super::thread::FxState;
use crate::cpu::entry::TrapFrame;
use crate::cpu::gdt::{USER_CODE, USER_DATA};
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::memory::user;

#[allow(missing_docs)]
pub mod numbers {
    pub const SIGILL: u32 = 4;
    pub const SIGTRAP: u32 = 5;
    pub const SIGBUS: u32 = 7;
    pub const SIGFPE: u32 = 8;
    pub const SIGKILL: u32 = 9;
    pub const SIGSEGV: u32 = 11;
    pub const SIGPIPE: u32 = 13;
    pub const SIGCHLD: u32 = 17;
    pub const SIGCONT: u32 = 18;
    pub const SIGSTOP: u32 = 19;
    pub const SIGTSTP: u32 = 20;
    pub const SIGTTIN: u32 = 21;
    pub const SIGTTOU: u32 = 22;
    pub const SIGURG: u32 = 23;
    pub const SIGWINCH: u32 = 28;
}
pub use numbers::*;

const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;
const UNBLOCKABLE: u64 = 1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1);

/// What to do on a signal: Linux's `struct kernel_sigaction`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Action {
    /// Handler address; 0 = default, 1 = ignore.
    pub handler: u64,
    /// SA_ flags.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals blocked while it runs.
    pub mask: u64,
}

/// The signal state of a process.
pub struct Signals {
    pending: AtomicU64,
    /// Blocked signals, bit n - 1.
    pub blocked: AtomicU64,
    /// The mask to restore after `sigsuspend`; all ones = none.
    pub suspended: AtomicU64,
    actions: Lock<[Action; 65]>,
    /// Alternative stack: base, bytes; 0 bytes = none.
    pub alternative: Lock<(u64, u64)>,
}

impl Signals {
    /// No signal is pending or blocked, and all actions are the default.
    pub fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            suspended: AtomicU64::new(u64::MAX),
            actions: Lock::new([Action::default(); 65]),
            alternative: Lock::new((0, 0)),
        }
    }

    /// Copies what a child inherits.
    pub fn inherit(&self, parent: &Self) {
        self.blocked.store(parent.blocked.load(Ordering::Relaxed), Ordering::Relaxed);
        *self.actions.lock() = *parent.actions.lock();
        *self.alternative.lock() = *parent.alternative.lock();
    }

    /// What exec does: removes handlers; ignored signals stay ignored.
    pub fn reset_for_exec(&self) {
        for action in self.actions.lock().iter_mut() {
            if action.handler != IGNORE {
                *action = Action::default();
            }
        }
        *self.alternative.lock() = (0, 0);
    }

    /// Returns the action for `signal`, and sets a new one if one is given.
    ///
    /// # Errors
    /// EINVAL if the number is not a signal, or if the signal cannot be caught.
    pub fn set_action(&self, signal: u32, new: Option<Action>) -> Result<Action> {
        if signal == 0 || signal > 64 || (new.is_some() && UNBLOCKABLE & 1 << (signal - 1) != 0) {
            return Err(Errno::EINVAL);
        }
        let mut actions = self.actions.lock();
        let old = actions[signal as usize];
        if let Some(new) = new {
            actions[signal as usize] = new;
        }
        Ok(old)
    }

    fn is_ignored(&self, signal: u32) -> bool {
        match self.actions.lock()[signal as usize].handler {
            IGNORE => true,
            DEFAULT => matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU),
            _ => false,
        }
    }

    fn deliverable(&self) -> u64 {
        self.pending.load(Ordering::Acquire) & !(self.blocked.load(Ordering::Relaxed) & !UNBLOCKABLE)
    }

    /// Signals that are not delivered yet, including blocked ones.
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::Acquire)
    }
}

/// Whether the running process has a signal to deliver.
pub fn is_pending() -> bool {
    process::current().is_some_and(|process| process.signals.deliverable() != 0)
}

/// Sends a signal. An ignored signal is dropped.
pub fn send(process: &Arc<Process>, signal: u32) {
    if signal == 0 || signal > 64 || !process.is_alive() || process.signals.is_ignored(signal) {
        return;
    }
    process.signals.pending.fetch_or(1 << (signal - 1), Ordering::Release);
    if let Some(thread) = process.thread() {
        SCHEDULER.lock().end_wait(&thread);
    }
}

/// Raises the signal for a fault of user code. If the signal has no handler, is ignored or is blocked, the process ends
/// here, because the faulting instruction cannot continue.
pub fn raise_fault(frame: &mut TrapFrame, signal: u32, address: u64) {
    let Some(process) = process::current() else { return };
    let bit = 1 << (signal - 1);
    let handler = process.signals.actions.lock()[signal as usize].handler;
    if handler == DEFAULT || handler == IGNORE || process.signals.blocked.load(Ordering::Relaxed) & bit != 0 {
        crate::log!(
            "process {} ({}): signal {signal} at {:#x}, address {address:#x}",
            process.pid,
            process.program.lock().as_str(),
            frame.rip
        );
        process::exit(signal);
    }
    deliver_one(process, frame, signal, address);
}

/// Delivers pending signals before the return to user mode. `interrupted_call` is the number of the system call that
/// ended with EINTR. It is restarted if the handler's flags say so.
pub fn deliver(frame: &mut TrapFrame, interrupted_call: Option<u64>) {
    let Some(process) = process::current() else { return };
    let mut restart = interrupted_call;
    loop {
        let deliverable = process.signals.deliverable();
        if deliverable == 0 {
            break;
        }
        let signal = deliverable.trailing_zeros() + 1;
        process.signals.pending.fetch_and(!(1 << (signal - 1)), Ordering::AcqRel);
        if process.signals.is_ignored(signal) {
            continue;
        }
        let action = process.signals.actions.lock()[signal as usize];
        if action.handler == DEFAULT {
            process::exit(signal);
        }
        if let Some(call) = restart.take()
            && action.flags & SA_RESTART != 0
        {
            frame.rax = call;
            frame.rip -= 2;
        }
        deliver_one(process, frame, signal, 0);
    }
    let suspended = process.signals.suspended.swap(u64::MAX, Ordering::Relaxed);
    if suspended != u64::MAX {
        process.signals.blocked.store(suspended, Ordering::Relaxed);
    }
}

/// Offsets in the frame that the handler sees, from its lowest address.
mod layout {
    pub const TASK: usize = 8;
    pub const REGISTERS: usize = TASK + 40;
    pub const MASK: usize = REGISTERS + 256;
    pub const INFO: usize = MASK + 8;
    pub const TOTAL: usize = INFO + 128;
}

const RED_ZONE: u64 = 128;

fn registers(frame: &TrapFrame) -> [u64; 18] {
    [
        frame.r8,
        frame.r9,
        frame.r10,
        frame.r11,
        frame.r12,
        frame.r13,
        frame.r14,
        frame.r15,
        frame.rdi,
        frame.rsi,
        frame.rbp,
        frame.rbx,
        frame.rdx,
        frame.rax,
        frame.rcx,
        frame.rsp,
        frame.rip,
        frame.rflags,
    ]
}

fn deliver_one(process: &Arc<Process>, frame: &mut TrapFrame, signal: u32, address: u64) {
    let signals = &process.signals;
    let action = signals.actions.lock()[signal as usize];
    let blocked = signals.blocked.load(Ordering::Relaxed);
    let suspended = signals.suspended.swap(u64::MAX, Ordering::Relaxed);
    let old_mask = if suspended == u64::MAX { blocked } else { suspended };

    let (base, bytes) = *signals.alternative.lock();
    let on_alternative = (base..base + bytes).contains(&frame.rsp);
    let mut top = frame.rsp - RED_ZONE;
    if action.flags & SA_ONSTACK != 0 && bytes != 0 && !on_alternative {
        top = base + bytes;
    }
    let fx_address = (top - 512) & !63;
    let start = ((fx_address - layout::TOTAL as u64) & !15) - 8;

    let mut image = [0u8; layout::TOTAL];
    let mut put = |offset: usize, value: u64| image[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    put(0, action.restorer);
    put(layout::TASK + 16, base);
    put(layout::TASK + 32, bytes);
    for (index, value) in registers(frame).into_iter().enumerate() {
        put(layout::REGISTERS + 8 * index, value);
    }
    put(layout::REGISTERS + 144, USER_CODE as u64 | (USER_DATA as u64) << 48);
    put(layout::REGISTERS + 152, frame.error);
    put(layout::REGISTERS + 160, frame.vector() as u64);
    put(layout::REGISTERS + 168, old_mask);
    put(layout::REGISTERS + 176, address);
    put(layout::REGISTERS + 184, fx_address);
    put(layout::MASK, old_mask);
    put(layout::INFO, signal as u64);
    put(layout::INFO + 16, address);

    let mut fx = FxState::new();
    fx.save();
    if user::write(fx_address, &fx.0).is_err() || user::write(start, &image).is_err() {
        process::exit(SIGSEGV);
    }
    let mut mask = blocked | action.mask;
    if action.flags & SA_NODEFER == 0 {
        mask |= 1 << (signal - 1);
    }
    signals.blocked.store(mask & !UNBLOCKABLE, Ordering::Relaxed);
    if action.flags & SA_RESETHAND != 0 {
        signals.actions.lock()[signal as usize] = Action::default();
    }
    frame.rip = action.handler;
    frame.rsp = start;
    frame.rdi = signal as u64;
    frame.rsi = start + layout::INFO as u64;
    frame.rdx = start + layout::TASK as u64;
    frame.rax = 0;
    frame.rflags &= !0x400;
}

/// `rt_sigreturn`: returns to the code that the handler has interrupted.
///
/// # Errors
/// EFAULT if the frame cannot be read.
pub fn sigreturn(frame: &mut TrapFrame) -> Result<u64> {
    let process = process::current().ok_or(Errno::EFAULT)?;
    // The handler's `ret` has popped the return address.
    let start = frame.rsp - 8;
    let mut image = [0u8; layout::TOTAL];
    user::read(start, &mut image)?;
    let get = |offset: usize| u64::from_le_bytes(image[offset..offset + 8].try_into().expect("eight bytes"));
    let register = |index: usize| get(layout::REGISTERS + 8 * index);
    let mut fx = FxState::new();
    let fx_address = get(layout::REGISTERS + 184);
    if fx_address != 0 {
        user::read(fx_address, &mut fx.0)?;
        // Reserved bits of MXCSR would cause a fault in the kernel, so they are cleared.
        fx.0[26] = 0;
        fx.0[27] = 0;
        fx.restore();
    }
    process.signals.blocked.store(get(layout::MASK) & !UNBLOCKABLE, Ordering::Relaxed);
    frame.r8 = register(0);
    frame.r9 = register(1);
    frame.r10 = register(2);
    frame.r11 = register(3);
    frame.r12 = register(4);
    frame.r13 = register(5);
    frame.r14 = register(6);
    frame.r15 = register(7);
    frame.rdi = register(8);
    frame.rsi = register(9);
    frame.rbp = register(10);
    frame.rbx = register(11);
    frame.rdx = register(12);
    frame.rax = register(13);
    frame.rcx = register(14);
    frame.rsp = register(15);
    frame.rip = register(16) & 0x0000_ffff_ffff_ffff;
    // The user may only change the arithmetic, direction and trap flags.
    frame.rflags = register(17) & 0xcd5 | 0x202;
    frame.cs = USER_CODE as u64;
    frame.ss = USER_DATA as u64;
    Ok(frame.rax)
}

/// Whether the running process is in `sigsuspend`, so that its old mask must be restored.
pub fn is_suspended() -> bool {
    process::current().is_some_and(|process| process.signals.suspended.load(Ordering::Relaxed) != u64::MAX)
}
