//! Perfetto's trace: samples with their CPU, task and stack. Stage: output.
//!
//! In: the samples of each CPU. Out: packets, written one by one and never all in memory. Names, frames and stacks are
//! written once, and a sample, about 25 bytes, refers to them by number. Each boot is a process whose threads are its
//! tasks. For lost samples, and for ticks in user code and in the idle task, which the kernel only counts, each CPU has
//! tracks with slices: a slice is as wide as the time in which these ticks came, and has their number. When each of
//! them came within that time, and in which task, is not known. Marks and settings are instants on one track.

pub mod heap;
pub mod hits;
pub mod proto;

use super::places::{Kind, Place};
use super::{Input, Reason, bytes_of};
use crate::tracks::Moment;
use prost::encoding::message;
use proto::{
    Annotation, Callstack, Defaults, Frame, Interned, Mapping, PACKET, Packet, PerfSample, Process, ProcessTree,
    SampleDefaults, SamplePacket, Text, Thread, Timebase, TrackDescriptor, TrackEvent,
};
use std::io::{self, Write};

/// The number of the sequence that all packets belong to.
const SEQUENCE: u32 = 1;
/// The flag of a packet that makes all earlier declarations invalid: from here on, whatever is referred to by number is
/// declared again.
const STATE_CLEARED: u32 = 1;
/// Declarations in one packet.
const PIECE: usize = 1000;
/// Kinds of track events.
const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;

/// Writes the trace.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let frequency = (1_000_000_000 / input.period_ns).max(1);
    let boots = input.cpus().last().map_or(1, |(boot, _)| boot + 1);
    let mut trace = Trace { input, out, bytes: Vec::new(), tracks: 0, boots };
    trace.begin(Timebase { frequency, counter: 1, name: "samples".to_owned(), period: 0 })?;
    for cpu in input.cpus() {
        Reason::ALL.into_iter().try_for_each(|reason| trace.ticks(cpu, reason))?;
        trace.samples(cpu)?;
    }
    Ok(())
}

/// Writes packets.
struct Trace<'a> {
    input: &'a Input<'a>,
    out: &'a mut dyn Write,
    bytes: Vec<u8>,
    tracks: u64,
    boots: u32,
}

