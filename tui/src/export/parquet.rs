//! Parquet: one row a record, typed columns, row groups in the order of time.

use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use rustc_hash::FxHashMap;

use super::columns::{COLUMNS, Column, Type, Value};
use super::output::Out;
use super::{Row, Sink, TextKey, text_key};

/// Rows of one group: what DuckDB takes as its own measure, and what is held in memory.
const GROUP: usize = 122_880;
/// Bytes of a column's dictionary before values are written in full.
const DICTIONARY: usize = 8 << 20;

/// A Parquet file.
pub(super) struct Parquet<'s> {
    writer: SerializedFileWriter<Out>,
    columns: Vec<Filled<'s>>,
    rows: usize,
    written: u64,
}

/// The values of one column of the row group that is being filled.
struct Filled<'s> {
    column: &'static Column,
    /// 1 where there is a value, 0 where there is none.
    there: Vec<i16>,
    texts: Vec<&'s str>,
    numbers: Vec<i64>,
}

impl Parquet<'_> {
    /// Begins a file without the columns that `without` names.
    pub(super) fn begin(out: Out, without: &[&str]) -> io::Result<Self> {
        let columns: Vec<&Column> = COLUMNS.iter().filter(|column| !without.contains(&column.name)).collect();
        let fields: String = columns
            .iter()
            .map(|column| match column.of {
                Type::Text => format!("OPTIONAL BYTE_ARRAY {} (STRING);", column.name),
                Type::Number | Type::Stamp => format!("OPTIONAL INT64 {};", column.name),
                Type::Wide => format!("OPTIONAL INT64 {} (INTEGER(64,false));", column.name),
                Type::Time => format!("OPTIONAL INT64 {} (TIMESTAMP(MICROS,true));", column.name),
            })
            .collect();
        let schema = parse_message_type(&format!("message record {{{fields}}}")).map_err(as_io)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("gtop {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(as_io)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_dictionary_page_size_limit(DICTIONARY);
        for column in &columns {
            // What is new in every row needs no dictionary.
            if matches!(column.of, Type::Stamp | Type::Time) || column.name == "correlation" {
                let path = ColumnPath::from(column.name);
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let writer =
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(as_io)?;
        let fill = |column| Filled { column, there: Vec::new(), texts: Vec::new(), numbers: Vec::new() };
        Ok(Self { writer, columns: columns.into_iter().map(fill).collect(), rows: 0, written: 0 })
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let mut texts: FxHashMap<TextKey, ByteArray> = FxHashMap::default();
        for filled in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            if filled.column.of == Type::Text {
                let text = |text: &&str| {
                    texts.entry(text_key(text)).or_insert_with(|| ByteArray::from(*text)).clone()
                };
                let values: Vec<ByteArray> = filled.texts.iter().map(text).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&filled.there), None)?;
            } else {
                column.typed::<Int64Type>().write_batch(&filled.numbers, Some(&filled.there), None)?;
            }
            column.close()?;
            filled.there.clear();
            filled.texts.clear();
            filled.numbers.clear();
        }
        group.close()?;
        self.written += self.rows as u64;
        self.rows = 0;
        Ok(())
    }
}

impl<'s> Sink<'s> for Parquet<'s> {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        for filled in &mut self.columns {
            let value = (filled.column.get)(row);
            filled.there.push(i16::from(value != Value::Null));
            match value {
                Value::Null => {}
                Value::Text(text) => filled.texts.push(text),
                Value::Number(number) if filled.column.of == Type::Time => {
                    filled.numbers.push((number / 1000).cast_signed());
                }
                Value::Number(number) => filled.numbers.push(number.cast_signed()),
            }
        }
        self.rows += 1;
        if self.rows >= GROUP {
            self.end_group().map_err(as_io)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let bytes = self.writer.bytes_written() as u64;
        // What waits will be about as large as what was written.
        let each = bytes.checked_div(self.written).unwrap_or(30);
        bytes + each * self.rows as u64
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.end_group().map_err(as_io)?;
        }
        self.writer.finish().map_err(as_io)?;
        self.writer.flush()
    }
}

/// The system's own error, where that is the cause.
fn as_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
