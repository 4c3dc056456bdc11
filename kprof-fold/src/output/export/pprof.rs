//! pprof's protocol buffer, gzipped or not, for `go tool pprof` and other readers of this format. Stage: output.
//!
//! In: a timeline and symbols. Out: one location for each address, with its inlined frames, files and lines; a mapping
//! with its build id for the kernel and for each image; a sample for each stack, CPU and task, with its count, and one
//! for what each CPU lost.

pub mod proto;
pub mod values;

use crate::resolve::{self, Frame, Resolver};
use crate::select::Select;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::symbols::users::plain;
use crate::timeline::{Event, Timeline};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufWriter, Write};

/// What is written about a profile besides its samples.
pub struct About<'a> {
    /// The requested number of samples per second.
    pub rate_hz: Option<u64>,
    /// The time from the first sample to the last.
    pub seconds: f64,
    /// The file of the kernel's symbols.
    pub kernel: &'a str,
    /// Why what is shown may be wrong: comments of the file.
    pub doubts: &'a [String],
    /// The build id in the header.
    pub build_id: Option<&'a str>,
    /// How many samples each CPU lost.
    pub lost: BTreeMap<u32, u64>,
    /// The name of the function that stands for lost samples.
    pub lost_name: &'a str,
    /// Whether the output is gzipped. Readers accept both.
    pub gzip: bool,
}

/// Messages are gathered before they are compressed: each call of the compressor has a cost of its own.
const BUFFER_BYTES: usize = 64 * 1024;

/// The order that `write` expects. Samples of the same stack, CPU and task are then adjacent, and become one sample
/// with a count.
pub fn order(event: &Event) -> (u32, u32, u32) {
    (event.stack, event.cpu, event.task)
}

/// Writes the profile of samples that come in [`order`]. It is written in pieces: concatenated messages are one
/// message.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    timeline: &Timeline,
    names: (&Stacks, &Symbols, &Select),
    about: &About<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    compressed(about.gzip, out, |out| messages(timeline, names, about, out))
}

/// Writes through the compressor, or without it.
fn compressed(gzip: bool, out: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if !gzip {
        return write(out);
    }
    let mut gzip = BufWriter::with_capacity(BUFFER_BYTES, GzEncoder::new(out, Compression::default()));
    write(&mut gzip)?;
    gzip.into_inner()?.finish().map(drop)
}

fn messages(
    timeline: &Timeline,
    (stacks, symbols, select): (&Stacks, &Symbols, &Select),
    about: &About<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut made = Made::new(symbols, about, &[("samples", "count")]);
    let (cpu_key, task_key) = (made.text("cpu"), made.text("task"));
    let tasks: Vec<i64> = timeline.tasks.iter().map(|task| made.text(task)).collect();
    let (mut resolver, mut words, mut bytes, mut known) = (Resolver::new(symbols), Vec::new(), Vec::new(), None);
    let mut part = Profile { sample: vec![Sample::default()], ..Profile::default() };
    for same in timeline.events.chunk_by(|a, b| order(a) == order(b)) {
        let (stack, cpu, task) = order(&same[0]);
        let sample = &mut part.sample[0];
        if known.replace(stack) != Some(stack) {
            stacks.words(stack, &mut words);
            sample.location_id = made.stack(&mut resolver, &words, select.user);
        }
        sample.value = vec![same.len() as i64];
        let by_cpu = Label { key: cpu_key, num: i64::from(cpu), ..Label::default() };
        let by_task = Label { key: task_key, str: tasks[task as usize], ..Label::default() };
        sample.label = vec![by_cpu, by_task];
        bytes.clear();
        part.encode(&mut bytes).map_err(io::Error::other)?;
        out.write_all(&bytes)?;
    }
    for (cpu, lost) in &about.lost {
        let label = vec![Label { key: cpu_key, num: i64::from(*cpu), ..Label::default() }];
        let value = vec![i64::try_from(*lost).unwrap_or(i64::MAX)];
        let sample = Sample { location_id: vec![made.named(about.lost_name)], value, label };
        out.write_all(&Profile { sample: vec![sample], ..Profile::default() }.encode_to_vec())?;
    }
    out.write_all(&made.finish(about).encode_to_vec())
}

/// A profile that is being built.
struct Made<'a> {
    symbols: &'a Symbols,
    profile: Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    /// Locations by address. `by_name` has the locations of frames that have no address.
    by_address: HashMap<u64, u64>,
    by_name: HashMap<String, u64>,
    /// The mapping of each image, by the image's name.
    images: HashMap<String, u64>,
}

