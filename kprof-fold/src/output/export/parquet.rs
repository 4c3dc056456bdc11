//! Four tables in Parquet, for engines that read thousands of profiles at once. Stage: output.
//!
//! In: the samples of each CPU. Out: `boots` (a row for each boot), `samples` (a row for each sample, and one for each
//! part of a CPU's time in which samples were lost), `stacks` (a row for each frame of each distinct stack) and
//! `frames` (a row for each function). What is the same for all samples of a boot is in `boots` only, because each
//! column of `samples` costs time.
//!
//! Rows are written in groups, so memory does not grow with the profile. The ids of stacks and frames are hashes of
//! names: they are the same in every profile, so the tables of many profiles can be read as one. docs/fleet.md has the
//! columns and queries.

use super::Input;
use super::places::Place;
use crate::profile::{Boot, Profile};
use crate::stacks::hash;
use crate::state::State;
use crate::symbols::name::visible;
use kprof_format::fact::Fact;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a group. Readers take a group at a time.
const GROUP_ROWS: usize = 1 << 17;

/// The tables, in the order in which they are written.
pub const TABLES: [&str; 4] = ["boots", "samples", "stacks", "frames"];

/// Facts that are not in the profile.
#[derive(Clone, Debug, Default)]
pub struct About<'a> {
    /// The machine.
    pub machine: &'a str,
    /// The build of the kernel, instead of its build id.
    pub build: Option<&'a str>,
}

/// Writes a table.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    table: &str,
    (input, profile, about): (&Input<'_>, &Profile, &About<'_>),
    out: &mut dyn Write,
) -> io::Result<()> {
    match table {
        "boots" => boots(input, profile, about, out),
        "samples" => samples(input, profile, out),
        "stacks" => stacks(input, out),
        _ => frames(input, out),
    }
}

const BOOTS: &str = "message boots {
    required binary boot (STRING);
    required binary machine (STRING);
    required binary build (STRING);
    required binary trigger (STRING);
    required binary clock (STRING);
    required int64 period_ns;
}";

fn boots(input: &Input<'_>, profile: &Profile, about: &About<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(BOOTS, out)?;
    for boot in &profile.boots {
        let build = about.build.or(input.build_id.as_deref()).unwrap_or_default();
        let trigger = boot.trigger().unwrap_or_default();
        let texts = [boot.id(), about.machine, build, trigger, boot.fact(Fact::Clock).unwrap_or_default()];
        table.row(texts.map(|name| text(&visible(name))), [input.period_ns as i64])?;
    }
    table.finish()
}

const SAMPLES: &str = "message samples {
    required binary boot (STRING);
    required int32 cpu;
    required binary task (STRING);
    required int64 time_ns;
    required int64 weight;
    required binary state (STRING);
    required int64 stack;
}";

fn samples(input: &Input<'_>, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(SAMPLES, out)?;
    let (places, frames) = (&input.places, frame_ids(input));
    let mut ids: Vec<i64> = Vec::new();
    for stack in places.stacks() {
        ids.resize(stack as usize, 0);
        ids.push(stack_id(input, &frames, stack));
    }
    let lost = stack_of(&[frame_id(input.lost, false)]);
    let tasks: Vec<ByteArray> = input.tracks.tasks.iter().map(|task| text(task)).collect();
    let states = State::NAMES.map(text);
    let (no_task, lost_state) = (text(""), text("lost"));
    for (boot, cpu) in input.cpus() {
        let id = text(&visible(profile.boots.get(boot as usize).map_or("", Boot::id)));
        let mut row = |task: &ByteArray, tsc, weight, state: &ByteArray, stack| {
            let time = input.clock.nanos(boot, tsc) as i64;
            table.row([&id, task, state].map(ByteArray::clone), [i64::from(cpu), time, weight, stack])
        };
        for sample in
            input.tracks.tracks.iter().filter(|one| (one.boot, one.cpu) == (boot, cpu)).flat_map(|one| one.samples())
        {
            let state = &states[places.state(sample.stack) as usize];
            row(&tasks[sample.task as usize], sample.tsc, 1, state, ids[sample.stack as usize])?;
        }
        for loss in input.losses_of((boot, cpu)) {
            row(&no_task, loss.tsc.0, i64::try_from(loss.samples).unwrap_or(i64::MAX), &lost_state, lost)?;
        }
    }
    table.finish()
}

const STACKS: &str = "message stacks {
    required int64 stack;
    required int32 depth;
    required boolean is_self;
    required int64 frame;
}";

fn stacks(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(STACKS, out)?;
    let ids = frame_ids(input);
    let mut rows: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for stack in input.places.stacks() {
        rows.insert(stack_id(input, &ids, stack), frames_of(input, &ids, stack).collect());
    }
    if !input.losses.is_empty() {
        let frame = frame_id(input.lost, false);
        rows.insert(stack_of(&[frame]), vec![frame]);
    }
    for (stack, frames) in rows {
        for (frame, depth) in frames.iter().zip(0..) {
            table.row([], [stack, depth, i64::from(depth as usize + 1 == frames.len()), *frame])?;
        }
    }
    table.finish()
}

const FRAMES: &str = "message frames {
    required int64 frame;
    required binary function (STRING);
    required boolean is_inlined;
    required binary image (STRING);
    required binary file (STRING);
}";

