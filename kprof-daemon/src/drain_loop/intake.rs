//! The reading half of a round: one buffer, and a `Place` in each stream.
//!
//! ```text
//! buffer  │ carry │ cpu 1 │ cpu 2 │ carry │ cpu 3 │ meta │
//!         └──── piece ────┘ piece   └──── piece ──┘ piece
//! ```
//!
//! carry: the first bytes of a record of which the previous read had only a part; this read delivers the rest.
//!
//! In: a source. Out: pieces of the buffer, one for each stream that was read. Runs in: user process. Bounded: a
//! round ends after [`ROUND_BYTES`] even if more is available. The next round begins with another CPU.

use crate::ctl::Ctl;
use crate::error::Error;
use crate::source::{Access, Source, Stream};
use crate::system::System;
use kprof_format::record::MAX_WORDS;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most bytes read from one stream at once: the default size of a ring.
const READ_BYTES: usize = 256 * 1024;
/// The fewest bytes asked for in one read. A kernel that copies through a buffer of its own then has less to clear.
const MIN_READ_BYTES: usize = 32 * 1024;
/// Bytes read in one round over all streams. This bounds the memory.
const ROUND_BYTES: usize = 1024 * 1024;

/// How far one stream has been read.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Position after the last record that was parsed.
    pub position: Option<u64>,
    /// Everything below this position is on disk from an earlier session.
    pub on_disk: u64,
    /// Position and TSC of the first sample that is on disk from an earlier session.
    pub begins: Option<(u64, u64)>,
    /// Samples and events below this position were recorded before the session and are not written.
    pub older: u64,
    /// The beginning of a record whose end has not been read yet.
    pub carry: Vec<u8>,
    /// Position up to which records have been acknowledged to the kernel.
    pub acknowledged: u64,
}

/// What was read from one stream in a round: a range of the buffer.
#[derive(Debug)]
pub(super) struct Piece {
    pub stream: Stream,
    pub range: Range<usize>,
    /// How many bytes at the beginning of the range an earlier read had left over.
    pub carried: usize,
}

/// What a round has read.
#[derive(Debug)]
pub(super) struct Taken {
    /// Meta first, then the samples and then the events, by CPU.
    pub pieces: Vec<Piece>,
    /// How many bytes were read in this round; those left over from earlier reads do not count.
    pub brought: usize,
    /// Whether a read filled the buffer, so that more may be available.
    pub is_more: bool,
    /// The part of a ring that was read in this round, from 0 to 1: the largest value of all CPUs.
    pub fill: f64,
    /// The first error of this round. The pieces are valid nevertheless.
    pub failed: Option<Error>,
}

/// The reader of all streams.
#[derive(Debug)]
pub(super) struct Intake {
    pub buffer: Vec<u8>,
    pub places: BTreeMap<Stream, Place>,
    first_cpu: usize,
    read_bytes: usize,
    /// The upper limit of `read_bytes`.
    max_read_bytes: usize,
    /// Bytes read from CPUs after which a round ends.
    round_bytes: usize,
    /// Whether a read of this round may have left something.
    is_more: bool,
}

impl Intake {
    /// A reader whose rounds are several times smaller than a file of this length, because a file can only end between
    /// two rounds.
    pub fn new(max_file_bytes: Option<u64>) -> Self {
        let round_bytes = max_file_bytes.map_or(ROUND_BYTES, |max| ROUND_BYTES.min((max / 8) as usize));
        // A record of the maximum length must fit.
        let max_read_bytes = round_bytes.clamp(MAX_WORDS * 8, READ_BYTES);
        let buffer = vec![0; round_bytes + 2 * max_read_bytes];
        let places = BTreeMap::new();
        let read_bytes = max_read_bytes;
        Self { buffer, places, first_cpu: 0, read_bytes, max_read_bytes, round_bytes, is_more: false }
    }

    /// How far this stream has been read.
    pub fn place(&mut self, stream: Stream) -> &mut Place {
        self.places.entry(stream).or_default()
    }

    /// The streams of the CPUs.
    pub fn streams(&self, ctl: &Ctl) -> Vec<Stream> {
        let events = ctl.event_cpus().map(Stream::Event);
        ctl.cpus().map(|(cpu, _)| Stream::Cpu(cpu)).chain(events).collect()
    }