impl<'a> Made<'a> {
    fn new(symbols: &'a Symbols, about: &About<'_>, types: &[(&str, &str)]) -> Self {
        let mut made = Self {
            symbols,
            profile: Profile::default(),
            texts: HashMap::new(),
            functions: HashMap::new(),
            by_address: HashMap::new(),
            by_name: HashMap::new(),
            images: HashMap::new(),
        };
        made.text("");
        for (kind, unit) in types {
            let value_type = made.value_type(kind, unit);
            made.profile.sample_type.push(value_type);
        }
        // Readers take the first mapping for the main one.
        let build_id = symbols.elf.as_ref().and_then(|elf| elf.build_id.as_deref()).or(about.build_id);
        made.mapping("kernel", about.kernel, build_id.filter(|id| *id != "-"), symbols.kernel_text);
        made
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.text(kind), unit: self.text(unit) }
    }

    fn mapping(&mut self, name: &str, file: &str, build_id: Option<&str>, text: Option<(u64, u64)>) -> u64 {
        if let Some(id) = self.images.get(name) {
            return *id;
        }
        let id = self.profile.mapping.len() as u64 + 1;
        let (filename, build_id) = (self.text(file), self.text(build_id.unwrap_or_default()));
        let (memory_start, memory_limit) = text.map_or((0, 0), |(from, to)| (plain(from), plain(to)));
        self.profile.mapping.push(Mapping {
            id,
            memory_start,
            memory_limit,
            filename,
            build_id,
            // All known names and lines are in the profile, so readers need not look them up again.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        self.images.insert(name.to_owned(), id);
        id
    }

    /// The locations of a stack, innermost first; at least one.
    fn stack(&mut self, resolver: &mut Resolver<'_>, words: &[u64], user: bool) -> Vec<u64> {
        let mut ids = Vec::with_capacity(words.len());
        resolver.frames(words, user, |frame| {
            ids.push(match frame {
                Frame::At(address, place) if place.symbol.is_some() => self.location(address, place),
                Frame::At(..) | Frame::Marker(_) | Frame::Running | Frame::Nothing => self.named(&frame.name()),
            });
        });
        ids
    }

    /// The location of a frame that has no address.
    fn named(&mut self, name: &str) -> u64 {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let function_id = self.function(name, "");
        let id = self.push(Location { line: vec![Line { function_id, line: 0 }], ..Location::default() });
        self.by_name.insert(name.to_owned(), id);
        id
    }

    fn location(&mut self, address: u64, place: &resolve::Place) -> u64 {
        if let Some(id) = self.by_address.get(&address) {
            return *id;
        }
        let line = |function: &resolve::Function| {
            let (file, line) = function.location.as_ref().map_or(("", 0), |place| (&place.file[..], place.line));
            Line { function_id: self.function(&function.name, file), line: i64::from(line) }
        };
        let line = place.functions.iter().map(line).collect();
        let mapping_id = match self.symbols.image_at(address) {
            Some(image) => {
                let build_id = image.symbols.elf.as_ref().and_then(|elf| elf.build_id.as_deref());
                self.mapping(&format!("image {}", image.name), &image.name, build_id, Some(image.text))
            }
            None => 1,
        };
        let id = self.push(Location { mapping_id, address: plain(address), line, ..Location::default() });
        self.by_address.insert(address, id);
        id
    }

    fn push(&mut self, location: Location) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location { id, ..location });
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (name, filename) = (self.text(name), self.text(file));
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            self.profile.function.push(Function { id, name, filename });
        }
        id
    }

    fn finish(mut self, about: &About<'_>) -> Profile {
        // Without a range in the header, the kernel's range is that of its samples.
        let kernel = self.profile.location.iter().filter(|location| location.mapping_id == 1);
        let addresses = kernel.map(|location| location.address);
        let range = addresses.clone().min().zip(addresses.max().map(|last| last.saturating_add(1)));
        if let (Some((from, to)), main) = (range, &mut self.profile.mapping[0]) {
            let is_told = main.memory_limit > 0;
            main.memory_start = if is_told { main.memory_start.min(from) } else { from };
            main.memory_limit = main.memory_limit.max(to);
        }
        self.profile.comment = about.doubts.iter().map(|doubt| self.text(doubt)).collect();
        self.profile.duration_nanos = (about.seconds * 1e9) as i64;
        if let Some(rate) = about.rate_hz.filter(|rate| *rate > 0) {
            self.profile.period_type = Some(self.value_type("time", "nanoseconds"));
            self.profile.period = 1_000_000_000 / rate as i64;
        }
        self.profile
    }
}
