//! The lock that a CPU waits for, and who has taken it: for the witness.
//!
//! In: waits that begin and end, on this CPU. Out: what the witness reads from another CPU. Runs in: any but NMI. Both
//! hold the cell's own lock for a few instructions, with interrupts off. The witness never waits for this lock, because
//! a CPU that has stopped for good may hold it.
//!
//! The cell refers to the memory of a lock, which exists as long as somebody waits for it. So a wait ends only after
//! its entry is gone. A wait in an interrupt handler replaces the entry of the wait that it has interrupted, which is
//! then not known any more; the entry of a thread that has moved to another CPU may be replaced too. So every entry is
//! that of a wait that goes on.

use core::sync::atomic::{AtomicU32, Ordering};
use kprof::internals::interrupts;

/// One CPU's cell.
pub(crate) struct WaitsFor(spin::Mutex<Option<Entry>>);

struct Entry {
    /// Where the wait is: the address of a variable of it.
    wait: usize,
    task: u64,
    holder: *const Holder,
}

// SAFETY: the pointer is used only under the cell's lock, while the entry is there; see `begin`.
unsafe impl Send for Entry {}

/// The CPU that has taken a lock, plus 1; 0 if it is not noted. It is not cleared at a release, but by readers.
pub(crate) struct Holder(AtomicU32);

/// What the witness knows of a CPU's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) task: u64,
    /// The address of the holder's number, which is inside the lock.
    pub(crate) lock: u64,
    /// The CPU on which the lock was taken.
    pub(crate) holder: u64,
}

/// An entry, until it is dropped.
pub(crate) struct Entered<'a> {
    cell: &'a WaitsFor,
    wait: usize,
}

impl Holder {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The lock was taken on this CPU.
    #[inline(always)]
    pub(crate) fn note(&self, cpu: usize) {
        self.0.store(cpu as u32 + 1, Ordering::Relaxed);
    }

    /// Several may have taken the lock.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl WaitsFor {
    pub(crate) const fn new() -> Self {
        Self(spin::Mutex::new(None))
    }

    /// A wait of this task begins. `wait` is the address of a variable that exists until it ends.
    pub(crate) fn begin<'a>(&'a self, wait: usize, task: u64, holder: &'a Holder) -> Entered<'a> {
        interrupts::without(|| *self.0.lock() = Some(Entry { wait, task, holder }));
        Entered { cell: self, wait }
    }

    /// What this CPU waits for, if that is noted. `None` also while the CPU changes its entry.
    pub(crate) fn read(&self) -> Option<Waiting> {
        interrupts::without(|| {
            let entry = self.0.try_lock()?;
            let entry = entry.as_ref()?;
            // SAFETY: `begin` has made the pointer from a reference to the lock's memory that outlives `Entered`, which
            // removes the entry before it is gone, under the lock that is held here.
            let cpu = unsafe { &*entry.holder }.0.load(Ordering::Relaxed).checked_sub(1)?;
            Some(Waiting { task: entry.task, lock: entry.holder.addr() as u64, holder: cpu.into() })
        })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        interrupts::without(|| {
            let mut entry = self.cell.0.lock();
            if entry.as_ref().is_some_and(|entry| entry.wait == self.wait) {
                *entry = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_that_of_a_wait_that_goes_on() {
        let (cell, one, other) = (WaitsFor::new(), Holder::new(), Holder::new());
        let outer = cell.begin(1, 7, &one);
        assert_eq!(cell.read(), None, "nobody has noted who holds it");
        one.note(3);
        assert_eq!(cell.read().map(|waiting| (waiting.task, waiting.holder)), Some((7, 3)));
        other.note(0);
        let inner = cell.begin(2, 8, &other);
        assert_eq!(cell.read().map(|waiting| (waiting.task, waiting.holder)), Some((8, 0)));
        drop(outer);
        assert_eq!(cell.read().map(|waiting| waiting.task), Some(8), "the end of another wait changes nothing");
        let changes = cell.0.lock();
        assert_eq!(cell.read(), None, "the witness does not wait for a CPU that may be stuck");
        drop(changes);
        other.forget();
        assert_eq!(cell.read(), None, "readers are not noted");
        drop(inner);
        assert_eq!(cell.read(), None);
    }
}
