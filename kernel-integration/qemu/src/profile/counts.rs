//! The account of one vCPU: what became of its ticks. Stage: capture.
//!
//! In: one count for each tick. Out: the counters of batch and account lines, of which the identities of
//! `kprof_format::account` hold.

use kprof_format::counter::Counter;

/// The kinds of what is recorded.
pub const KINDS: [Counter; 4] = [Counter::IrqOn, Counter::IrqOff, Counter::Interrupt, Counter::RecordedUser];

/// Counters of one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ticks sent.
    pub sent: u64,
    /// Ticks while an earlier one was not taken.
    pub coalesced: u64,
    /// Ticks not taken when QEMU ended.
    pub pending: u64,
    /// Ticks in user code that are only counted.
    pub user: u64,
    /// Ticks while the vCPU was halted.
    pub idle: u64,
    /// Ticks in the kernel that are only counted.
    pub kernel: u64,
    /// Samples in the file.
    pub recorded: u64,
    /// How many of them are of each of [`KINDS`].
    pub kinds: [u64; KINDS.len()],
    /// Those of them in kernel mode, but not in the kernel's half of the address space.
    pub unknown: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: &Self) {
        let Self { sent, user, idle, kernel, coalesced, pending, recorded, kinds, unknown } = more;
        self.sent += sent;
        self.user += user;
        self.idle += idle;
        self.kernel += kernel;
        self.coalesced += coalesced;
        self.pending += pending;
        self.recorded += recorded;
        self.kinds.iter_mut().zip(kinds).for_each(|(sum, count)| *sum += count);
        self.unknown += unknown;
    }

    pub(super) fn list(&self) -> Vec<(Counter, u64)> {
        let taken = self.user + self.idle + self.kernel + self.recorded;
        let counters = [
            (Counter::Sent, self.sent),
            (Counter::Taken, taken),
            (Counter::Coalesced, self.coalesced),
            (Counter::User, self.user),
            (Counter::Idle, self.idle),
            (Counter::Kernel, self.kernel),
            (Counter::LostFull, 0),
            (Counter::Recorded, self.recorded),
            (Counter::Pending, self.pending),
            (Counter::Delivered, self.recorded),
        ];
        counters.into_iter().chain(KINDS.into_iter().zip(self.kinds)).collect()
    }
}