    /// Reads every stream of a CPU once, then the state into `ctl`, then the meta stream up to the position in that
    /// state.
    pub fn take<S: System>(&mut self, system: &mut S, source: &mut impl Source<S>, ctl: &mut Ctl) -> Taken {
        let (mut pieces, mut failed) = (Vec::new(), None);
        let mut used = 0;
        self.is_more = false;
        // Rings of a flight recorder are only read after it has been frozen or stopped, except for copies. The state is
        // read again here, because the recorder may have been started since.
        if ctl.overwrites()
            && let Err(error) = source.observe(system, ctl)
        {
            failed = Some(error);
        }
        let is_recorder = ctl.overwrites() && ctl.is_running() && source.access() != Access::Copies;
        let mut streams = self.streams(ctl);
        streams.retain(|stream| !(is_recorder && matches!(stream, Stream::Cpu(_))));
        // Each round begins with another stream: under a high rate a round may end before it reaches the last one.
        self.first_cpu += 1;
        let shift = self.first_cpu % streams.len().max(1);
        streams.rotate_left(shift);
        for stream in streams {
            if used > self.round_bytes {
                break;
            }
            match self.read(system, source, stream, used) {
                Ok(piece) => {
                    used = piece.range.end;
                    pieces.push(piece);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Err(error) = source.observe(system, ctl) {
            failed = failed.or(Some(error));
        }
        match self.read_meta(system, source, ctl, used) {
            Ok(piece) => pieces.push(piece),
            Err(error) => failed = failed.or(Some(error)),
        }
        let new = |piece: &Piece| piece.range.len() - piece.carried;
        let brought = pieces.iter().map(new).sum();
        // The next reads ask for twice as many bytes as the longest piece of this round has.
        let most = pieces.iter().map(new).max().unwrap_or(0);
        let is_more = used > self.round_bytes || self.is_more;
        self.read_bytes = (2 * most).next_power_of_two().max(MIN_READ_BYTES).min(self.max_read_bytes);
        let part = |piece: &Piece| match piece.stream {
            Stream::Meta => None,
            // A source without this counter has rings of unknown size.
            stream => Some((new(piece) / 8) as f64 / ctl.ring_words(stream).unwrap_or(0).max(1) as f64),
        };
        let fill = pieces.iter().filter_map(part).fold(0.0, f64::max).min(1.0);
        pieces.sort_by_key(|piece| piece.stream);
        Taken { pieces, brought, is_more, fill, failed }
    }

    /// Reads the stream into the buffer from `start` on: first the bytes that an earlier read had left over, then the
    /// new ones.
    fn read<S: System>(
        &mut self,
        system: &mut S,
        source: &mut impl Source<S>,
        stream: Stream,
        start: usize,
    ) -> Result<Piece, Error> {
        let carried = self.place(stream).carry.len();
        let held = start + carried;
        // A kernel may give less at once than there is, because it copies through a buffer of its own. More reads cost
        // less than more rounds.
        let (mut got, mut last) = (0, usize::MAX);
        while self.may_have_left(last) && self.max_read_bytes - got >= MAX_WORDS * 8 {
            let most = self.read_bytes.min(self.max_read_bytes - got);
            match self.read_at(system, source, stream, held + got, most) {
                Ok(bytes) => last = bytes,
                Err(error) if got == 0 => return Err(error),
                // What was read before is valid. The next round meets the error again.
                Err(_) => last = 0,
            }
            got += last;
        }
        self.is_more |= self.may_have_left(last);
        let place = self.places.entry(stream).or_default();
        self.buffer[start..held].copy_from_slice(&place.carry);
        place.carry.clear();
        Ok(Piece { stream, range: start..held + got, carried })
    }

    /// Whether there may be more after a read that has brought this many bytes: there was hardly room for another
    /// record, or the kernel may have a buffer that is as small as the smallest read.
    fn may_have_left(&self, bytes: usize) -> bool {
        bytes.saturating_add(MAX_WORDS * 8) > self.read_bytes.min(MIN_READ_BYTES)
    }

    /// One read of at most `most` bytes into the buffer at `start`.
    fn read_at<S: System>(
        &mut self,
        system: &mut S,
        source: &mut impl Source<S>,
        stream: Stream,
        start: usize,
        most: usize,
    ) -> Result<usize, Error> {
        let end = start + most;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        source.read(system, stream, &mut self.buffer[start..end])
    }

    /// Reads the meta stream up to where it ended when the kernel's state was read. These records have the names of all
    /// tasks in this round's samples.
    fn read_meta<S: System>(
        &mut self,
        system: &mut S,
        source: &mut impl Source<S>,
        ctl: &Ctl,
        start: usize,
    ) -> Result<Piece, Error> {
        let place = self.place(Stream::Meta);
        let begins = place.position.or(ctl.position_out(Stream::Meta)).unwrap_or(0);
        let goes_to = ctl.position_in(Stream::Meta);
        let is_whole = |held: usize| goes_to.is_some_and(|goes_to| begins + (held / 8) as u64 >= goes_to);
        if is_whole(place.carry.len()) {
            return Ok(Piece { stream: Stream::Meta, range: start..start, carried: 0 });
        }
        let mut piece = self.read(system, source, Stream::Meta, start)?;
        while !is_whole(piece.range.len()) && piece.range.len() < ROUND_BYTES {
            let more = self.read_at(system, source, Stream::Meta, piece.range.end, self.read_bytes)?;
            if more == 0 {
                break;
            }
            piece.range.end += more;
        }
        Ok(piece)
    }
}
