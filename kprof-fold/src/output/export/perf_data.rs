//! Linux perf's file (`perf.data`): the samples with their stacks, for `perf report`, `perf script`, hotspot and
//! samply. Stage: output.
//!
//! In: the samples of each CPU, and the ELF files of the kernel and of other images. Out: the file, written piece by
//! piece and never all in memory. Its readers name code themselves, from these ELF files. Each of them finds a program
//! by its path, but each looks for Linux's kernel in its own way. So the kernel is shown as a program: each boot is a
//! process that maps the kernel's file where it ran, and the threads of the process are the tasks. The weight of a
//! sample (perf's period) is the time that it stands for. Ticks that were only counted, in user code or in the idle
//! task, are samples of threads of their own, without an address.
//!
//! Source of the form: `tools/perf/Documentation/perf.data-file-format.txt` and `include/uapi/linux/perf_event.h` of
//! Linux; a record of a thread, a mapping, a loss or a sample has had the same words since Linux 3.16.

use super::{Input, Reason, bytes_of};
use crate::symbols::users::plain;
use crate::tracks::Moment;
use std::io::{self, Write};

/// A piece of code, and the ELF file that it was loaded from.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The path of the file.
    pub file: String,
    /// Where its first byte ran.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
    /// Where its first byte is in the file.
    pub offset: u64,
    /// The file's build id, in hex.
    pub build_id: Option<String>,
}

/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"PERFILE2";
const HEADER_BYTES: u64 = 104;
/// The size of `perf_event_attr` since Linux 4.1, which all readers know.
const ATTR_BYTES: u32 = 112;
/// The event: `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_CPU_CLOCK`, whose unit is the nanosecond.
const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
/// What a sample has: `PERF_SAMPLE_IP`, `TID`, `TIME`, `CALLCHAIN`, `CPU`, `PERIOD`.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7 | 1 << 8;
/// Flags of the event: it has records of mappings and threads (`mmap`, `comm`, `mmap2`), and every record ends with
/// thread, time and CPU (`sample_id_all`).
const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 18 | 1 << 23;
/// The event's number in this file.
const ID: u64 = 1;
/// Types of records.
const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const BUILD_ID: u32 = 67;
/// Whose code it is: `PERF_RECORD_MISC_KERNEL`, `PERF_RECORD_MISC_USER`.
const KERNEL: u16 = 1;
const USER: u16 = 2;
/// The process -1.
const ANY_PROCESS: u32 = u32::MAX;
/// The word before the addresses of a program in a stack (`PERF_CONTEXT_USER`).
const CONTEXT_USER: u64 = -512_i64 as u64;
/// `PROT_READ | PROT_EXEC` and `MAP_PRIVATE`.
const READ_AND_EXECUTE: u32 = 5;
const PRIVATE: u32 = 2;
/// Optional parts of the file, by their number: build ids, the processor, the command (hotspot ignores the others if it
/// is missing), the event with its name.
const BUILD_IDS: u64 = 2;
const ARCH: u64 = 6;
const COMMAND: u64 = 11;
const EVENT_DESC: u64 = 12;
/// The command that made the file, without the profile.
const COMMAND_WORDS: [&str; 4] = ["kprof-fold", "export", "--to", "perf.data"];
/// Texts outside of records take a multiple of this.
const TEXT_BYTES: usize = 64;
/// The longest stack whose record is less than 64 KiB. Readers show 127 frames unless they are told otherwise.
const MAX_FRAMES: usize = 8000;

/// Writes the file.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, mappings: &[Mapping], out: &mut dyn Write) -> io::Result<()> {
    // The size of the records is in the header, before them.
    let mut counted = Counted(0);
    Records::new(input, mappings, &mut counted).write()?;
    let ids_at = HEADER_BYTES;
    let attrs_at = ids_at + 8;
    let attr_bytes = u64::from(ATTR_BYTES) + 16;
    let data_at = attrs_at + attr_bytes;
    let mut header = Bytes(MAGIC.to_vec());
    let parts = parts(input, mappings);
    let features = parts.iter().fold(0, |all, (number, _)| all | 1 << number);
    for word in [HEADER_BYTES, attr_bytes, attrs_at, attr_bytes, data_at, counted.0, 0, 0, features, 0, 0, 0, ID] {
        header.u64(word);
    }
    header.attr(input);
    [ids_at, 8].into_iter().for_each(|word| header.u64(word));
    out.write_all(&header.0)?;
    Records::new(input, mappings, out).write()?;
    let mut at = data_at + counted.0 + 16 * parts.len() as u64;
    let mut list = Bytes::default();
    for (_, part) in &parts {
        let bytes = part.0.len() as u64;
        [at, bytes].into_iter().for_each(|word| list.u64(word));
        at += bytes;
    }
    [&list].into_iter().chain(parts.iter().map(|(_, part)| part)).try_for_each(|part| out.write_all(&part.0))
}

