//! The simulated kernel: ctl, streams, meta, a claim; and a ledger with every sample that was not lost.
//!
//! In: reads of its device files, and ticks; writes to ctl are in `control`. Out: the bytes that kprof's own device
//! gives; the text of ctl is in `text`.

mod control;
mod text;

use super::Random;
use super::probes::Probes;
use super::ring::Ring;
use kprof_daemon::source::Stream;
use kprof_format::record::{EventHeader, Kind, MetaHeader, SampleHeader};
use kprof_format::text::escaped;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;

/// Difficult conditions that a test can choose.
#[derive(Clone, Debug, Default)]
pub struct Nasty {
    /// Reads give at most this many records (0: as many as fit).
    pub max_records: usize,
    /// Reads give at most this many bytes, because the kernel copies through a buffer of its own (0: no limit).
    pub max_bytes: usize,
    /// Reads may end in the middle of a record, at any byte.
    pub splits: bool,
    /// A second claim is refused with the same error as every other refusal, so the error does not show the reason.
    pub busy_is_invalid: bool,
    /// Its state says that records are not framed, as after another program's `protocol 0`.
    pub is_unframed: bool,
    /// `wait` is refused.
    pub cannot_wait: bool,
    /// A `wait` ends after this many milliseconds, whatever there is to read.
    pub wakes_after: Option<u64>,
    /// The number of ticks that were sent to a CPU but are never taken. With any, `stop` stops sampling and is refused.
    pub pending: u64,
    /// The number of reads that are refused because another reader is using the stream.
    pub busy_reads: u32,
    /// Before one of this many writes of `ack` lines, somebody changes the mode to `overwrite`.
    pub overwrites_before_ack: u64,
    /// After this many more reads of ctl, somebody changes it back.
    pub reads_until_drop: u32,
    /// What the kernel counts of points is overwritten before it can be copied.
    pub overtakes_counts: bool,
    /// After this many reads of streams the device is gone.
    pub reads_until_gone: Option<u32>,
    /// Its state does not say where the oldest record of a stream is.
    pub hides_oldest: bool,
    /// Every read of a CPU's stream gives one record, always this one.
    pub same_record: Option<Vec<u8>>,
    /// Every write of `ack` lines is refused; and how many were.
    pub refuses_acks: bool,
    pub refused_acks: u32,
}

/// The stream with this name: a CPU, `event-` and a CPU, or `meta`.
pub fn stream_of(name: &str) -> Stream {
    match name.strip_prefix("event-") {
        Some(cpu) => Stream::Event(cpu.parse().expect("a CPU")),
        None => name.parse().map_or(Stream::Meta, Stream::Cpu),
    }
}

pub struct Kernel {
    pub boot: u64,
    pub rings: BTreeMap<u32, Ring>,
    /// The event streams, none unless a test makes them.
    pub events: BTreeMap<u32, Ring>,
    pub meta: Ring,
    pub running: bool,
    pub claim: Option<u64>,
    /// Who reads copies.
    pub copier: Option<u64>,
    /// Whether it is a flight recorder. The rings are so large that nothing is overwritten in a test.
    pub overwrites: bool,
    pub frozen: bool,
    hz: u64,
    /// Who has the lease, and what state and rate were before it.
    lease: Option<(u64, bool, u64)>,
    pub nasty: Nasty,
    pub random: Random,
    /// Every sample that was recorded: CPU and TSC, and its line without the task name.
    pub ledger: BTreeMap<(u32, u64), String>,
    /// Every event that was recorded: CPU and TSC, and its line.
    pub event_ledger: BTreeMap<(u32, u64), String>,
    /// Page faults of task 1 that are not in the meta stream yet.
    pub page_faults: u64,
    /// Hits of point 3 that the meta stream has not told yet, each of 100 bytes, and whether they are counted: one for
    /// each tick.
    pub hits: u64,
    pub counts_hits: bool,
    /// Hits that were ever told.
    pub told_hits: u64,
    /// Further points: the hits of each that were not told yet, one for each tick while hits are counted.
    pub crowd: Vec<u64>,
    /// Whether the reader that has the claim has read and acknowledged the meta stream before each command of another.
    pub reader_is_fast: bool,
    /// How many of the crowd's accounts did not fit the last time.
    pub kept: usize,
    /// The probes.
    pub probes: Probes,
    /// Names by task id, as they are now.
    pub names: BTreeMap<u64, Vec<u8>>,
    pub tsc: u64,
    pub tick: u64,
    error: String,
    pub commands: Vec<String>,
    /// The limits of the `wait` commands, in milliseconds.
    pub waits: Vec<u64>,
    /// If set, every record has this version, as from a newer kernel.
    pub version: Option<u8>,
    pub is_gone: bool,
    /// Whether it knows the command `copy`.
    pub gives_copies: bool,
}

