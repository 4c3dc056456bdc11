//! The processors: the only files that know a register, an instruction or a hardware table.
//!
//! One folder for each, with the same files:
//!
//! | file | what it knows |
//! |---|---|
//! | `record` | where a frame pointer leads, and how a return address is stored |
//! | `entry` | the words that an entry from interrupted code leaves |
//! | `compiled_entry` | the same for entries that the compiler has made; only x86_64 has them |
//! | `caller` | prologues and epilogues: where the caller is while the frame pointer is not the function's own |
//! | `call` | the call instruction before a return address |
//! | `timestamp` | the clock that every CPU can read |
//! | `cycles` | the cycle counter, where the clock is too coarse for what a handler takes |
//! | `interrupts` | the interrupt mask; `without` beside the folders holds it for a while |
//! | `own_frame` | the frame pointer of the code that asks |
//! | `tables` | where the processor looks up its entry stubs |
//!
//! In: questions of the stages. Out: the answers for the processor that this is compiled for. Runs in: as each file
//! says. Nothing outside of this folder asks which processor that is. Decoding and arithmetic are pure, and the tests
//! of all processors run on every host.

pub(crate) mod add;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_compiled_entry.rs"]
pub(crate) mod compiled_entry;
pub(crate) mod gate;
pub mod interrupts;
#[cfg(any(not(target_arch = "x86_64"), test))]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "for other processors"))]
mod link;
#[cfg(any(not(target_arch = "x86_64"), test))]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "for other processors"))]
mod no_tables;
pub(crate) mod record;
#[cfg(test)]
mod tests;
pub(crate) mod view;

/// One folder for each processor. A build has that of its target; the tests have all.
macro_rules! processors {
    ($($name:ident $target:literal),*) => {$(
        #[cfg(any(target_arch = $target, test))]
        #[cfg_attr(not(target_arch = $target), allow(dead_code, unused_imports, reason = "tested on every host"))]
        mod $name;
        #[cfg(target_arch = $target)]
        use $name as here;
    )*};
}

processors!(x86_64 "x86_64", aarch64 "aarch64", riscv64 "riscv64");

#[cfg(target_arch = "x86_64")]
pub(crate) use here::compiled_entry;
pub(crate) use here::{NAME, caller, cycles, entry, tables};
pub use here::{own_frame, timestamp};

/// Whether a counter moves. One that is emulated may need more than a few instructions for a step.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "for processors whose cycle counter can be stopped"))]
fn moves(read: impl Fn() -> u64) -> bool {
    const READS: usize = 1000;
    let first = read();
    (0..READS).any(|_| read() != first)
}
