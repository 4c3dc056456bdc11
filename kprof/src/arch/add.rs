//! Adds to a word by one instruction, so that an NMI on the same CPU arrives before or after it, never between its load
//! and its store.
//!
//! In: a structure, the path to one of its words, a number. Out: the word holds the sum. Runs in: any, NMI included.
//! The instruction is not locked, so it costs what an ordinary addition costs; only one CPU may write to the word,
//! others may read it. A compiler may turn a load and a store into one instruction as well, but it does not have to.

/// `add_in_one!(slot: CpuSlot, handler.counters.taken, 1)`: adds to a word that is a `Counter`.
///
/// The number is a constant.
macro_rules! add_in_one {
    ($base:ident: $type:ty, $($field:tt).+, $number:expr) => {{
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let base: &$type = $base;
            // SAFETY: the word is a field of a structure that is borrowed here, aligned, and has interior mutability
            // (`Counter`); the one instruction reads and writes nothing else. Other CPUs read either the old word or
            // the new one, as with an atomic store.
            unsafe {
                core::arch::asm!(
                    "add qword ptr [{base} + {offset}], {number}",
                    base = in(reg) core::ptr::from_ref(base),
                    offset = const core::mem::offset_of!($type, $($field).+),
                    number = const $number,
                    options(nostack)
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            const NUMBER: i64 = $number;
            $base.$($field).+.fetch_add(NUMBER as u64);
        }
    }};
}

pub(crate) use add_in_one;
