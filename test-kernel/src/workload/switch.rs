//! Scheduler work: two threads alternate ("ping-pong"); each exchange is a sleep, a wake-up and a switch.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::task::thread;
use crate::wait::{Reason, WaitQueue};

struct Table {
    hits: AtomicU64,
    moved: WaitQueue,
}

impl Table {
    /// Adds a hit whenever the number of hits has this parity, until there are `rounds` hits.
    #[inline(never)]
    fn play(&self, parity: u64, rounds: u64) {
        loop {
            self.moved.wait(|| {
                let hits = self.hits.load(Ordering::Acquire);
                hits >= rounds || hits % 2 == parity
            });
            if self.hits.load(Ordering::Acquire) >= rounds {
                return;
            }
            self.hits.fetch_add(1, Ordering::Release);
            self.moved.wake();
        }
    }
}

/// Runs both threads until there are `rounds` hits.
#[inline(never)]
pub fn ping_pong(rounds: u64) {
    let table = Arc::new(Table { hits: AtomicU64::new(0), moved: WaitQueue::new(Reason::Workload) });
    let other = table.clone();
    thread::spawn_kernel("pong", move || other.play(1, rounds));
    table.play(0, rounds);
}
