//! Lockups: the names of their kinds, reasons and counters, and the histogram of where the CPU was.
//!
//! In: names, and the texts of the fields of a `# lockup` line. Out: the other of the two. Runs in: any. Never
//! allocates.
//!
//! ```text
//! # lockup tsc=5f5 cpu=2 from=1f kind=soft reason=interrupts-off ticks=9 at-ffffffff80201234=9 task=sh
//! # lockup-stack of=5f5 cpu=2 tsc=5f0 stack=ffffffff80201234,fffffffffffff001,ffffffff80200007 task=sh
//! ```
//!
//! The stacks are those that the sampler knew when it found the lockup; their own TSC says how old each is. `ticks` =
//! `unknown` + the sum over all `at-`. A hard lockup has the number of ticks that the CPU has not taken, and all of
//! them are `unknown`.

use crate::table::table;
use crate::text::parse_hex;

table! {
    /// What kind of lockup it is.
    pub enum Kind {
        /// The CPU answers to ticks.
        Soft = "soft",
        /// The CPU does not answer.
        Hard = "hard",
    }
}

table! {
    /// What the sampler has seen for so long.
    pub enum Reason {
        /// Every sample was taken with interrupts off.
        InterruptsOff = "interrupts-off",
        /// Every tick found kernel code of one task.
        OneTask = "one-task",
        /// No tick was taken.
        NoAnswer = "no-answer",
    }
}

impl Reason {
    /// The kind of a lockup for this reason.
    pub const fn kind(self) -> Kind {
        match self {
            Self::InterruptsOff | Self::OneTask => Kind::Soft,
            Self::NoAnswer => Kind::Hard,
        }
    }
}

table! {
    /// The counters of a lockup, beside those of addresses.
    pub enum LockupCounter {
        /// The ticks of the lockup.
        Ticks = "ticks",
        /// Those of which no address is known: the ring was full, or the tick was not taken.
        Unknown = "unknown",
    }
}

/// The name of the counter of an address is this, and the address in hex.
pub const AT_PREFIX: &str = "at-";

/// The address whose counter has this name. `None` if it is another counter.
///
/// ```
/// use kprof_format::lockup::address_of_name;
/// assert_eq!(address_of_name("at-ffffffff80201234"), Some(0xffff_ffff_8020_1234));
/// assert_eq!(address_of_name("ticks"), None);
/// ```
pub fn address_of_name(name: &str) -> Option<u64> {
    parse_hex(name.strip_prefix(AT_PREFIX)?.as_bytes())
}

/// The name of the counter that says who holds the lock that the CPU waits for is this, and the address of a word of
/// the lock in hex; its value is the number of the CPU on which the lock was taken.
pub const HOLDER_PREFIX: &str = "holder-";

/// The lock whose holder the counter of this name is. `None` if it is another counter.
///
/// ```
/// use kprof_format::lockup::lock_of_name;
/// assert_eq!(lock_of_name("holder-ffffffff80401230"), Some(0xffff_ffff_8040_1230));
/// assert_eq!(lock_of_name("at-ffffffff80401230"), None);
/// ```
pub fn lock_of_name(name: &str) -> Option<u64> {
    parse_hex(name.strip_prefix(HOLDER_PREFIX)?.as_bytes())
}

/// The words of a stack from its text: hex numbers with commas between. Ends at the first text that is no such number.
///
/// ```
/// use kprof_format::lockup::stack_of_text;
/// assert!(stack_of_text("ffffffff80201234,1f").eq([0xffff_ffff_8020_1234, 0x1f]));
/// assert_eq!(stack_of_text("").count(), 0);
/// ```
pub fn stack_of_text(text: &str) -> impl Iterator<Item = u64> {
    text.split(',').map_while(|word| parse_hex(word.as_bytes()))
}