impl Kernel {
    pub fn new(cpus: &[u32], ring_words: u64, seed: u64) -> Self {
        Self {
            boot: 0x5f0c,
            rings: cpus.iter().map(|cpu| (*cpu, Ring::new(ring_words))).collect(),
            events: BTreeMap::new(),
            meta: Ring::new(ring_words),
            running: true,
            claim: None,
            copier: None,
            overwrites: false,
            frozen: false,
            hz: 1000,
            lease: None,
            nasty: Nasty::default(),
            random: Random(seed | 1),
            ledger: BTreeMap::new(),
            event_ledger: BTreeMap::new(),
            page_faults: 0,
            hits: 0,
            counts_hits: false,
            told_hits: 0,
            crowd: Vec::new(),
            reader_is_fast: false,
            kept: 0,
            probes: Probes::default(),
            names: BTreeMap::new(),
            tsc: 1000,
            tick: 0,
            error: String::new(),
            commands: Vec::new(),
            waits: Vec::new(),
            version: None,
            is_gone: false,
            gives_copies: true,
        }
    }

    /// One tick: a sample on every CPU, and sometimes a new task.
    pub fn tick(&mut self) {
        if self.names.is_empty() || self.random.once_in(20) {
            let id = self.names.len() as u64 + 1;
            self.name(id, format!("task {id} #%").into_bytes());
        }
        self.tick_without_names();
    }

    /// One tick: a sample on every CPU.
    pub fn tick_without_names(&mut self) {
        self.tick += 1;
        self.page_faults += 1;
        self.hits += u64::from(self.counts_hits);
        self.crowd.iter_mut().for_each(|hits| *hits += u64::from(self.counts_hits));
        self.tsc += 1 + self.random.below(1000);
        let cpus: Vec<u32> = self.rings.keys().copied().collect();
        for cpu in cpus {
            self.sample(cpu);
        }
    }

    /// Names a task, and writes the name to the meta stream.
    pub fn name(&mut self, id: u64, name: Vec<u8>) {
        assert!(self.put_meta(Kind::TaskName, [id, 0, 0], &name), "the meta ring of the simulation is full");
        self.names.insert(id, name);
    }

    /// Finds that a CPU is locked up: a record of the lockup, and one of the CPU's stack.
    pub fn lockup(&mut self) {
        for (kind, text) in [(Kind::Lockup, &b"one-task ticks=9"[..]), (Kind::LockupStack, b"1e ff,1")] {
            assert!(self.put_meta(kind, [7, 1, self.tsc], text), "the meta ring of the simulation is full");
        }
    }

    /// Puts a record into the meta stream. False: the ring is full.
    pub fn put_meta(&mut self, kind: Kind, values: [u64; 3], text: &[u8]) -> bool {
        let (tsc, [first, second, third], text_bytes) = (self.tsc, values, text.len() as u64);
        let word = |part: &[u8]| part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let text: Vec<u64> = text.chunks(8).map(word).collect();
        let header = |position| MetaHeader { position, tick: 0, tsc, first, second, third, text_bytes };
        self.meta.put(MetaHeader::WORDS + text.len(), |position| header(position).record(kind, &text).collect())
    }

    /// Writes the events by task, as `flush` and `stop` do: a page fault of task 1 for each tick. Writes the hits of
    /// point 3, too.
    fn write_events(&mut self) {
        let text = format!("page-faults={}", self.page_faults);
        if self.page_faults > 0 && self.put_meta(Kind::Events, [1, 0, 0], text.as_bytes()) {
            self.page_faults = 0;
        }
        self.write_crowd();
        for (number, weight, text) in self.probes.told() {
            assert!(self.put_meta(Kind::PointAccount, [number, 1, weight], text.as_bytes()));
        }
        let (hits, weight) = (self.hits, 100 * self.hits);
        let text = format!("bytes null.write log2-6={hits} filtered={hits}");
        if hits > 0 && self.put_meta(Kind::PointAccount, [3, 1, weight], text.as_bytes()) {
            (self.hits, self.told_hits) = (0, self.told_hits + hits);
            if let Some(copies) = self.meta.copies.as_mut().filter(|_| self.nasty.overtakes_counts) {
                copies.overtake_newest();
                self.put_meta(Kind::TaskName, [1, 0, 0], b"told again");
            }
        }
    }

    /// Tells the meta stream of the crowd; what does not fit is lost.
    fn tell_of_crowd(&mut self) {
        for number in 0..self.crowd.len() {
            self.put_meta(Kind::Point, [1000 + number as u64, 0, 0], format!("ns crowd.{number:04} count").as_bytes());
        }
    }

    /// Writes what the crowd has counted; what does not fit is kept.
    fn write_crowd(&mut self) {
        let crowd = std::mem::take(&mut self.crowd);
        let write = |(number, hits): (usize, u64)| {
            let text = format!("ns crowd.{number:04} log2-0={hits} filtered={hits}");
            let values = [1000 + number as u64, 1, hits];
            if hits > 0 && !self.put_meta(Kind::PointAccount, values, text.as_bytes()) { hits } else { 0 }
        };
        self.crowd = crowd.into_iter().enumerate().map(write).collect();
        self.kept = self.crowd.iter().filter(|hits| **hits > 0).count();
    }

