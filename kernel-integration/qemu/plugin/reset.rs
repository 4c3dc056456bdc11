//! Notices that the machine was reset. Stage: capture.
//!
//! In: blocks that QEMU translates. Out: whether a vCPU executes the machine's first block again. (QEMU's interface has
//! no call for a reset.) If the first block is a loop, that is no reset: since its last execution other code must have
//! been translated. Runs in: QEMU's process, on a vCPU's thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The most vCPUs of a machine in any QEMU.
pub const MAX_CPUS: usize = 4096;
/// So many blocks of other code are translated between two resets at least.
const MIN_BLOCKS: u64 = 64;
const NONE: u64 = u64::MAX;

/// What is known since the last reset.
pub struct Boot {
    /// Where the machine's first block begins.
    first: AtomicU64,
    translated: AtomicU64,
    /// How many blocks had been translated at the last reset.
    began: AtomicU64,
    /// The vCPUs that have executed the first block.
    executed: [AtomicBool; MAX_CPUS],
}

/// That of the machine of this process.
pub static BOOT: Boot = Boot::new();

impl Boot {
    const fn new() -> Self {
        let (first, translated, began) = (AtomicU64::new(NONE), AtomicU64::new(0), AtomicU64::new(0));
        Self { first, translated, began, executed: [const { AtomicBool::new(false) }; MAX_CPUS] }
    }

    /// QEMU translates a block that begins here. Whether it is the machine's first one.
    pub fn is_first(&self, start: u64) -> bool {
        self.translated.fetch_add(1, Relaxed);
        self.first.compare_exchange(NONE, start, Relaxed, Relaxed).map_or_else(|first| first == start, |_| true)
    }

    /// A vCPU executes the first block. Whether the machine was reset before.
    pub fn executes_first(&self, cpu: usize) -> bool {
        let Some(executed) = self.executed.get(cpu) else { return false };
        let translated = self.translated.load(Relaxed);
        if !executed.swap(true, Relaxed) || translated < self.began.load(Relaxed) + MIN_BLOCKS {
            return false;
        }
        // The other vCPUs execute it after this reset, too.
        self.executed.iter().enumerate().for_each(|(other, executed)| executed.store(other == cpu, Relaxed));
        self.began.store(translated, Relaxed);
        true
    }
}
