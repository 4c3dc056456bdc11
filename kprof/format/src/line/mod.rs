//! The `#` lines of the text form. Each line is defined once, here: writing and parsing follow from the definition.
//!
//! In: typed values, or the text of a line. Out: the other of the two. Runs in: any, a panic handler too; no
//! allocation. Never panics. A field that is missing or wrong is an error that names it; unknown fields are skipped.
//!
//! ```
//! use kprof_format::line::{Hex, Line, Mark, Name};
//!
//! let mark = Mark { tsc: Hex(0x1f), name: Name::Raw(b"boot done") };
//! assert_eq!(mark.to_string(), "# mark tsc=1f name=boot%20done");
//! let Ok(Line::Mark(parsed)) = Line::parse(" mark tsc=1f name=boot%20done") else { panic!() };
//! assert_eq!(parsed.name, mark.name);
//! let error = Line::parse(" mark name=x").unwrap_err();
//! assert_eq!(error.to_string(), "tsc= is missing");
//! ```

mod define;
mod field;
mod header;
mod name;
mod value;

pub use field::{Counters, Field, Fields, List};
pub use header::{Anchor, FIRST_LINE, Header, Profile, RECORDING_LINE, VERSION};
pub use name::Name;
pub use value::{BadLine, Checksum, Cpu, Hex, Range, Stream, Value};

use crate::fact::Fact;
use crate::lockup::{self, Reason};
use core::fmt::{self, Display, Formatter};
use define::lines;

/// The field of [`Batch::first_tick`].
pub const FIRST_TICK: &str = "first-tick";
/// The field of [`Batch::last_tick`].
pub const LAST_TICK: &str = "last-tick";

