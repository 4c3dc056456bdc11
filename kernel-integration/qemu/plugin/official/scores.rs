//! Words that QEMU's inline code uses: those of each vCPU in its scoreboards, and words of the plugin. Stage: capture.
//!
//! In: nothing, or a word of the plugin. Out: words as QEMU takes them. Runs in: QEMU's process. QEMU makes a
//! scoreboard bigger only when it makes a vCPU, and then translates all blocks anew.
//!
//! Inline code finds a vCPU's word by its number, times the bytes of the scoreboard for each vCPU. If vCPUs share a
//! thread, that number is a constant in the block: of the vCPU that has translated it. QEMU multiplies this constant in
//! place, so with more than one byte all its other uses in the block are wrong, and the guest with them. With one byte
//! nothing is multiplied, and an offset that is smaller by the number leads to the same word from every vCPU's block.

use super::internal::number;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A word in a scoreboard, as QEMU takes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Word {
    scoreboard: *mut c_void,
    offset: usize,
}

// SAFETY: a scoreboard is never freed, and QEMU's functions take any thread.
unsafe impl Send for Word {}
// SAFETY: the same.
unsafe impl Sync for Word {}

unsafe extern "C" {
    fn qemu_plugin_scoreboard_new(bytes: usize) -> *mut c_void;
    fn qemu_plugin_scoreboard_find(scoreboard: *mut c_void, cpu: c_uint) -> *mut c_void;
    fn qemu_plugin_num_vcpus() -> c_int;
}

/// Bytes of a scoreboard for each vCPU.
const BYTES: usize = 1 << 15;

/// A scoreboard of one byte for each vCPU, which nothing is written to.
static ONE: OnceLock<Word> = OnceLock::new();

/// The next word that was not given out.
static NEXT: Mutex<Option<Word>> = Mutex::new(None);

impl Word {
    /// A word, which is 0 for all vCPUs.
    pub fn new() -> Self {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let word = match *next {
            Some(word) if word.offset < BYTES => word,
            // SAFETY: QEMU's function takes any size.
            _ => Self { scoreboard: unsafe { qemu_plugin_scoreboard_new(BYTES) }, offset: 0 },
        };
        *next = Some(Self { offset: word.offset + 8, ..word });
        word
    }

    /// A word of the plugin, for the block that is being translated on this thread, which runs all vCPUs.
    pub fn at(place: &'static AtomicU64) -> Self {
        // SAFETY: QEMU's function takes any size.
        let one = *ONE.get_or_init(|| Self { scoreboard: unsafe { qemu_plugin_scoreboard_new(1) }, offset: 0 });
        let offset = (place.as_ptr() as usize).wrapping_sub(one.place(0) as usize).wrapping_sub(number(0));
        Self { offset, ..one }
    }

    /// Where this vCPU has it. It is known from the time on that the vCPU was made.
    fn place(self, cpu: usize) -> *mut u64 {
        // SAFETY: QEMU knows the vCPU, and the offset is within a scoreboard's bytes, which are aligned for words.
        unsafe { qemu_plugin_scoreboard_find(self.scoreboard, cpu as c_uint).byte_add(self.offset).cast() }
    }

    fn vcpus() -> usize {
        // SAFETY: QEMU's function takes any thread.
        unsafe { qemu_plugin_num_vcpus() as usize }
    }

    pub fn set(self, cpu: usize, value: u64) -> bool {
        let is_known = cpu < Self::vcpus();
        if is_known {
            // SAFETY: the word is the vCPU's; its code reads it without a lock, as it does what it writes itself.
            unsafe { self.place(cpu).write_volatile(value) };
        }
        is_known
    }

    /// The sum over all vCPUs.
    pub fn sum(self) -> u64 {
        // SAFETY: the words are those of QEMU's vCPUs.
        (0..Self::vcpus()).map(|cpu| unsafe { self.place(cpu).read_volatile() }).fold(0, u64::wrapping_add)
    }
}
