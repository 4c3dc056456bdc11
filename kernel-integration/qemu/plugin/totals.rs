//! What is sent at the end of a counted run. Stage: capture. The plugin writes it, and the tool reads it.
//!
//! In: counters. Out: the words of a message, and back.

/// The number of words.
const WORDS: usize = 12;

/// How often what happened that changes the chain of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries by an interrupt or exception.
    pub interrupts: u64,
    /// Those of them that repeat the interrupted instruction, which therefore began without completing.
    pub faults: u64,
    /// Those that QEMU has told.
    pub told: u64,
    /// How often a guess, as for a QEMU that does not tell, is another one than what QEMU has told.
    pub misguessed: u64,
    /// Changes from one stack to another.
    pub switches: u64,
    /// Blocks whose predecessor does not explain them.
    pub unexplained: u64,
}

/// Totals of a counted run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Instructions that have begun, counted one by one.
    pub executed: u64,
    /// QEMU's own count, if it counts.
    pub clock: Option<u64>,
    /// How often QEMU's count has jumped when a vCPU was reset.
    pub jumps: u64,
    /// By how much in all.
    pub jumped: u64,
    /// Those by calling context.
    pub counts: Counts,
    /// Calls at the greatest depth.
    pub too_deep: u64,
    /// How often the fast way to the stack pointer gave another value than QEMU's own.
    pub wrong_stack_pointers: u64,
}

impl Totals {
    /// The words.
    pub fn words(&self) -> [u64; WORDS] {
        let Self { executed, clock, jumps, jumped, counts, too_deep, wrong_stack_pointers } = *self;
        let Counts { interrupts, faults, told, misguessed, switches, unexplained } = counts;
        let clock = clock.unwrap_or(u64::MAX);
        [
            executed,
            clock,
            jumps,
            jumped,
            interrupts,
            faults,
            told,
            misguessed,
            switches,
            unexplained,
            too_deep,
            wrong_stack_pointers,
        ]
    }

    /// What the words say; `None` if they are not these.
    pub fn read(words: &[u64]) -> Option<Self> {
        let [
            executed,
            clock,
            jumps,
            jumped,
            interrupts,
            faults,
            told,
            misguessed,
            switches,
            unexplained,
            too_deep,
            wrong_stack_pointers,
        ] = *<&[u64; WORDS]>::try_from(words).ok()?;
        let clock = (clock != u64::MAX).then_some(clock);
        let counts = Counts { interrupts, faults, told, misguessed, switches, unexplained };
        Some(Self { executed, clock, jumps, jumped, counts, too_deep, wrong_stack_pointers })
    }
}