fn frames(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(FRAMES, out)?;
    let names = &input.places.names;
    let mut rows: BTreeMap<i64, [&str; 3]> = BTreeMap::new();
    let mut inlined = BTreeMap::new();
    for (place, id) in input.places.places.iter().zip(frame_ids(input)) {
        let image = place.image.checked_sub(1).map_or("kernel", |at| &input.places.images[at as usize].name);
        let file = place.line.map_or("", |(file, _)| names.name(file));
        rows.entry(id).or_insert([names.name(place.function), image, file]);
        inlined.insert(id, place.depth > 0);
    }
    if !input.losses.is_empty() {
        rows.insert(frame_id(input.lost, false), [input.lost, "", ""]);
    }
    for (id, texts) in rows {
        table.row(texts.map(text), [id, i64::from(inlined.get(&id).is_some_and(|inlined| *inlined))])?;
    }
    table.finish()
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

fn frame_id(function: &str, is_inlined: bool) -> i64 {
    hash(format!("{function}\0{}", u8::from(is_inlined)).as_bytes()) as i64
}

/// The ids of all places.
fn frame_ids(input: &Input<'_>) -> Vec<i64> {
    let id = |place: &Place| frame_id(input.places.names.name(place.function), place.depth > 0);
    input.places.places.iter().map(id).collect()
}

fn frames_of(input: &Input<'_>, ids: &[i64], stack: u32) -> impl Iterator<Item = i64> {
    input.places.of(stack).iter().map(|place| ids[*place as usize])
}

fn stack_id(input: &Input<'_>, ids: &[i64], stack: u32) -> i64 {
    stack_of(&frames_of(input, ids, stack).collect::<Vec<_>>())
}

fn stack_of(frames: &[i64]) -> i64 {
    hash(&frames.iter().flat_map(|frame| frame.to_le_bytes()).collect::<Vec<_>>()) as i64
}

/// Where the Parquet writer puts its bytes, because it needs a writer that can be sent to another thread.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the values of a column. They keep their memory for the next group.
fn write_and_clear<T: DataType>(
    column: &mut ColumnWriterImpl<'_, T>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    column.write_batch(values, None, None)?;
    values.clear();
    Ok(())
}

/// A table that is being written: the rows of the present group, by column.
struct Table<'a> {
    writer: SerializedFileWriter<Bytes>,
    bytes: Bytes,
    out: &'a mut dyn Write,
    texts: Vec<Vec<ByteArray>>,
    numbers: Vec<Vec<i64>>,
    rows: usize,
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

impl<'a> Table<'a> {
    fn new(schema: &str, out: &'a mut dyn Write) -> io::Result<Self> {
        let schema = Arc::new(parse_message_type(schema).map_err(failed)?);
        // Text columns get no statistics. The smallest and the largest text of a group are of no use, and finding them
        // would take most of the time.
        let mut properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        for column in schema.get_fields().iter().filter(|column| column.get_physical_type() == Type::BYTE_ARRAY) {
            properties = properties.set_column_statistics_enabled(column.name().into(), EnabledStatistics::None);
        }
        // Times ascend and are all different; CPUs and weights nearly always repeat. Differences take little space, and
        // less time than a dictionary.
        for column in ["time_ns", "cpu", "weight"] {
            properties = properties.set_column_dictionary_enabled(column.into(), false);
            properties = properties.set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let properties = properties.build();
        let bytes = Bytes::default();
        let writer = SerializedFileWriter::new(bytes.clone(), schema, Arc::new(properties)).map_err(failed)?;
        Ok(Self { writer, bytes, out, texts: Vec::new(), numbers: Vec::new(), rows: 0 })
    }

    /// Adds a row: its texts and its other columns, each in the order of the schema.
    fn row<const T: usize, const N: usize>(&mut self, texts: [ByteArray; T], numbers: [i64; N]) -> io::Result<()> {
        if self.texts.len() + self.numbers.len() < T + N {
            self.texts.resize_with(T, || Vec::with_capacity(GROUP_ROWS));
            self.numbers.resize_with(N, || Vec::with_capacity(GROUP_ROWS));
        }
        texts.into_iter().zip(&mut self.texts).for_each(|(text, column)| column.push(text));
        numbers.into_iter().zip(&mut self.numbers).for_each(|(number, column)| column.push(number));
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> io::Result<()> {
        let (mut texts, mut numbers) = (self.texts.iter_mut(), self.numbers.iter_mut());
        let mut group = self.writer.next_row_group().map_err(failed)?;
        while let Some(mut column) = group.next_column().map_err(failed)? {
            let written = match (column.untyped(), &mut texts, &mut numbers) {
                (ColumnWriter::ByteArrayColumnWriter(column), texts, _) => {
                    texts.next().map(|texts| write_and_clear(column, texts))
                }
                (ColumnWriter::Int64ColumnWriter(column), _, numbers) => {
                    numbers.next().map(|numbers| write_and_clear(column, numbers))
                }
                (ColumnWriter::Int32ColumnWriter(column), _, numbers) => numbers.next().map(|numbers| {
                    write_and_clear(column, &mut numbers.drain(..).map(|number| number as i32).collect())
                }),
                (ColumnWriter::BoolColumnWriter(column), _, numbers) => numbers
                    .next()
                    .map(|numbers| write_and_clear(column, &mut numbers.drain(..).map(|number| number != 0).collect())),
                _ => None,
            };
            written
                .unwrap_or_else(|| Err(ParquetError::General("a column without values".to_owned())))
                .map_err(failed)?;
            column.close().map_err(failed)?;
        }
        group.close().map_err(failed)?;
        self.rows = 0;
        self.drain()
    }

    fn drain(&mut self) -> io::Result<()> {
        let mut bytes = self.bytes.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.out.write_all(&bytes)?;
        bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.group()?;
        }
        self.writer.finish().map_err(failed)?;
        self.writer.flush()?;
        self.drain()
    }
}
