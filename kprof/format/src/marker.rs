//! Markers: facts, entries and ends that are recorded between the addresses of a stack.
//!
//! A marker is an address in the last page, `0xfffffffffffff000 | kind << 8 | low`, where no code can be. In: a word of
//! a sample. Out: the marker that it is, or none. Runs in: any. Never guesses: a marker of an unknown kind is returned
//! as [`Marker::Unknown`].

/// The first address of the page that is used for markers.
pub const MARKER_PAGE: u64 = 0xffff_ffff_ffff_f000;

/// The first address of a sample of the trigger `published`: no instruction is known, and the host shows `[running]` as
/// the innermost frame. No code can be at this address.
pub const PUBLISHED_LEAF: u64 = MARKER_PAGE - 2;

/// Why a stack was truncated (low byte of [`Marker::Truncated`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TruncationReason {
    /// The frame limit was reached.
    Depth = 1,
    /// The next frame pointer lies outside the stacks in use by this CPU.
    Range = 2,
    /// The next frame pointer is not a multiple of 8.
    Alignment = 3,
    /// The next frame pointer does not lie above the present one.
    Loop = 4,
    /// The return address is not kernel text.
    NotText = 5,
    /// An entry stub for which the kernel did not tell where the interrupted registers are.
    Entry = 6,
    /// Code that the kernel's unwind table does not describe, or whose frame pointer is not known.
    NoRule = 7,
}

impl TruncationReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Depth, Self::Range, Self::Alignment, Self::Loop, Self::NotText, Self::Entry, Self::NoRule];

    /// The reason with this number, if there is one.
    #[inline]
    pub fn from_low(low: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == low)
    }
}

/// The facts of a sample (low byte of marker kind 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Facts(pub u8);

impl Facts {
    /// No fact is set.
    pub const NONE: Self = Self(0);
    /// Interrupts were off in the sampled code.
    pub const INTERRUPTS_OFF: u8 = 1 << 0;
    /// The running task was the idle one of its CPU. Samples with an interrupt or exception in their stack are not idle
    /// time; those of an NMI do not have this fact.
    pub const IDLE: u8 = 1 << 1;
    /// The sample was made from what the CPU had published (trigger `published`), not by interrupting the CPU.
    pub const PUBLISHED: u8 = 1 << 2;

    /// Whether all bits of `mask` are set.
    #[inline]
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// A word in the last page, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Marker {
    /// Kind 0: facts of the sample, directly after its first address; omitted if no fact is set.
    Facts(Facts),
    /// Kind 1: an interrupt entered here; its vector. Vector 0, which no interrupt has, stands for an entry of unknown
    /// kind.
    Interrupt(u8),
    /// Kind 2: an exception entered here; its vector.
    Exception(u8),
    /// Kind 3: a system call entered here.
    Syscall,
    /// Kind 4: the stack is truncated here. `Err` holds a reason that this version does not know.
    Truncated(Result<TruncationReason, u8>),
    /// Kind 5: user code begins.
    User,
    /// Kind 6: the next address is a candidate caller, for the host to decide.
    Candidate,
    /// Any other kind or low byte.
    Unknown {
        /// Bits 8 to 11.
        kind: u8,
        /// Bits 0 to 7.
        low: u8,
    },
}

impl Marker {
    /// The marker that `word` is, or `None` for an ordinary address.
    ///
    /// ```
    /// use kprof_format::marker::Marker;
    /// assert_eq!(Marker::decode(0xffff_ffff_ffff_f121), Some(Marker::Interrupt(33)));
    /// assert_eq!(Marker::decode(0xffff_ffff_8020_1000), None);
    /// ```
    #[inline]
    pub fn decode(word: u64) -> Option<Self> {
        if word < MARKER_PAGE {
            return None;
        }
        let (kind, low) = ((word >> 8 & 0xf) as u8, word as u8);
        Some(match (kind, low) {
            (0, low) => Self::Facts(Facts(low)),
            (1, vector) => Self::Interrupt(vector),
            (2, vector) => Self::Exception(vector),
            (3, 0) => Self::Syscall,
            (4, low) => Self::Truncated(TruncationReason::from_low(low).ok_or(low)),
            (5, 0) => Self::User,
            (6, 0) => Self::Candidate,
            (kind, low) => Self::Unknown { kind, low },
        })
    }

    /// The word that encodes this marker.
    #[inline]
    pub const fn encode(self) -> u64 {
        let (kind, low) = match self {
            Self::Facts(facts) => (0, facts.0),
            Self::Interrupt(vector) => (1, vector),
            Self::Exception(vector) => (2, vector),
            Self::Syscall => (3, 0),
            Self::Truncated(Ok(reason)) => (4, reason as u8),
            Self::Truncated(Err(low)) => (4, low),
            Self::User => (5, 0),
            Self::Candidate => (6, 0),
            Self::Unknown { kind, low } => (kind & 0xf, low),
        };
        MARKER_PAGE | (kind as u64) << 8 | low as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_last_page_survives_decode_and_encode() {
        for word in MARKER_PAGE..=u64::MAX {
            let marker = Marker::decode(word).expect("the whole page is markers");
            assert_eq!(marker.encode(), word);
        }
        assert_eq!(Marker::decode(MARKER_PAGE - 1), None);
    }
}
