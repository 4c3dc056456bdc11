//! Framed records: the words in a ring, which are also the words that a reader of the device stream gets.
//!
//! ```text
//! word 0   0x6b70726f ("kpro") << 32 | version << 24 | kind << 16 | length in words, this word included
//! word 1   position: where this record begins in its stream, in words since boot
//! word 2   tick number of the CPU (0 in the meta stream)
//! word 3   TSC
//! sample:  word 4 task id, word 5 first address, then callers and markers, innermost first
//! event:   word 2 the point, word 4 task id, word 5 weight ...: [`crate::event`]
//! others:  words 4, 5, 6 three values, word 7 length of the text in bytes, then the text, zero padded to words
//! ```
//!
//! In: words. Out: a header, or the reason why the word is not one. Runs in: any, NMI included. Never trusts a length.

use crate::counter::Counter;

/// The first word of a record in the format of Redox's own profiler (protocol 0). The lowest byte is the length in
/// words.
pub const REDOX_MAGIC: u64 = 0xfedf_ac00;
/// The upper half of the first word of every record: "kpro".
pub const MAGIC: u32 = 0x6b70_726f;
/// The version of the layout written by this crate.
pub const VERSION: u8 = 1;
/// Words before the first address of a sample.
pub const SAMPLE_HEADER_WORDS: usize = 5;
/// Words before the arguments of an event.
pub const EVENT_HEADER_WORDS: usize = 7;
/// Words before the text of any other record.
pub const META_HEADER_WORDS: usize = 8;
/// The greatest length of a record in words.
pub const MAX_WORDS: usize = 1024;

/// An enum of numbered kinds, with the list of all of them.
macro_rules! kinds {
    ($(#[$doc:meta])* pub enum $type:ident { $($(#[$each:meta])* $name:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $type { $($(#[$each])* $name = $number,)* }

        impl $type {
            /// All kinds of this version.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];
        }
    };
}

kinds! {
    /// The kind of a record (bits 16 to 23 of word 0).
    pub enum Kind {
        /// One sample of one CPU.
        Sample = 1,
        /// One sample of one CPU, read from a running flight recorder. The sample stays in the ring, and does not count
        /// as delivered.
        SnapshotSample = 2,
        /// One hit of a point, with its stack: [`crate::event`].
        Event = 3,
        /// Meta: the name of task `value[0]`; the text is the name.
        TaskName = 16,
        /// Meta: a code image: load address, text start, text end; the text is `NAME BUILD-ID`, the id in hex or `-`.
        Image = 17,
        /// Meta: `mark NAME`; the text is the name.
        Mark = 18,
        /// Meta: a setting changed; the text is the ctl command that sets it.
        Setting = 19,
        /// Meta: events since the last such record, in task `value[0]` ([`OTHER_TASKS`]: in several) on CPU
        /// `value[1]`; the text is `context-switches=N page-faults=N interrupts=N`.
        Events = 20,
        /// Meta: what the point with id `value[0]` has counted on CPU `value[1]` since the last such record, with the
        /// total weight `value[2]` ([`NO_CPU`]: on CPUs that have no memory for it); the text is `UNIT NAME COUNTERS`,
        /// the counters as `lost=N log2-12=N`.
        PointAccount = 21,
        /// Meta: the point with id `value[0]` exists and has this state; the text is `UNIT NAME STATE`.
        Point = 22,
        /// Meta: what the task `value[0]` did with its time since the TSC `value[1]`, up to the TSC `value[2]`; the
        /// text is the ticks of each part as `running=N blocked.pipe=N`: [`crate::waiting`].
        TaskTimes = 23,
        /// Meta: what the first argument of the hits of the point with id `value[0]` means; the text is
        /// `NAME WORD,WORD,...`, with a word for each value from 0 on.
        PointValues = 24,
        /// Meta: CPU `value[1]` was locked up in task `value[0]` ([`NO_TASK`]: not known) since the TSC `value[2]`; the
        /// text is `REASON COUNTERS`, the counters as `ticks=N at-ADDRESS=N`: [`crate::lockup`].
        Lockup = 25,
        /// Meta: the newest stack of CPU `value[1]`, in task `value[0]`, when the lockup was found whose record has the
        /// TSC `value[2]`; the text is the TSC of the stack, a space, and its addresses: [`crate::lockup`].
        LockupStack = 26,
    }
}

/// The names of events, in the text of a record of [`Kind::Events`] and in ctl.
pub const EVENT_NAMES: [&str; 3] =
    [Counter::ContextSwitches.name(), Counter::PageFaults.name(), Counter::Interrupts.name()];
/// Stands for a task that is not known in a record of a lockup.
pub const NO_TASK: u64 = u64::MAX;
/// Stands for a CPU in a record of hits on CPUs that have no memory for the point.
pub const NO_CPU: u64 = u64::MAX;
/// Stands for a task id in a record of events that are counted for several tasks together.
pub const OTHER_TASKS: u64 = u64::MAX;
/// The name that is shown for [`OTHER_TASKS`].
pub const OTHER_TASKS_NAME: &[u8] = b"[other]";

/// Name and build id from the text of a record of [`Kind::Image`], `NAME BUILD-ID`. A text without a space is only a
/// name; the id is `-` if there is none.
///
/// ```
/// use kprof_format::record::image_name_and_id;
/// assert_eq!(image_name_and_id(b"my module 0af3"), (&b"my module"[..], &b"0af3"[..]));
/// assert_eq!(image_name_and_id(b"kernel "), (&b"kernel"[..], &b"-"[..]));
/// assert_eq!(image_name_and_id(b""), (&b""[..], &b"-"[..]));
/// ```
pub fn image_name_and_id(text: &[u8]) -> (&[u8], &[u8]) {
    let space = text.iter().rposition(|byte| *byte == b' ').unwrap_or(text.len());
    let (name, id) = text.split_at(space);
    (name, id.get(1..).filter(|id| !id.is_empty()).unwrap_or(b"-"))
}

impl Kind {
    /// The kind with this number. Samples are tested first, because nearly all records are samples.
    #[inline]
    fn of(number: u8) -> Option<Self> {
        if number == Self::Sample as u8 {
            return Some(Self::Sample);
        }
        Self::ALL.into_iter().find(|known| *known as u8 == number)
    }
}

/// The decoded and checked first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the record.
    pub kind: Kind,
    /// The length of the record in words, header included.
    pub words: u16,
}