lines! {
    /// A batch begins.
    Batch<'a> = "batch" {
        /// The stream.
        cpu: Stream = "cpu",
        /// Position of the first record in words.
        from: u64 = "from",
        /// Position after the last record.
        to: u64 = "to",
        /// Tick number of the first sample; none in the meta stream and in event streams.
        first_tick: Option<u64> = FIRST_TICK,
        /// Tick number of the last sample; none in the meta stream and in event streams.
        last_tick: Option<u64> = LAST_TICK,
        /// Counters since boot.
        counters: Counters<'a> = "",
        /// 1 if samples of a running flight recorder are among them.
        snapshot: Option<u64> = "snapshot",
        /// The id of its boot, in the binary form. In the text form the checksum has it.
        boot: Option<Name<'a>> = "boot",
    }
    /// A batch is complete.
    End = "end" {
        /// The stream.
        cpu: Stream = "cpu",
        /// Position after the last record.
        to: u64 = "to",
        /// How many samples or events it has; none in the meta stream.
        samples: Option<u64> = "samples",
        /// The checksum of the batch ([`Crc32::of_batch`](crate::checksum::Crc32::of_batch)), over its bytes from the
        /// beginning of its first line to the beginning of this one. None where chunks or lines have their own.
        crc: Option<Checksum> = "crc",
    }
    /// All counters of a CPU.
    Account<'a> = "account" {
        /// The CPU.
        cpu: Cpu = "cpu",
        /// Its counters.
        counters: Counters<'a> = "",
    }
    /// Words that were not a record.
    Corrupt<'a> = "corrupt" {
        /// The stream.
        cpu: Stream = "cpu",
        /// Position of the first of them.
        from: u64 = "from",
        /// How many words.
        words: u64 = "words",
        /// What is wrong with them.
        reason: Name<'a> = "reason",
    }
    /// The name of a task.
    Task<'a> = "task" {
        /// Its id.
        id: Hex = "id",
        /// Its name.
        name: Name<'a> = "name",
    }
    /// A mark in time.
    Mark<'a> = "mark" {
        /// When the mark was set, in TSC ticks.
        tsc: Hex = "tsc",
        /// Its name.
        name: Name<'a> = "name",
    }
    /// A setting was changed.
    Setting<'a> = "setting" {
        /// When the setting was changed, in TSC ticks.
        tsc: Hex = "tsc",
        /// The ctl command that sets the new value.
        value: Name<'a> = "value",
    }
    /// Events of a task on one CPU since the last such line of this task and CPU, or since sampling started.
    Events<'a> = "events" {
        /// When the counts were taken, in TSC ticks.
        tsc: Hex = "tsc",
        /// The CPU.
        cpu: u64 = "cpu",
        /// How many events of each kind.
        counters: Counters<'a> = "",
        /// The name of the task.
        task: Name<'a> = "task",
    }
    /// What a point has counted on one CPU since the last such line of this point and CPU.
    PointAccount<'a> = "point-account" {
        /// When the counts were taken, in TSC ticks.
        tsc: Hex = "tsc",
        /// The CPU; none for the hits on CPUs that have no memory for the point.
        cpu: Option<u64> = "cpu",
        /// The sum of the weights of all hits, lost ones too.
        weight: u64 = "weight",
        /// The counters [`PointCounter`](crate::point::PointCounter), their parts
        /// [`PointPart`](crate::point::PointPart), and how many hits are in each bucket of the
        /// histogram ([`bucket_of_name`](crate::point::bucket_of_name)). Those that are 0 are left out.
        counters: Counters<'a> = "",
        /// What the weights are measured in: the name of a [`Unit`](crate::point::Unit).
        unit: Name<'a> = "unit",
        /// The name of the point.
        point: Name<'a> = "point",
    }
    /// A point: that it exists, and its state from now on.
    Point<'a> = "point" {
        /// When the line was made, in TSC ticks.
        tsc: Hex = "tsc",
        /// Its id.
        id: u64 = "id",
        /// What the weights are measured in: the name of a [`Unit`](crate::point::Unit).
        unit: Name<'a> = "unit",
        /// Its state: the text of a [`PointState`](crate::point::PointState).
        state: Name<'a> = "state",
        /// Its name.
        name: Name<'a> = "name",
    }
    /// What a task did with its time since the last such line of this task, or since this was first known.
    TaskTimes<'a> = "task-times" {
        /// When the time of the line ends, in TSC ticks.
        tsc: Hex = "tsc",
        /// When it begins.
        from: Hex = "from",
        /// The id of the task.
        id: Hex = "id",
        /// The ticks of each part of the time, by the names of [`part_names`](crate::waiting::part_names). Those that
        /// are 0 are left out. Their sum is the time of the line.
        counters: Counters<'a> = "",
        /// The name of the task.
        task: Name<'a> = "task",
    }
    /// What the first argument of the events of a point means.
    PointValues<'a> = "point-values" {
        /// When the line was made, in TSC ticks.
        tsc: Hex = "tsc",
        /// A word for each value from 0 on, with commas between them.
        values: Name<'a> = "values",
        /// The name of the point.
        point: Name<'a> = "point",
    }
    /// A CPU was locked up. See [`crate::lockup`].
    Lockup<'a> = "lockup" {
        /// When this was found, in TSC ticks.
        tsc: Hex = "tsc",
        /// The CPU.
        cpu: u64 = "cpu",
        /// Since when there was no sign of progress, in TSC ticks.
        from: Hex = "from",
        /// `soft` or `hard`: a [`Kind`](crate::lockup::Kind).
        kind: Name<'a> = "kind",
        /// What was seen: a [`Reason`].
        reason: Name<'a> = "reason",
        /// The counters [`LockupCounter`](crate::lockup::LockupCounter), and how many ticks found the CPU at which
        /// address ([`address_of_name`](crate::lockup::address_of_name)).
        counters: Counters<'a> = "",
        /// The task; none if it is not known.
        task: Option<Name<'a>> = "task",
    }
    /// The newest stack of a CPU when a lockup was found.
    LockupStack<'a> = "lockup-stack" {
        /// The field `tsc` of the lockup.
        of: Hex = "of",
        /// The CPU of the stack.
        cpu: u64 = "cpu",
        /// When the stack was sampled, in TSC ticks.
        tsc: Hex = "tsc",
        /// Addresses and markers in hex with commas between, innermost first.
        stack: Name<'a> = "stack",
        /// The task.
        task: Name<'a> = "task",
    }
    /// A code image.
    Image<'a> = "image" {
        /// When the image was recorded, in TSC ticks.
        tsc: Hex = "tsc",
        /// The address where it is loaded.
        load: Hex = "load",
        /// The address range of its code.
        text: Range = "text",
        /// Its build id in hex, or `-`.
        build_id: Name<'a> = "build-id",
        /// Its name.
        name: Name<'a> = "name",
    }
}

