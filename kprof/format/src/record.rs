//! Framed records: the words in a ring, which are also the words that a reader of the device stream gets.
//!
//! ```text
//! word 0   0x6b70726f ("kpro") << 32 | version << 24 | kind << 16 | length in words, this word included
//! word 1   position: where this record begins in its stream, in words since boot
//! then     the other words of its header: SampleHeader, EventHeader or MetaHeader, in the order of their fields
//! then     sample: callers and markers, innermost first
//!          event: arguments, then addresses and markers, innermost first: [`crate::event`]
//!          meta: the text, zero padded to words
//! ```
//!
//! Kernel, daemon and tests agree on the words of a header because each header is one type: its fields are its words,
//! in order. A writer must give every field, so the compiler finds the writers of a header that gets one more word; a
//! reader asks for a field by its name. No other file has the index of a word.
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
/// The greatest length of a record in words.
pub const MAX_WORDS: usize = 1024;
/// The index of a record's position among its words, whatever the kind of the record is.
pub const POSITION: usize = 1;

/// The words with which each record of a kind begins: word 0, then the fields.
macro_rules! headers {
    ($($(#[$doc:meta])* pub struct $type:ident { $($(#[$each:meta])* $field:ident,)* })*) => {$(
        $(#[$doc])*
        ///
        /// The fields are the words after word 0, in this order.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type<T = u64> { $($(#[$each])* pub $field: T,)* }

        impl $type {
            /// The number of words, word 0 included.
            pub const WORDS: usize = [0 $(, Self::AT.$field)*].len();

            /// The index of each word in the record.
            pub const AT: $type<usize> = {
                let mut last = 0;
                $(last += 1; let $field = last;)*
                let _ = last;
                $type { $($field),* }
            };

            /// The words. Word 0 is 0: it is known when the record is complete, and written last.
            #[inline(always)]
            pub const fn words(self) -> [u64; Self::WORDS] {
                [0 $(, self.$field)*]
            }

            /// The places of these words, for a writer that has each word at another time. A writer that takes the
            /// fields apart without `..` cannot miss one.
            #[inline(always)]
            pub const fn places<T>(words: &[T; Self::WORDS]) -> $type<&T> {
                let [_ $(, $field)*] = words;
                $type { $($field),* }
            }

            /// Reads the words of a record, given each word by its index.
            #[inline(always)]
            pub fn read(word: impl Fn(usize) -> u64) -> Self {
                $type { $($field: word(Self::AT.$field)),* }
            }

            /// All words of a whole record: `first`, these, and `after`.
            fn whole(self, first: u64, after: &[u64]) -> impl Iterator<Item = u64> {
                core::iter::once(first).chain(self.words().into_iter().skip(1)).chain(after.iter().copied())
            }
        }
    )*};
}

headers! {
    /// The header of a sample, up to its first address. Callers and markers follow.
    pub struct SampleHeader {
        /// Where the record begins in its stream, in words since boot.
        position,
        /// The number of the tick among those of the CPU.
        tick,
        /// When the sample was taken, in TSC ticks.
        tsc,
        /// The task id.
        task,
        /// The interrupted instruction.
        address,
    }

    /// The header of a recorded hit. Its arguments follow, then at least one address.
    pub struct EventHeader {
        /// Where the record begins in its stream, in words since boot.
        position,
        /// The id of the point, and the number of arguments in bits 32 and up.
        point,
        /// When the point was hit, in TSC ticks.
        tsc,
        /// The task id.
        task,
        /// The weight of the hit.
        weight,
        /// The state of the point, which says how the hit was chosen: [`crate::point::PointState::encode`].
        state,
    }

    /// The header of a record of the meta stream. Its text follows.
    pub struct MetaHeader {
        /// Where the record begins in its stream, in words since boot.
        position,
        /// Always 0.
        tick,
        /// When the record was written, in TSC ticks.
        tsc,
        /// The first value; [`Kind`] says what it means.
        first,
        /// The second value.
        second,
        /// The third value.
        third,
        /// The length of the text in bytes.
        text_bytes,
    }

    /// The header of a record in the format of Redox's own profiler. The callers follow.
    pub struct RawHeader {
        /// The interrupted instruction.
        address,
        /// When the sample was taken, in TSC ticks.
        tsc,
        /// The task id.
        task,
    }
}

/// Whole records, as a reader gets them.
macro_rules! framed {
    ($($type:ident)*) => {$(
        const _: () = assert!($type::AT.position == POSITION, "the position has the same index in every record");

        impl $type {
            /// All words of a record: these, then `after`.
            pub fn record(self, kind: Kind, after: &[u64]) -> impl Iterator<Item = u64> {
                self.whole(Header { kind, words: (Self::WORDS + after.len()) as u16 }.encode(), after)
            }
        }
    )*};
}

framed!(SampleHeader EventHeader MetaHeader);

impl RawHeader {
    /// All words of a record: these, then `callers`.
    pub fn record(self, callers: &[u64]) -> impl Iterator<Item = u64> {
        self.whole(REDOX_MAGIC | (Self::WORDS + callers.len()) as u64, callers)
    }
}

impl MetaHeader {
    /// The three values.
    pub const fn values(self) -> [u64; 3] {
        [self.first, self.second, self.third]
    }
}

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

    /// Whether records of this kind are those of the meta stream: with a [`MetaHeader`] and a text.
    #[inline]
    pub const fn is_meta(self) -> bool {
        self as u8 >= Self::TaskName as u8
    }

    /// The least number of words of a record of this kind.
    #[inline]
    const fn least_words(self) -> usize {
        if self.is_meta() {
            MetaHeader::WORDS
        } else if self as u8 == Self::Event as u8 {
            EventHeader::WORDS + 1
        } else {
            SampleHeader::WORDS
        }
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
        if (words as usize) < kind.least_words() || words as usize > MAX_WORDS {
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
    fn each_header_reads_the_words_that_it_has_written() {
        let sample = SampleHeader { position: 1, tick: 2, tsc: 3, task: 4, address: 5 };
        assert_eq!(SampleHeader::places(&sample.words()).task, &4);
        assert_eq!(SampleHeader::read(|at| sample.words()[at]), sample);
        let event = EventHeader { position: 1, point: 2, tsc: 3, task: 4, weight: 5, state: 6 };
        assert_eq!(EventHeader::read(|at| event.words()[at]), event);
        let meta = MetaHeader { position: 1, tick: 2, tsc: 3, first: 4, second: 5, third: 6, text_bytes: 7 };
        assert_eq!(MetaHeader::read(|at| meta.words()[at]), meta);
        let raw = RawHeader { address: 1, tsc: 2, task: 3 };
        assert!(raw.record(&[4]).eq([0xfedf_ac05, 1, 2, 3, 4]));
    }

    #[test]
    fn no_record_is_shorter_than_its_header() {
        for kind in Kind::ALL {
            let decode = |words| Header::decode(Header { kind, words }.encode());
            let least = match kind {
                Kind::Sample | Kind::SnapshotSample => SampleHeader::WORDS,
                Kind::Event => EventHeader::WORDS + 1,
                _ => MetaHeader::WORDS,
            } as u16;
            assert_eq!((decode(least - 1), decode(least).is_ok()), (Err(BadHeader::Length(least - 1)), true));
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