/// Why a word is not the first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// The upper half is not [`MAGIC`].
    Magic(u32),
    /// Written by a newer version of this crate.
    Version(u8),
    /// A kind that this version does not know. The record can be skipped by its length.
    Kind {
        /// The unknown number.
        kind: u8,
        /// Length in words.
        words: u16,
    },
    /// A length that no record of this kind can have.
    Length(u16),
}

impl Header {
    /// Decodes the first word of a record.
    ///
    /// # Errors
    /// [`BadHeader`] says which part is invalid.
    #[inline]
    pub fn decode(word: u64) -> Result<Self, BadHeader> {
        let magic = (word >> 32) as u32;
        if magic != MAGIC {
            return Err(BadHeader::Magic(magic));
        }
        let (version, kind, words) = ((word >> 24) as u8, (word >> 16) as u8, word as u16);
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let Some(kind) = Kind::of(kind) else { return Err(BadHeader::Kind { kind, words }) };
        let least = match kind {
            Kind::Sample | Kind::SnapshotSample => SAMPLE_HEADER_WORDS + 1,
            Kind::Event => EVENT_HEADER_WORDS + 1,
            Kind::TaskName
            | Kind::Image
            | Kind::Mark
            | Kind::Setting
            | Kind::Events
            | Kind::PointAccount
            | Kind::Point
            | Kind::TaskTimes
            | Kind::PointValues
            | Kind::Lockup
            | Kind::LockupStack => META_HEADER_WORDS,
        };
        if (words as usize) < least || words as usize > MAX_WORDS {
            return Err(BadHeader::Length(words));
        }
        Ok(Self { kind, words })
    }

    /// The first word of a record.
    #[inline]
    pub const fn encode(self) -> u64 {
        (MAGIC as u64) << 32 | (VERSION as u64) << 24 | (self.kind as u64) << 16 | self.words as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_encode_and_decode() {
        for kind in Kind::ALL {
            let header = Header { kind, words: 9 };
            assert_eq!(Header::decode(header.encode()), Ok(header));
        }
    }

    #[test]
    fn every_flipped_byte_of_a_header_is_noticed_or_changes_only_kind_or_length() {
        let good = Header { kind: Kind::Sample, words: 9 }.encode();
        for byte in 0..8 {
            match Header::decode(good ^ 0xff << (8 * byte)) {
                Err(_) => {}
                Ok(header) => assert!(byte < 3, "byte {byte} gave {header:?}"),
            }
        }
    }
}
