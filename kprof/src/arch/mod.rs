//! The processors: the only files that know a register, an instruction or a hardware table.
//!
//! One folder for each, with the same files:
//!
//! | file | what it knows |
//! |---|---|
//! | `record` | where a frame pointer leads, and how a return address is stored |
//! | `entry` | the words that an entry from interrupted code leaves |
//! | `caller` | prologues and epilogues: where the caller is while the frame pointer is not the function's own |
//! | `call` | the call instruction before a return address |
//! | `timestamp` | the clock that every CPU can read |
//! | `interrupts` | the interrupt mask |
//! | `tables` | where the processor looks up its entry stubs |
//!
//! In: questions of the stages. Out: the answers for the processor that this is compiled for. Runs in: as each file
//! says. Nothing outside of this folder asks which processor that is. Decoding and arithmetic are pure.

pub(crate) mod add;
pub(crate) mod gate;
pub(crate) mod record;
pub(crate) mod view;

mod x86_64;

use x86_64 as here;

pub(crate) use here::{caller, entry, interrupts, tables, timestamp};
