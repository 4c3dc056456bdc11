//! What the reader gives to the rest of the tool. Stage: read, its output.
//!
//! In: the fields of a line or of a record, and the number of its stack. Out: a [`Sample`] or a [`Recorded`] to a
//! [`Consumer`], which counts or collects them. Samples of a batch are provisional until its end was read.

use crate::stacks::{StackId, Traits};
use kprof_format::event::EventLine;

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Index of its boot in the profile.
    pub boot: usize,
    /// The task as written in the file (escaped).
    pub task: &'a [u8],
    /// CPU number.
    pub cpu: u32,
    /// Time stamp counter.
    pub tsc: u64,
    /// The distinct stack.
    pub stack: StackId,
    /// What is known about the stack without symbols.
    pub traits: Traits,
}

/// One recorded hit of a point.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// Index of its boot in the profile.
    pub boot: usize,
    /// What its line says.
    pub event: EventLine<'a>,
    /// The task as written in the file (escaped).
    pub task: &'a [u8],
    /// The distinct stack. Its first address is in the call of the function that was hit, like that of a sample.
    pub stack: StackId,
    /// What is known about the stack without symbols.
    pub traits: Traits,
}

/// A receiver that counts or collects samples, and events if it takes any.
///
/// Samples are provisional: those since the last `commit` or `discard` are dropped by `discard`.
pub trait Consumer {
    /// Whether events are wanted too. Without them their stacks are not kept.
    fn takes_events(&self) -> bool {
        false
    }
    /// Takes one event. Its batch is complete.
    fn event(&mut self, _: &Recorded<'_>) {}
    /// Takes one sample.
    fn sample(&mut self, sample: &Sample<'_>);
    /// The samples since the last `commit` or `discard` count.
    fn commit(&mut self);
    /// The samples since the last `commit` or `discard` do not count.
    fn discard(&mut self);
}