/// The optional parts, by their numbers. An empty one is left out: hotspot calls it damaged.
fn parts(input: &Input<'_>, mappings: &[Mapping]) -> Vec<(u64, Bytes)> {
    let [mut ids, mut arch, mut command, mut event] = [(); 4].map(|()| Bytes::default());
    build_ids(mappings, &mut ids);
    arch.text(&input.arch);
    command.u32(COMMAND_WORDS.len() as u32 + 1);
    COMMAND_WORDS.into_iter().chain([&*input.name]).for_each(|word| command.text(word));
    event.event(input);
    let all = [(BUILD_IDS, ids), (ARCH, arch), (COMMAND, command), (EVENT_DESC, event)];
    all.into_iter().filter(|(_, part)| !part.0.is_empty()).collect()
}

/// Counts what is written.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A part of the file.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// A text with the zeros behind it that make its size a multiple of this.
    fn padded(&mut self, text: &str, multiple: usize) {
        self.0.extend(text.bytes());
        let bytes = (text.len() + 1).next_multiple_of(multiple);
        self.0.extend(std::iter::repeat_n(0, bytes - text.len()));
    }

    /// A text with its size before it.
    fn text(&mut self, text: &str) {
        self.u32((text.len() + 1).next_multiple_of(TEXT_BYTES) as u32);
        self.padded(text, TEXT_BYTES);
    }

    /// `perf_event_attr`.
    fn attr(&mut self, input: &Input<'_>) {
        [SOFTWARE, ATTR_BYTES].into_iter().for_each(|word| self.u32(word));
        let words = [CPU_CLOCK, input.period_ns, SAMPLE_TYPE, 0, FLAGS];
        words.into_iter().for_each(|word| self.u64(word));
        self.0.extend([0; ATTR_BYTES as usize - 48]);
    }

    /// The events of the file: one.
    fn event(&mut self, input: &Input<'_>) {
        [1, ATTR_BYTES].into_iter().for_each(|word| self.u32(word));
        self.attr(input);
        self.u32(1);
        self.text("cpu-clock");
        self.u64(ID);
    }
}

/// Which build each file is of, so that readers notice another one. An id has at most 20 bytes there.
fn build_ids(mappings: &[Mapping], out: &mut Bytes) {
    let mut told: Vec<&str> = Vec::new();
    for mapping in mappings {
        let id = mapping.build_id.as_deref().and_then(bytes_of).filter(|id| id.len() <= 20);
        let Some(mut id) = id.filter(|_| !told.contains(&&*mapping.file)) else { continue };
        told.push(&mapping.file);
        let size = id.len() as u8;
        id.resize(20, 0);
        let mut name = Bytes::default();
        name.padded(&mapping.file, TEXT_BYTES);
        out.u32(BUILD_ID);
        // The flag says that the size of the id is behind it (`PERF_RECORD_MISC_BUILD_ID_SIZE`).
        out.0.extend((USER | 1 << 15).to_le_bytes());
        out.0.extend((8 + 4 + 24 + name.0.len() as u16).to_le_bytes());
        out.0.extend((-1_i32).to_le_bytes());
        out.0.extend(id);
        out.0.extend([size, 0, 0, 0]);
        out.0.append(&mut name.0);
    }
}

/// Who was running, when and where.
#[derive(Clone, Copy)]
struct Context {
    pid: u32,
    tid: u32,
    nanos: u64,
    cpu: u32,
}

/// Writes the records.
struct Records<'a> {
    input: &'a Input<'a>,
    mappings: &'a [Mapping],
    out: &'a mut dyn Write,
    boots: u32,
    body: Bytes,
}

impl<'a> Records<'a> {
    fn new(input: &'a Input<'a>, mappings: &'a [Mapping], out: &'a mut dyn Write) -> Self {
        let boots = input.cpus().last().map_or(1, |(boot, _)| boot + 1);
        Self { input, mappings, out, boots, body: Bytes::default() }
    }

    fn write(mut self) -> io::Result<()> {
        self.linux()?;
        (0..self.boots).try_for_each(|boot| self.process(boot))?;
        for cpu in self.input.cpus() {
            self.ticks(cpu)?;
            self.samples(cpu)?;
        }
        Ok(())
    }

    /// A Linux that has no code: without its record `perf report` warns that kernel samples cannot be resolved.
    fn linux(&mut self) -> io::Result<()> {
        [ANY_PROCESS, 0].into_iter().for_each(|word| self.body.u32(word));
        [0; 3].into_iter().for_each(|word| self.body.u64(word));
        self.body.padded("[kernel.kallsyms]_text", 8);
        self.context(Context { pid: ANY_PROCESS, tid: 0, nanos: 0, cpu: 0 });
        self.record(MMAP, KERNEL)
    }

