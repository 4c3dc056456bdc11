//! Points: the unit of their weights, their state, their histogram by powers of two, and their account.
//!
//! In: weights, and the names of a ctl command or of a line. Out: buckets, units, states. Runs in: any, interrupt
//! handlers too. Never allocates.
//!
//! ```text
//! # point-account tsc=1f cpu=1 weight=9100 filtered=3 log2-12=2 log2-13=1 unit=ns point=block.read
//! ```
//!
//! Each line has what was counted since the line before it. For every point, the sum over all its lines is exact:
//! `hits = recorded + filtered + lost`, and `weight` is the sum of the weights of all hits. A hit on a CPU that has no
//! memory for the point is lost, has no bucket, and is in a line without `cpu`. A hit whose record was lost has a
//! bucket.

use crate::table::table;
use crate::text::decimal;
use core::fmt;

table! {
    /// What the weight of a point's hit is measured in.
    pub enum Unit {
        /// Nanoseconds.
        Nanoseconds = "ns",
        /// Bytes.
        Bytes = "bytes",
        /// Neither: something that is counted.
        Count = "count",
    }
}

/// What becomes of the hits of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointState {
    /// Nothing: they are not counted.
    Off,
    /// Number, total weight and histogram are counted.
    Count,
    /// They are counted, and one of this many has a record with its stack.
    Every(u64),
    /// They are counted, and have a record by chance: on average one in so much weight (Poisson).
    ByWeight(u64),
    /// They are counted, and each has a record with its stack.
    Record,
}

/// The greatest number of hits, and the greatest weight, of [`PointState::Every`] and [`PointState::ByWeight`].
pub const MAX_PERIOD: u64 = (1 << EVERY) - 1;

/// The shift of the number that says what the other bits of an encoded state are. 0: [`OFF`], [`COUNT`] or [`RECORD`].
const EVERY: u32 = 56;
const OFF: u64 = 0;
const COUNT: u64 = 1;
const RECORD: u64 = 2;

impl PointState {
    /// Whether hits get a record.
    #[inline]
    pub const fn records(self) -> bool {
        !matches!(self, Self::Off | Self::Count)
    }

    /// The state as a word. It is 0 only for `Off`, and never 2^64 - 1.
    #[inline]
    pub const fn encode(self) -> u64 {
        match self {
            Self::Off => OFF,
            Self::Count => COUNT,
            Self::Record => RECORD,
            Self::Every(hits) => 1 << EVERY | hits & MAX_PERIOD,
            Self::ByWeight(weight) => 2 << EVERY | weight & MAX_PERIOD,
        }
    }

    /// The state of a word. `None` if it is the word of no state.
    #[inline]
    pub const fn decode(word: u64) -> Option<Self> {
        match (word >> EVERY, word & MAX_PERIOD) {
            (0, OFF) => Some(Self::Off),
            (0, COUNT) => Some(Self::Count),
            (0, RECORD) => Some(Self::Record),
            (1, hits) if hits > 0 => Some(Self::Every(hits)),
            (2, weight) if weight > 0 => Some(Self::ByWeight(weight)),
            _ => None,
        }
    }

    /// The state with this text.
    ///
    /// ```
    /// use kprof_format::point::{MAX_PERIOD, PointState};
    /// assert_eq!(PointState::of("every 10"), Some(PointState::Every(10)));
    /// assert_eq!(PointState::of("by-weight 65536").unwrap().to_string(), "by-weight 65536");
    /// assert_eq!((PointState::of("every 0"), PointState::of("on")), (None, None));
    /// assert_eq!(PointState::of(&format!("every {}", MAX_PERIOD + 1)), None);
    /// ```
    pub fn of(text: &str) -> Option<Self> {
        let period = |text: &str| decimal(text.trim_start()).filter(|period| (1..=MAX_PERIOD).contains(period));
        match text.split_once(' ') {
            None if text == "off" => Some(Self::Off),
            None if text == "count" => Some(Self::Count),
            None if text == "record" => Some(Self::Record),
            Some(("every", hits)) => period(hits).map(Self::Every),
            Some(("by-weight", weight)) => period(weight).map(Self::ByWeight),
            _ => None,
        }
    }
}