    /// Tells the meta stream of point 3, as the kernel does at its first hit and when a claim begins.
    fn tell_of_point(&mut self) {
        assert!(
            self.put_meta(Kind::Point, [3, 0, 0], b"bytes null.write record"),
            "the meta ring of the simulation is full"
        );
    }

    /// A recorded hit of point 3 by task 1, on every CPU that has an event stream.
    pub fn hit(&mut self) {
        self.tsc += 1 + self.random.below(1000);
        let (tsc, weight) = (self.tsc, self.random.below(1 << 40));
        let task: String = escaped(&self.names[&1]).map(char::from).collect();
        for (cpu, ring) in &mut self.events {
            let stack = [0xffff_ffff_8020_1000 + weight % 512, 0xffff_ffff_8024_0000];
            let head = |position| EventHeader { position, point: 3, tsc, task: 1, weight, state: 2 };
            let words = EventHeader::WORDS + stack.len();
            let made = ring.put(words, |position| head(position).record(Kind::Event, &stack).collect());
            if made {
                let line = format!("!null.write {task} {cpu:x} {tsc:x} {weight} - {:x} {:x}", stack[0], stack[1]);
                self.event_ledger.insert((*cpu, tsc), line);
            }
        }
    }

    fn sample(&mut self, cpu: u32) {
        let depth = 1 + self.random.below(9) as usize;
        let task = 1 + self.random.below(self.names.len() as u64);
        let mut stack = vec![0xffff_ffff_8020_0000 + self.random.below(0x8_0000)];
        if self.random.once_in(3) {
            stack.push(0xffff_ffff_ffff_f001);
        }
        stack.extend((1..depth).map(|_| 0xffff_ffff_8020_0000 + self.random.below(0x8_0000)));
        let (tick, tsc, version) = (self.tick, self.tsc, self.version);
        let Some(ring) = self.rings.get_mut(&cpu) else { return };
        let made = ring.put(SampleHeader::WORDS - 1 + stack.len(), |position| {
            let mut header = SampleHeader { position, tick, tsc, ..SampleHeader::default() };
            (header.task, header.address) = (task, stack[0]);
            let mut words: Vec<u64> = header.record(Kind::Sample, &stack[1..]).collect();
            if let Some(version) = version {
                words[0] = words[0] & !(0xff << 24) | u64::from(version) << 24;
            }
            words
        });
        if made {
            let mut line = format!("{cpu:x} {tsc:x}");
            for word in &stack {
                let _ = write!(line, " {word:x}");
            }
            self.ledger.insert((cpu, tsc), line);
        }
    }

    /// Whoever has claimed the streams (and is not the program under test) reads and acknowledges everything.
    pub fn take_all(&mut self) -> BTreeMap<u32, u64> {
        assert!(self.claim.is_some());
        self.rings.values_mut().chain([&mut self.meta]).for_each(|ring| ring.acknowledge(ring.head));
        self.rings.iter().map(|(cpu, ring)| (*cpu, ring.delivered)).collect()
    }

    fn ring(&mut self, stream: Stream) -> Option<&mut Ring> {
        match stream {
            Stream::Meta => Some(&mut self.meta),
            Stream::Cpu(cpu) => self.rings.get_mut(&cpu),
            Stream::Event(cpu) => self.events.get_mut(&cpu),
        }
    }

    pub fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.nasty.reads_until_gone {
            Some(0) => self.is_gone = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.is_gone {
            return Err(io::Error::other("the device is gone"));
        }
        assert!(self.claim.is_some() || self.copier.is_some(), "framed records only for the claim or copies");
        if let (Stream::Cpu(_), Some(record)) = (stream, &self.nasty.same_record) {
            buffer[..record.len()].copy_from_slice(record);
            return Ok(record.len());
        }
        if self.nasty.busy_reads > 0 {
            self.nasty.busy_reads -= 1;
            let kind = if self.random.once_in(2) { io::ErrorKind::WouldBlock } else { io::ErrorKind::ResourceBusy };
            return Err(kind.into());
        }
        if self.copier.is_some() {
            let ring = self.ring(stream).expect("an open stream exists");
            let bytes = ring.copies.as_mut().expect("begun").read(buffer.len());
            buffer[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        }
        let splits = self.nasty.splits;
        let max_records = if self.nasty.max_records == 0 { usize::MAX } else { self.nasty.max_records };
        let limit = if self.nasty.max_bytes == 0 { buffer.len() } else { buffer.len().min(self.nasty.max_bytes) };
        let max_bytes = if splits { limit.min(1 + self.random.below(300) as usize) } else { limit };
        let ring = self.ring(stream).expect("an open stream exists");
        let bytes = ring.read(max_bytes, max_records, splits).ok_or(io::ErrorKind::InvalidInput)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// The position up to which the kernel has freed each stream.
    pub fn given_up(&self) -> BTreeSet<(u32, u64)> {
        self.rings.iter().map(|(cpu, ring)| (*cpu, ring.tail)).collect()
    }
}
