//! Addition to a word by one instruction, so that an NMI on the same CPU comes before it or after it, never between its
//! load and its store.
//!
//! In: a structure, the path to one of its words, a number. Out: the sum in its place. Context: any, NMI included. Not
//! locked, so it costs what a plain addition does; only one CPU may write to the word, others may read it. A compiler
//! may make one instruction of a load and a store as well, but nothing obliges it to.

/// `add_in_one!(slot: CpuSlot, handler.counters.taken, 1)`: adds to a word that is an `Counter`.
///
/// The number is a constant, or `= number` for one that is known at run time only.
macro_rules! add_in_one {
    ($base:ident: $type:ty, $($field:tt).+, $number:expr) => {{
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let base: &$type = $base;
            // SAFETY: the word is a field of a structure that is borrowed here, aligned, and of interior mutability
            // (`Counter`); the one instruction reads and writes nothing else. What other CPUs read is the old word or
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
