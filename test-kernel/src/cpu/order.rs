//! What the next NMI of a CPU has to do besides taking a tick: the values of [`super::Cpu::nmi_order`].
//!
//! In: nothing. Out: constants. Everybody may use them, so this file must never use another.

/// Nothing special.
pub const NOTHING: u8 = 0;
/// It stops the CPU for ever (panic).
pub const STOP: u8 = 1;
/// It is the first one that `alarm.rs` has asked for.
#[cfg(feature = "profiling")]
pub const FIRST: u8 = 2;
/// It comes inside of the handler of one that `alarm.rs` has asked for.
#[cfg(feature = "profiling")]
pub const FURTHER: u8 = 3;
/// It is single-stepped (`steps.rs`).
#[cfg(feature = "profiling")]
pub const STEP: u8 = 4;
/// Another NMI is latched before it returns.
#[cfg(feature = "profiling")]
pub const LATCH: u8 = 5;
/// It lasts until a planted lockup is over.
#[cfg(feature = "profiling")]
pub const LINGER: u8 = 0x80;
