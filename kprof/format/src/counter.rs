//! The counters of a CPU and of the meta stream, with their names in ctl, batch and account lines.
//!
//! In: a counter or its name. Out: the other of the two. Runs in: any. To add a counter, add it here. Which counters
//! are losses is defined only here.

use crate::table::table;

/// The self cost is measured on one tick of this many. The counters `self-tsc` and `self-cycles` are multiplied
/// by it already.
pub const TICKS_A_MEASUREMENT: u64 = 64;

table! {
    /// The counters of one CPU since boot: `cpu.N.NAME` in ctl.
    pub enum Counter {
        /// Ticks sent to the CPU.
        Sent = "sent",
        /// Recorded kernel samples outside of interrupts, with interrupts on.
        IrqOn = "irq-on",
        /// Recorded kernel samples outside of interrupts, with interrupts off.
        IrqOff = "irq-off",
        /// Ticks that a handler has taken.
        Taken = "taken",
        /// Ticks that came while an earlier one was not taken yet.
        Coalesced = "coalesced",
        /// NMIs of the profiler that found no tick.
        Spurious = "spurious",
        /// NMIs that were not the profiler's.
        Foreign = "foreign",
        /// Filtered: user code.
        User = "user",
        /// Filtered: the idle task, not in an interrupt.
        Idle = "idle",
        /// Filtered: kernel code. Only a profile of user code alone, sampled from outside, has the counter.
        Kernel = "kernel",
        /// Lost: the ring was full.
        LostFull = "lost-full",
        /// Lost: an NMI inside a handler took the tick.
        LostNested = "lost-nested",
        /// Lost (trigger `published`): what the CPU had published changed while its stack was read, or a stack word
        /// could not be read.
        LostTorn = "lost-torn",
        /// Lost for the reader of copies: samples that were overwritten before it had copied them. Only the account of
        /// this reader has the counter.
        LostOvertaken = "lost-overtaken",
        /// Samples published in the ring.
        Recorded = "recorded",
        /// Recorded samples that were overwritten by newer ones.
        Overwritten = "overwritten",
        /// Recorded kernel samples inside an interrupt or exception.
        Interrupt = "interrupt",
        /// Recorded samples of user code.
        RecordedUser = "recorded-user",
        /// Recorded samples of the idle task.
        RecordedIdle = "recorded-idle",
        /// TSC ticks spent in the handler. Missing if the clock is too coarse to measure it.
        SelfTsc = "self-tsc",
        /// Cycles spent in the handler. Only where they are measured instead of TSC ticks.
        SelfCycles = "self-cycles",
        /// Cycles from the first handler run that was measured to the newest one, both at their beginning. Only with
        /// `self-cycles`.
        Cycles = "cycles",
        /// How many handler runs were measured for `self-tsc` or `self-cycles`. Missing if none can be measured.
        SelfSamples = "self-samples",
        /// The sum of the times that the sampler asked to sleep between ticks, in TSC ticks; the same for every CPU.
        SleepAsked = "sleep-asked",
        /// By how much all sleeps of the sampler together were longer than asked, in TSC ticks; the same for every CPU.
        SleepLate = "sleep-late",
        /// Ticks sent that the CPU has not taken yet.
        Pending = "pending",
        /// Ticks that the sampler has signalled again, because the CPU had not taken them yet.
        Resent = "resent",
        /// Samples that a reader has acknowledged, read as raw words, or exported; for the reader of copies, samples
        /// that it has copied.
        Delivered = "delivered",
        /// Samples that are in the ring.
        InRing = "in-ring",
        /// Words of the ring.
        RingWords = "ring-words",
        /// Position after the newest record.
        PositionIn = "position-in",
        /// Position of the oldest record.
        PositionOut = "position-out",
        /// Context switches on the CPU.
        ContextSwitches = "context-switches",
        /// Page faults on the CPU.
        PageFaults = "page-faults",
        /// Hardware interrupts on the CPU.
        Interrupts = "interrupts",
    }
}

table! {
    /// The counters of the meta stream: `meta.NAME` in ctl. They count records, not samples.
    pub enum MetaCounter {
        /// Position after the newest record.
        PositionIn = "position-in",
        /// Position of the oldest record.
        PositionOut = "position-out",
        /// Records that were lost because the ring was full.
        Lost = "lost",
        /// Records that were replaced by newer ones before they were read.
        Overwritten = "overwritten",
        /// Accounts of points that did not fit when they were written last; `flush` writes them again.
        Kept = "kept",
    }
}

table! {
    /// The counters of an event stream: `event.N.NAME` in ctl. They count records of hits.
    pub enum EventCounter {
        /// Position after the newest record.
        PositionIn = "position-in",
        /// Position of the oldest record.
        PositionOut = "position-out",
        /// Capacity of the ring in words.
        RingWords = "ring-words",
        /// Records that a reader has acknowledged, or that were exported.
        Delivered = "delivered",
        /// Records that were overwritten before a reader of copies had read them. Only in its account.
        LostOvertaken = "lost-overtaken",
    }
}

impl Counter {
    /// The losses: ticks that were taken and should have become a sample, but did not.
    pub const LOSSES: [Self; 4] = [Self::LostFull, Self::LostNested, Self::LostTorn, Self::LostOvertaken];

    /// Parts of the recorded samples, by what the CPU was doing.
    pub const RECORDED_KINDS: [Self; 5] =
        [Self::IrqOn, Self::IrqOff, Self::Interrupt, Self::RecordedUser, Self::RecordedIdle];

    /// Events of a CPU, which a record of [`Kind::Events`](crate::record::Kind::Events) counts by task too.
    pub const EVENTS: [Self; 3] = [Self::ContextSwitches, Self::PageFaults, Self::Interrupts];

    /// The counters in every batch line of a CPU, in the order of the line.
    pub const BATCH: [Self; 11] = [
        Self::Taken,
        Self::Coalesced,
        Self::User,
        Self::Idle,
        Self::Kernel,
        Self::LostFull,
        Self::LostNested,
        Self::LostTorn,
        Self::LostOvertaken,
        Self::Recorded,
        Self::Overwritten,
    ];

    /// Whether the counter is a present value, such as a position, and not a number of events since boot.
    pub fn is_level(self) -> bool {
        matches!(self, Self::Pending | Self::InRing | Self::RingWords | Self::PositionIn | Self::PositionOut)
    }

    /// Whether a counter of this name is a loss. A newer kernel may have losses that this version does not know.
    ///
    /// ```
    /// use kprof_format::counter::Counter;
    /// assert!(Counter::LOSSES.iter().all(|loss| Counter::names_a_loss(loss.name())));
    /// assert!(!Counter::names_a_loss("taken"));
    /// ```
    pub fn names_a_loss(name: &str) -> bool {
        name.starts_with("lost-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_one_name_and_is_found_by_it() {
        for (at, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(Counter::of(counter.name()), Some(counter));
            assert!(Counter::ALL[..at].iter().all(|other| other.name() != counter.name()), "{counter:?}");
        }
        assert_eq!(Counter::of("sent "), None);
    }

    #[test]
    fn the_losses_are_those_that_are_called_so() {
        for counter in Counter::ALL {
            assert_eq!(Counter::LOSSES.contains(&counter), Counter::names_a_loss(counter.name()), "{counter:?}");
        }
    }
}
