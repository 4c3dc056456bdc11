//! Turns interrupts off while a lock is held, so that no interrupt handler or preempting thread waits for a lock that
//! its own CPU holds.
//!
//! In: a closure. Out: its result. Runs in: ordinary kernel code, never in an NMI. In a user program, as a test is one,
//! interrupts stay as they are.

pub use super::here::interrupts::{off, restore};

/// Runs `work` with interrupts off, then restores the state before. (Code that must be inlined calls [`off`] and
/// [`restore`] itself.)
#[inline]
pub fn without<R>(work: impl FnOnce() -> R) -> R {
    let before = off();
    let result = work();
    restore(before);
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_is_done_in_a_user_program_too() {
        assert_eq!(super::without(|| 7), 7);
    }
}