impl<'a> Line<'a> {
    /// Parses a line; `text` is everything after its `#`.
    ///
    /// # Errors
    /// [`BadLine`] says which field is missing or wrong.
    pub fn parse(text: &'a str) -> Result<Self, BadLine<'a>> {
        let text = text.trim();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        if let Some(line) = with_fields(word, rest) {
            return line;
        }
        Ok(match (word, Fact::of(word)) {
            (Profile::WORD, _) => Self::Profile(Profile::read(rest)?),
            (_, Some(Fact::Anchor)) => Self::Anchor(Anchor::read(rest)?),
            (_, Some(fact)) => Self::Header(Header { fact, value: rest }),
            (_, None) => Self::Unknown { word, rest },
        })
    }
}

impl<'a> PointAccount<'a> {
    /// The line of a record of [`Kind::PointAccount`](crate::record::Kind::PointAccount) with this TSC, CPU
    /// ([`NO_CPU`](crate::record::NO_CPU): none), weight and text.
    pub fn of_record(tsc: u64, cpu: u64, weight: u64, text: &'a str) -> Self {
        let (unit, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (point, counters) = rest.split_once(' ').unwrap_or((rest, ""));
        Self {
            tsc: Hex(tsc),
            cpu: (cpu != crate::record::NO_CPU).then_some(cpu),
            weight,
            counters: Counters::Text { fields: Fields(counters), known: Self::KEYS },
            unit: Name::Raw(unit.as_bytes()),
            point: Name::Raw(point.as_bytes()),
        }
    }
}

impl<'a> Point<'a> {
    /// The line of a record of [`Kind::Point`](crate::record::Kind::Point) with this TSC, id and text.
    pub fn of_record(tsc: u64, id: u64, text: &'a str) -> Self {
        let (unit, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (name, state) = rest.split_once(' ').unwrap_or((rest, ""));
        let [unit, state, name] = [unit, state, name].map(|text| Name::Raw(text.as_bytes()));
        Self { tsc: Hex(tsc), id, unit, state, name }
    }
}

impl<'a> TaskTimes<'a> {
    /// The line of a record of [`Kind::TaskTimes`](crate::record::Kind::TaskTimes) with these values and this text;
    /// `task` is the name of the task.
    pub fn of_record([id, from, tsc]: [u64; 3], text: &'a str, task: Name<'a>) -> Self {
        let counters = Counters::Text { fields: Fields(text), known: Self::KEYS };
        Self { tsc: Hex(tsc), from: Hex(from), id: Hex(id), counters, task }
    }
}

impl<'a> PointValues<'a> {
    /// The line of a record of [`Kind::PointValues`](crate::record::Kind::PointValues) with this TSC and text.
    pub fn of_record(tsc: u64, text: &'a str) -> Self {
        let (point, values) = text.split_once(' ').unwrap_or((text, ""));
        Self { tsc: Hex(tsc), values: Name::Raw(values.as_bytes()), point: Name::Raw(point.as_bytes()) }
    }
}

impl<'a> Lockup<'a> {
    /// The line of a record of [`Kind::Lockup`](crate::record::Kind::Lockup) with this TSC, CPU, beginning and text,
    /// and the name of its task. A reason that this version does not know is one of a soft lockup.
    pub fn of_record(tsc: u64, cpu: u64, from: u64, text: &'a str, task: Option<Name<'a>>) -> Self {
        let (reason, counters) = text.split_once(' ').unwrap_or((text, ""));
        let kind = Reason::of(reason).map_or(lockup::Kind::Soft, Reason::kind);
        Self {
            tsc: Hex(tsc),
            cpu,
            from: Hex(from),
            kind: Name::Raw(kind.name().as_bytes()),
            reason: Name::Raw(reason.as_bytes()),
            counters: Counters::Text { fields: Fields(counters), known: Self::KEYS },
            task,
        }
    }
}

impl<'a> LockupStack<'a> {
    /// The line of a record of [`Kind::LockupStack`](crate::record::Kind::LockupStack) with this CPU, TSC of the lockup
    /// and text, and the name of its task. `None` if the text does not begin with a TSC.
    pub fn of_record(cpu: u64, of: u64, text: &'a str, task: Name<'a>) -> Option<Self> {
        let (tsc, stack) = text.split_once(' ')?;
        let tsc = crate::text::parse_hex(tsc.as_bytes())?;
        Some(Self { of: Hex(of), cpu, tsc: Hex(tsc), stack: Name::Raw(stack.as_bytes()), task })
    }
}

impl<'a> Events<'a> {
    /// The counters in the text of a record of [`Kind::Events`](crate::record::Kind::Events). A name that the line has
    /// for another field is left out.
    pub fn counters_of(text: &'a str) -> Counters<'a> {
        Counters::Text { fields: Fields(text), known: Self::KEYS }
    }
}