impl fmt::Display for PointState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Count => f.write_str("count"),
            Self::Every(hits) => write!(f, "every {hits}"),
            Self::ByWeight(weight) => write!(f, "by-weight {weight}"),
            Self::Record => f.write_str("record"),
        }
    }
}

table! {
    /// A counter of a point's account.
    pub enum PointCounter {
        /// Hits with a record.
        Recorded = "recorded",
        /// Hits that were counted, and for which no record was asked.
        Filtered = "filtered",
        /// Hits that could not be counted by weight, or whose record was lost.
        Lost = "lost",
    }
}

table! {
    /// What an account says besides its counters and its total weight: parts of them.
    pub enum PointPart {
        /// The filtered hits for which a record was asked, and that were not chosen.
        Unsampled = "unsampled",
        /// The weight of all hits for which a record was asked: recorded, unsampled, or lost.
        AskedWeight = "asked-weight",
        /// The weight of the hits on CPUs with memory whose record was lost.
        LostWeight = "lost-weight",
    }
}

/// The key of a point in ctl is this prefix and its name.
pub const CTL_PREFIX: &str = "point.";
/// The number of buckets of a histogram.
pub const BUCKETS: usize = 64;
/// The name of a bucket is this prefix and its number: the binary logarithm of the weights in it, rounded down.
pub const BUCKET_PREFIX: &str = "log2-";
/// The longest name of a point in bytes.
pub const MAX_POINT_NAME: usize = 64;

/// The bucket of a weight: its binary logarithm, rounded down. The weight 0 is in bucket 0 too.
///
/// ```
/// use kprof_format::point::{bucket, weights};
/// assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(bucket), [0, 0, 1, 1, 2, 63]);
/// assert_eq!((weights(0), weights(1), weights(63)), ((0, 1), (2, 3), (1 << 63, u64::MAX)));
/// ```
#[inline(always)]
pub const fn bucket(weight: u64) -> usize {
    (weight | 1).ilog2() as usize
}

/// The least and the greatest weight of a bucket.
pub const fn weights(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 1),
        1..BUCKETS => (1 << bucket, u64::MAX >> (BUCKETS - 1 - bucket)),
        _ => (u64::MAX, u64::MAX),
    }
}

/// The bucket with this name.
///
/// ```
/// use kprof_format::point::bucket_of_name;
/// assert_eq!((bucket_of_name("log2-12"), bucket_of_name("log2-64"), bucket_of_name("lost")), (Some(12), None, None));
/// ```
pub fn bucket_of_name(name: &str) -> Option<usize> {
    decimal(name.strip_prefix(BUCKET_PREFIX)?).filter(|bucket| *bucket < BUCKETS)
}

/// Whether this can be the name of a point: 1 to 64 visible ASCII characters, none of them `*`.
///
/// ```
/// use kprof_format::point::is_name;
/// assert!(is_name("block.read") && !is_name("block read") && !is_name("") && !is_name("*"));
/// ```
pub const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_graphic() || bytes[at] == b'*' {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty() && bytes.len() <= MAX_POINT_NAME
}

/// Points by name: one name, or all names that begin so, if a `*` ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Points<'a>(&'a str);

impl<'a> Points<'a> {
    /// The points that this text means. `None` if it is neither a name nor the beginning of one with `*` after it.
    ///
    /// ```
    /// use kprof_format::point::Points;
    /// let block = Points::of("block.*").unwrap();
    /// assert!(block.contains("block.read") && !block.contains("blockade"));
    /// assert!(Points::of("*").unwrap().contains("block.read"));
    /// assert_eq!((Points::of("a*b"), Points::of("")), (None, None));
    /// ```
    pub fn of(text: &'a str) -> Option<Self> {
        let (beginning, is_beginning) = text.strip_suffix('*').map_or((text, false), |beginning| (beginning, true));
        (is_name(beginning) || is_beginning && beginning.is_empty()).then_some(Self(text))
    }

    /// Whether the point with this name is among them.
    pub fn contains(self, name: &str) -> bool {
        self.0.strip_suffix('*').map_or(self.0 == name, |beginning| name.starts_with(beginning))
    }

    /// The text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}
