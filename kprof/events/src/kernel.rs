//! What only events need of a kernel, beside [`Kernel`].
//!
//! In: the kernel's implementation of [`EventKernel`]. Out: hooks for reports and probes, names, and the types of the
//! calls that a kernel makes. Every function says where it is called; none is called in an NMI.

use super::lockup::Lockup;
use kprof::Kernel;

/// What a kernel with [`Events`](crate::Events) can tell and do besides. Everything has a default.
pub trait EventKernel: Kernel {
    /// The names of what tasks are blocked on, for [`TaskState::Blocked`]: `pipe`, `sleep`, `disk`. At most 16, each of
    /// 1 to 16 visible ASCII characters without `*`, `=` and `,`; otherwise the compiler says so.
    const WAIT_REASONS: &'static [&'static str] = &[];

    /// Called once for each lockup that is found ([`kprof::Config::lockup_ms`], the ctl command `lockup`), before its
    /// record is written into the meta stream. `lockup` prints itself as one sentence; [`Lockup::export`] writes the
    /// whole report, with the newest stack of every CPU, in the serial form.
    ///
    /// Runs in: the sampler CPU, ordinary code. Must not wait for a lock that another CPU may hold, because that CPU
    /// may be the one that is locked up. The default does nothing: the report is only in the meta stream.
    fn locked_up(&self, lockup: &Lockup<'_>) {
        let _ = lockup;
    }

    /// For dynamic probes ([`crate::Events::on_breakpoint`]): writes one byte of the kernel's code, through a mapping
    /// of the same memory that is writable and not executable. Every CPU that fetches the instruction later executes
    /// the new byte. Returns `false` if that is impossible at this address.
    ///
    /// Runs in: ordinary code, with locks of the profiler held. The default has no such mapping.
    ///
    /// # Safety
    /// `address` lies in [`kprof::Config::text`]. `byte` is what the instruction there begins with, or an `int3` in its
    /// place, and the breakpoint handler calls [`crate::Events::on_breakpoint`].
    unsafe fn patch(&self, address: u64, byte: u8) -> bool {
        let _ = (address, byte);
        false
    }
}

/// What a task does from now on, for [`crate::Events::switched`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It runs.
    Running,
    /// It is ready to run, because it was woken.
    Woken,
    /// It is ready to run, and the kernel has taken the CPU from it.
    Preempted,
    /// It is ready to run, and has given up the CPU.
    Yielded,
    /// It is blocked, for the reason at this index of [`EventKernel::WAIT_REASONS`].
    Blocked(u8),
    /// It has ended, and never runs again.
    Ended,
}
