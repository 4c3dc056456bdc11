//! A table in Parquet that is being written, row by row. Stage: output.
//!
//! In: a schema of required texts and of numbers and truth values, and rows. Out: the file, in groups of rows, so that
//! no more than a group is in memory. A number of an optional column may be [`NULL`].

use parquet::basic::{Compression, Encoding, Type};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a group. Readers take a group at a time.
const GROUP_ROWS: usize = 1 << 17;

/// Instead of a number: it is not known. Only optional columns may have it.
pub(super) const NULL: i64 = i64::MIN;

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

/// The same for numbers, of which those of an optional column may be [`NULL`].
fn write_numbers<T: DataType>(
    column: &mut ColumnWriterImpl<'_, T>,
    numbers: &mut Vec<i64>,
    value: impl Fn(i64) -> T::T,
) -> Result<(), ParquetError> {
    let is_optional = column.get_descriptor().max_def_level() > 0;
    let levels: Option<Vec<i16>> =
        is_optional.then(|| numbers.iter().map(|number| i16::from(*number != NULL)).collect());
    let known = numbers.drain(..).filter(|number| !is_optional || *number != NULL);
    column.write_batch(&known.map(value).collect::<Vec<_>>(), levels.as_deref(), None)?;
    Ok(())
}

/// A table that is being written: the rows of the present group, by column.
pub(super) struct Table<'a> {
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
    pub(super) fn new(schema: &str, out: &'a mut dyn Write) -> io::Result<Self> {
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
    pub(super) fn row<const T: usize, const N: usize>(
        &mut self,
        texts: [ByteArray; T],
        numbers: [i64; N],
    ) -> io::Result<()> {
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
                    numbers.next().map(|numbers| match column.get_descriptor().max_def_level() {
                        0 => write_and_clear(column, numbers),
                        _ => write_numbers(column, numbers, |number| number),
                    })
                }
                (ColumnWriter::Int32ColumnWriter(column), _, numbers) => {
                    numbers.next().map(|numbers| write_numbers(column, numbers, |number| number as i32))
                }
                (ColumnWriter::BoolColumnWriter(column), _, numbers) => {
                    numbers.next().map(|numbers| write_numbers(column, numbers, |number| number != 0))
                }
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

    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.group()?;
        }
        self.writer.finish().map_err(failed)?;
        self.writer.flush()?;
        self.drain()
    }
}
