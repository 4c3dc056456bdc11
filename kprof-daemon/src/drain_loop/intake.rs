//! The reading half of a round: one buffer, a place in each stream.
//!
//! ```text
//! buffer  │ carry │ cpu 1 │ cpu 2 │ carry │ cpu 3 │ meta │      carry: the beginning of a record whose end came
//!         └──── piece ────┘ piece   └──── piece ──┘ piece        with this read
//! ```
//!
//! In: a source. Out: pieces of the buffer, one for each stream. Runs in: user process. Bounded: a round ends after
//! [`ROUND_BYTES`], whatever there is; the next one begins with another CPU.

use crate::ctl::{Counters, Ctl};
use crate::error::Error;
use crate::source::{Source, Stream};
use crate::system::System;
use kprof_format::record::MAX_WORDS;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes read from one stream at once: the default size of a ring.
const READ_BYTES: usize = 256 * 1024;
/// Bytes read at once while little is there: a kernel that copies through a buffer of its own has less to clear.
const MIN_READ_BYTES: usize = 32 * 1024;
/// Bytes read in one round, over all streams; what bounds the memory.
const ROUND_BYTES: usize = 1024 * 1024;

/// How far one stream has been read.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Position after the last record that was taken apart.
    pub position: Option<u64>,
    /// Everything below is on disk from an earlier session.
    pub on_disk: u64,
    /// The beginning of a record whose end has not been read yet.
    pub carry: Vec<u8>,
    /// Position up to which the kernel has been told.
    pub acknowledged: u64,
}

/// What one stream gave in a round: a part of the buffer.
#[derive(Debug)]
pub(super) struct Piece {
    pub stream: Stream,
    pub range: Range<usize>,
    /// Bytes at its beginning that an earlier read had left over.
    pub carried: usize,
}

/// What a round has read.
#[derive(Debug)]
pub(super) struct Taken {
    /// Meta first, then the CPUs by number.
    pub pieces: Vec<Piece>,
    /// Bytes that were new.
    pub brought: usize,
    /// Whether a read was filled, so that more may be there.
    pub is_more: bool,
    /// What went wrong on the way; the pieces are good all the same.
    pub failed: Option<Error>,
}

/// The reader of all streams.
#[derive(Debug)]
pub(super) struct Intake {
    pub buffer: Vec<u8>,
    pub places: BTreeMap<Stream, Place>,
    first_cpu: usize,
    read_bytes: usize,
    /// The most of it.
    max_read_bytes: usize,
    /// Bytes read from CPUs after which a round ends.
    round_bytes: usize,
}

impl Intake {
    /// A reader whose rounds fit into a file of this length several times: a file ends between two rounds.
    pub fn new(max_file_bytes: Option<u64>) -> Self {
        let round_bytes = max_file_bytes.map_or(ROUND_BYTES, |max| ROUND_BYTES.min((max / 8) as usize));
        // A record of the greatest length must fit.
        let max_read_bytes = round_bytes.clamp(MAX_WORDS * 8, READ_BYTES);
        let buffer = vec![0; round_bytes + 2 * max_read_bytes];
        let places = BTreeMap::new();
        Self { buffer, places, first_cpu: 0, read_bytes: max_read_bytes, max_read_bytes, round_bytes }
    }

    /// The place in this stream.
    pub fn place(&mut self, stream: Stream) -> &mut Place {
        self.places.entry(stream).or_default()
    }

    /// Reads every CPU once, then the state into `ctl`, then meta as far as the state says that it goes.
    pub fn take<S: System>(&mut self, system: &mut S, source: &mut impl Source<S>, ctl: &mut Ctl) -> Taken {
        let (mut pieces, mut failed) = (Vec::new(), None);
        let mut used = 0;
        // Rings of a running flight recorder are read once it is frozen or stopped. It may have been started just now.
        if ctl.overwrites()
            && let Err(error) = source.observe(system, ctl)
        {
            failed = Some(error);
        }
        let is_recorder = ctl.overwrites() && ctl.is_running();
        let mut cpus: Vec<u32> = ctl.cpus().map(|(cpu, _)| cpu).filter(|_| !is_recorder).collect();
        // Not always the same one first: under a flood the round may end before the last one's turn.
        self.first_cpu += 1;
        let shift = self.first_cpu % cpus.len().max(1);
        cpus.rotate_left(shift);
        for cpu in cpus {
            if used > self.round_bytes {
                break;
            }
            match self.read(system, source, Stream::Cpu(cpu), used) {
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
        match self.read_meta(system, source, ctl.meta(), used) {
            Ok(piece) => pieces.push(piece),
            Err(error) => failed = failed.or(Some(error)),
        }
        let new = |piece: &Piece| piece.range.len() - piece.carried;
        let brought = pieces.iter().map(new).sum();
        // Twice as much as came now, for the next time.
        let most = pieces.iter().map(new).max().unwrap_or(0);
        let is_more = used > self.round_bytes || most + MAX_WORDS * 8 > self.read_bytes;
        self.read_bytes = (2 * most).next_power_of_two().max(MIN_READ_BYTES).min(self.max_read_bytes);
        pieces.sort_by_key(|piece| piece.stream);
        Taken { pieces, brought, is_more, failed }
    }

    /// Reads what the stream has, from `start` of the buffer on, behind what an earlier read had left over.
    fn read<S: System>(
        &mut self,
        system: &mut S,
        source: &mut impl Source<S>,
        stream: Stream,
        start: usize,
    ) -> Result<Piece, Error> {
        let carried = self.place(stream).carry.len();
        let held = start + carried;
        let got = self.read_behind(system, source, stream, held)?;
        let place = self.places.entry(stream).or_default();
        self.buffer[start..held].copy_from_slice(&place.carry);
        place.carry.clear();
        Ok(Piece { stream, range: start..held + got, carried })
    }

    /// One read, to `start` of the buffer.
    fn read_behind<S: System>(
        &mut self,
        system: &mut S,
        source: &mut impl Source<S>,
        stream: Stream,
        start: usize,
    ) -> Result<usize, Error> {
        let end = start + self.read_bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        source.read(system, stream, &mut self.buffer[start..end])
    }

    /// Reads the meta stream as far as it went when the state was read: the names of all tasks in this round's
    /// samples.
    fn read_meta<S: System>(
        &mut self,
        system: &mut S,
        source: &mut impl Source<S>,
        counters: &Counters,
        start: usize,
    ) -> Result<Piece, Error> {
        let place = self.place(Stream::Meta);
        let begins = place.position.or(counters.find("position-out")).unwrap_or(0);
        let goes_to = counters.find("position-in");
        let is_whole = |held: usize| goes_to.is_some_and(|goes_to| begins + (held / 8) as u64 >= goes_to);
        if is_whole(place.carry.len()) {
            return Ok(Piece { stream: Stream::Meta, range: start..start, carried: 0 });
        }
        let mut piece = self.read(system, source, Stream::Meta, start)?;
        while !is_whole(piece.range.len()) && piece.range.len() < ROUND_BYTES {
            let more = self.read_behind(system, source, Stream::Meta, piece.range.end)?;
            if more == 0 {
                break;
            }
            piece.range.end += more;
        }
        Ok(piece)
    }
}
