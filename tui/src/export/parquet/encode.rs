//! Row groups as the bytes of a file.

use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::texts::Packer;
use super::{Filled, Values};
use crate::export::columns::{Column, Type};
use crate::export::output::Out;

/// Bytes of a column's dictionary before values are written in full.
const DICTIONARY: usize = 8 << 20;
/// How hard zstd tries: not very.
pub(super) const LEVEL: i32 = 1;

/// A file that is being written.
pub(super) struct Encoder {
    writer: SerializedFileWriter<Out>,
    packer: Packer,
}

impl Encoder {
    pub(super) fn begin(out: Out, columns: &[&Column]) -> io::Result<Self> {
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
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL).map_err(as_io)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_dictionary_page_size_limit(DICTIONARY)
            .set_offset_index_disabled(true);
        for column in columns {
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
        Ok(Self { writer, packer: Packer::new()? })
    }

    /// Writes a row group.
    pub(super) fn encode(&mut self, columns: &[Filled]) -> io::Result<()> {
        let described = self.writer.schema_descr().columns().to_vec();
        let mut group = self.writer.next_row_group().map_err(as_io)?;
        for (filled, column) in columns.iter().zip(described) {
            match &filled.values {
                Values::Texts(texts) => {
                    let (bytes, close) = self.packer.pack(column, texts, &filled.there).map_err(as_io)?;
                    group.append_column(&bytes, close).map_err(as_io)?;
                }
                Values::Numbers(numbers) => {
                    let Some(mut column) = group.next_column().map_err(as_io)? else { break };
                    let typed = column.typed::<Int64Type>();
                    typed.write_batch(numbers, Some(&filled.there), None).map_err(as_io)?;
                    column.close().map_err(as_io)?;
                }
            }
        }
        group.close().map_err(as_io)?;
        Ok(())
    }

    /// Writes what is still owed.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.writer.finish().map_err(as_io)?;
        self.writer.flush()
    }

    /// Bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
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
