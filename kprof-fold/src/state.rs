//! States: what a CPU was doing when it was sampled. Stage: fold.
//!
//! In: the traits of a stack. Out: one of five states. The account of the kernel counts each sample under the same
//! state.

use crate::stacks::Traits;

/// A state. The page's script has the same numbers (`data.js`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Kernel code with interrupts on, outside of interrupts and exceptions.
    Kernel = 0,
    /// Kernel code with interrupts off.
    InterruptsOff = 1,
    /// Within an interrupt or exception.
    Interrupt = 2,
    /// User code.
    User = 3,
    /// The idle task.
    Idle = 4,
}

impl State {
    /// The names of the states, by number.
    pub const NAMES: [&str; 5] = ["kernel", "interrupts off", "interrupt", "user", "idle"];

    /// The state of samples with these traits.
    pub fn of(traits: Traits) -> Self {
        match () {
            () if traits.is_idle() => Self::Idle,
            () if !traits.is_kernel() => Self::User,
            () if traits.in_interrupt() => Self::Interrupt,
            () if traits.interrupts_off() => Self::InterruptsOff,
            () => Self::Kernel,
        }
    }
}