    /// Writes the body as a record of this type, and empties it.
    fn record(&mut self, kind: u32, misc: u16) -> io::Result<()> {
        let bytes = 8 + self.body.0.len() as u16;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&misc.to_le_bytes())?;
        self.out.write_all(&bytes.to_le_bytes())?;
        self.out.write_all(&self.body.0)?;
        self.body.0.clear();
        Ok(())
    }

    /// What every record but a sample ends with.
    fn context(&mut self, at: Context) {
        [at.pid, at.tid].into_iter().for_each(|word| self.body.u32(word));
        self.body.u64(at.nanos);
        [at.cpu, 0].into_iter().for_each(|word| self.body.u32(word));
    }

    /// The number of a thread: a task's, or, after those, that of ticks without a sample. Process n is boot n.
    fn thread(&self, boot: u32, at: usize) -> u32 {
        let threads = (self.input.tracks.tasks.len() + Reason::ALL.len()) as u32;
        (self.boots + 1).wrapping_add(boot.wrapping_mul(threads)).wrapping_add(at as u32) & i32::MAX as u32
    }

    /// The thread of the ticks that have no sample for this reason.
    fn thread_of(&self, boot: u32, reason: Reason) -> u32 {
        let at = Reason::ALL.iter().position(|one| *one == reason).unwrap_or(0);
        self.thread(boot, self.input.tracks.tasks.len() + at)
    }

    /// A process with what it maps, and its threads.
    fn process(&mut self, boot: u32) -> io::Result<()> {
        let pid = boot + 1;
        let (input, mappings) = (self.input, self.mappings);
        let name = if self.boots > 1 { format!("kernel, boot {pid}") } else { "kernel".to_owned() };
        self.comm(pid, pid, &name)?;
        for (task, at) in input.tracks.tasks.iter().zip(0..) {
            self.comm(pid, self.thread(boot, at), task)?;
        }
        for reason in Reason::ALL {
            self.comm(pid, self.thread_of(boot, reason), reason.name(input.select))?;
        }
        for mapping in mappings {
            [pid, pid].into_iter().for_each(|word| self.body.u32(word));
            [mapping.start, mapping.bytes, mapping.offset].into_iter().for_each(|word| self.body.u64(word));
            // Device and inode are not known.
            self.body.0.extend([0; 24]);
            [READ_AND_EXECUTE, PRIVATE].into_iter().for_each(|word| self.body.u32(word));
            self.body.padded(&mapping.file, 8);
            self.context(Context { pid, tid: pid, nanos: 0, cpu: 0 });
            self.record(MMAP2, USER)?;
        }
        Ok(())
    }

    /// The name of a thread.
    fn comm(&mut self, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        [pid, tid].into_iter().for_each(|word| self.body.u32(word));
        let end = name.char_indices().map(|(at, _)| at).find(|at| *at > 200).unwrap_or(name.len());
        self.body.padded(&name[..end], 8);
        self.context(Context { pid, tid, nanos: 0, cpu: 0 });
        self.record(COMM, 0)
    }

    fn ticks(&mut self, (boot, cpu): (u32, u32)) -> io::Result<()> {
        let input = self.input;
        for reason in Reason::ALL {
            let tid = self.thread_of(boot, reason);
            for ticks in input.ticks_of((boot, cpu), reason) {
                let at = Context { pid: boot + 1, tid, nanos: input.clock.nanos(boot, ticks.tsc.0), cpu };
                if reason == Reason::Lost {
                    [ID, ticks.count].into_iter().for_each(|word| self.body.u64(word));
                    self.context(at);
                    self.record(LOST, 0)?;
                } else {
                    self.sample(at, ticks.count.saturating_mul(input.period_ns), &[])?;
                }
            }
        }
        Ok(())
    }

    fn samples(&mut self, (boot, cpu): (u32, u32)) -> io::Result<()> {
        let input = self.input;
        let tracks = input.tracks.tracks.iter().filter(|track| (track.boot, track.cpu) == (boot, cpu));
        let mut addresses = Vec::new();
        for Moment { tsc, task, stack } in tracks.flat_map(|track| track.samples()) {
            let tid = self.thread(boot, task as usize);
            let at = Context { pid: boot + 1, tid, nanos: input.clock.nanos(boot, tsc), cpu };
            let places = input.places.of(stack).iter().rev().map(|place| &input.places.places[*place as usize]);
            // Readers find inlined functions themselves, so one frame is enough for each address.
            let frames = places.filter(|place| place.depth == 0 && place.address != 0);
            addresses.clear();
            addresses.extend(frames.map(|place| plain(place.address)).take(MAX_FRAMES));
            self.sample(at, input.period_ns, &addresses)?;
        }
        Ok(())
    }

    /// A sample: its addresses, innermost first.
    fn sample(&mut self, at: Context, period_ns: u64, addresses: &[u64]) -> io::Result<()> {
        self.body.u64(addresses.first().copied().unwrap_or(0));
        self.context(at);
        self.body.u64(period_ns);
        let context = (!addresses.is_empty()).then_some(CONTEXT_USER);
        self.body.u64((addresses.len() + usize::from(context.is_some())) as u64);
        context.iter().chain(addresses).for_each(|word| self.body.u64(*word));
        self.record(SAMPLE, USER)
    }
}