impl Trace<'_> {
    /// Everything that samples refer to, and the marks.
    fn begin(&mut self, timebase: Timebase) -> io::Result<()> {
        let perf_sample_defaults = Some(SampleDefaults { timebase: Some(timebase) });
        self.packet(Packet {
            sequence_flags: STATE_CLEARED,
            trace_packet_defaults: Some(Defaults { perf_sample_defaults }),
            ..Packet::default()
        })?;
        self.names()?;
        self.frames()?;
        self.stacks()?;
        self.tasks()?;
        self.marks()
    }

    fn packet(&mut self, packet: Packet) -> io::Result<()> {
        self.bytes.clear();
        let packet = Packet { trusted_packet_sequence_id: SEQUENCE, ..packet };
        message::encode(PACKET, &packet, &mut self.bytes);
        self.out.write_all(&self.bytes)
    }

    fn declare(&mut self, interned: Interned) -> io::Result<()> {
        self.packet(Packet { interned_data: Some(interned), ..Packet::default() })
    }

    /// Numbers begin with 1, because 0 stands for no declaration.
    fn names(&mut self) -> io::Result<()> {
        let (names, images) = (&self.input.places.names, &self.input.places.images);
        let text = |id: u32| Text { iid: u64::from(id) + 1, str: names.name(id).as_bytes().to_vec() };
        let ids: Vec<u32> = (0..names.len() as u32).collect();
        for piece in ids.chunks(PIECE) {
            let texts: Vec<Text> = piece.iter().map(|id| text(*id)).collect();
            self.declare(Interned { function_names: texts.clone(), source_paths: texts, ..Interned::default() })?;
        }
        let kernel = (&self.input.kernel, &self.input.build_id);
        let images: Vec<_> = [kernel].into_iter().chain(images.iter().map(|one| (&one.name, &one.build_id))).collect();
        let mut interned = Interned::default();
        for ((name, build_id), iid) in images.into_iter().zip(1..) {
            let id = build_id.as_deref().and_then(bytes_of);
            interned.mappings.push(Mapping {
                iid,
                build_id: id.as_ref().map_or(0, |_| iid),
                path_string_ids: vec![iid],
            });
            interned.mapping_paths.push(Text { iid, str: name.clone().into_bytes() });
            interned.build_ids.extend(id.map(|str| Text { iid, str }));
        }
        self.declare(interned)
    }

    fn frames(&mut self) -> io::Result<()> {
        let input = self.input;
        let frame = |(place, iid): (&Place, u64)| Frame {
            iid,
            function_name_id: u64::from(place.shown) + 1,
            mapping_id: u64::from(place.image) + 1,
            rel_pc: place.symbol.map_or(0, |_| input.within_image(place.image, place.address)),
            source_path_iid: place.line.map(|(file, _)| u64::from(file) + 1),
            line_number: place.line.map(|(_, line)| line),
            kind_str: kind(place.kind).to_owned(),
        };
        let all: Vec<_> = input.places.places.iter().zip(1..).collect();
        all.chunks(PIECE).try_for_each(|piece| {
            let frames = piece.iter().copied().map(frame).collect();
            self.declare(Interned { frames, ..Interned::default() })
        })
    }

    fn stacks(&mut self) -> io::Result<()> {
        let input = self.input;
        let frame_ids = |stack| input.places.of(stack).iter().map(|place| u64::from(*place) + 1).collect();
        let all: Vec<u32> = input.places.stacks().collect();
        all.chunks(PIECE).try_for_each(|piece| {
            let callstack = |stack: &u32| Callstack { iid: u64::from(*stack) + 1, frame_ids: frame_ids(*stack) };
            let callstacks = piece.iter().map(callstack).collect();
            self.declare(Interned { callstacks, ..Interned::default() })
        })
    }

    /// The number of a task's thread. Process n is boot n; numbers of threads come after those of processes.
    fn thread(&self, boot: u32, task: u32) -> u32 {
        let (boots, tasks) = (self.boots, self.input.tracks.tasks.len() as u32);
        (boots + 1).wrapping_add(boot.wrapping_mul(tasks)).wrapping_add(task) & i32::MAX as u32
    }

    fn tasks(&mut self) -> io::Result<()> {
        for boot in 0..self.boots {
            let pid = boot as i32 + 1;
            let name = if self.boots > 1 { format!("kernel, boot {pid}") } else { "kernel".to_owned() };
            let thread = |(task, name): (u32, &String)| Thread {
                tid: self.thread(boot, task) as i32,
                name: name.clone(),
                tgid: pid,
            };
            let threads = (0..).zip(&self.input.tracks.tasks).map(thread).collect();
            let tree = ProcessTree { processes: vec![Process { pid, cmdline: vec![name] }], threads };
            self.packet(Packet { timestamp: Some(0), process_tree: Some(tree), ..Packet::default() })?;
        }
        Ok(())
    }

    fn track(&mut self, name: String) -> io::Result<u64> {
        self.describe(TrackDescriptor { name, ..TrackDescriptor::default() })
    }

    fn describe(&mut self, track: TrackDescriptor) -> io::Result<u64> {
        self.tracks += 1;
        let uuid = self.tracks;
        let track = TrackDescriptor { uuid, ..track };
        self.packet(Packet { track_descriptor: Some(track), ..Packet::default() })?;
        Ok(uuid)
    }

    fn event(&mut self, nanos: u64, event: TrackEvent) -> io::Result<()> {
        self.packet(Packet { timestamp: Some(nanos), track_event: Some(event), ..Packet::default() })
    }

    fn marks(&mut self) -> io::Result<()> {
        let track_uuid = self.track("time 0".to_owned())?;
        let name = self.input.clock.words();
        self.event(0, TrackEvent { r#type: INSTANT, track_uuid, name, ..TrackEvent::default() })?;
        for (is_setting, name) in [(false, "marks"), (true, "settings")] {
            let marks: Vec<_> = self.input.marks.iter().filter(|mark| mark.is_setting == is_setting).collect();
            if marks.is_empty() {
                continue;
            }
            let track_uuid = self.track(name.to_owned())?;
            for mark in marks {
                let nanos = self.input.clock.nanos(mark.boot, mark.tsc);
                let event =
                    TrackEvent { r#type: INSTANT, track_uuid, name: mark.name.clone(), ..TrackEvent::default() };
                self.event(nanos, event)?;
            }
        }
        Ok(())
    }

    fn ticks(&mut self, cpu: (u32, u32), reason: Reason) -> io::Result<()> {
        let all: Vec<_> = self.input.ticks_of(cpu, reason).copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let name = reason.name(self.input.select);
        let track_uuid = self.track(format!("{} {name}", self.input.cpu_name(cpu)))?;
        let mut free = 0;
        for ticks in all {
            // Two slices of a track must not overlap partly, and a slice of width 0 is not visible.
            let from = self.input.clock.nanos(ticks.boot, ticks.tsc.0).max(free);
            let to = self.input.clock.nanos(ticks.boot, ticks.tsc.1).max(from + 1);
            free = to;
            let count = number(if reason == Reason::Lost { "samples" } else { "ticks" }, ticks.count);
            let name = name.to_owned();
            self.event(from, TrackEvent { debug_annotations: vec![count], r#type: BEGIN, track_uuid, name })?;
            self.event(to, TrackEvent { r#type: END, track_uuid, ..TrackEvent::default() })?;
        }
        Ok(())
    }

    fn samples(&mut self, (boot, cpu): (u32, u32)) -> io::Result<()> {
        let input = self.input;
        let tracks = input.tracks.tracks.iter().filter(|track| (track.boot, track.cpu) == (boot, cpu));
        for Moment { tsc, task, stack } in tracks.flat_map(|track| track.samples()) {
            self.sample(input.clock.nanos(boot, tsc), (boot, Some(cpu)), task, stack)?;
        }
        Ok(())
    }

    fn sample(&mut self, nanos: u64, (boot, cpu): (u32, Option<u32>), task: u32, stack: u32) -> io::Result<()> {
        let places = &self.input.places;
        let leaf = places.of(stack).last().map(|place| places.places[*place as usize].kind);
        let perf_sample = PerfSample {
            cpu,
            pid: boot + 1,
            tid: self.thread(boot, task),
            callstack_iid: u64::from(stack) + 1,
            cpu_mode: if leaf == Some(Kind::User) { 2 } else { 1 },
        };
        let packet = SamplePacket { timestamp: Some(nanos), trusted_packet_sequence_id: SEQUENCE, perf_sample };
        self.bytes.clear();
        message::encode(PACKET, &packet, &mut self.bytes);
        self.out.write_all(&self.bytes)
    }
}

/// An argument of a track event.
fn number(name: &str, value: u64) -> Annotation {
    Annotation { uint_value: Some(value), name: name.to_owned(), ..Annotation::default() }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => "kernel",
        Kind::Interrupt => "interrupt",
        Kind::User => "user",
        Kind::Idle => "idle",
    }
}
