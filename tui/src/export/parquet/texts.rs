//! A column of texts as a dictionary and the numbers of its entries. The texts are known by number already, and are
//! long: to look each of them up again, as the library would, takes longer than everything else.

use std::io;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::encode::LEVEL;

/// Bytes of the least and the greatest text, up to which they are worth telling of a row group.
const TELLING: usize = 64;

/// The texts of a column of a row group.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// The number of each row's text, for rows that have one.
    pub(super) ids: Vec<u32>,
    /// Each text once, with its length before it: Parquet's plain encoding.
    plain: Vec<u8>,
    count: u32,
}

impl Texts {
    /// Takes in the text of the next number.
    pub(super) fn add(&mut self, text: &str) {
        self.plain.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.plain.extend_from_slice(text.as_bytes());
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.plain.clear();
        self.count = 0;
    }

    fn all(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.plain.as_slice();
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let (text, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = after;
            Some(text)
        })
    }

    fn statistics(&self, nulls: u64) -> Statistics {
        let ends = self.all().min().zip(self.all().max());
        let ends = ends.filter(|(least, greatest)| least.len().max(greatest.len()) <= TELLING);
        let (least, greatest) =
            ends.map(|(a, b)| (ByteArray::from(a.to_vec()), ByteArray::from(b.to_vec()))).unzip();
        Statistics::new(least, greatest, None, Some(nulls), false)
    }
}

/// Makes columns; its memory is used again.
pub(super) struct Packer {
    zstd: zstd::bulk::Compressor<'static>,
    page: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Compressor::new(LEVEL)?, page: Vec::new() })
    }

    /// The bytes of a column chunk, and what is to be said of it. `there` is 1 for rows that have a text, else 0.
    pub(super) fn pack(
        &mut self,
        column: ColumnDescPtr,
        texts: &Texts,
        there: &[i16],
    ) -> Result<(Bytes, ColumnCloseResult)> {
        let rows = there.len() as u32;
        let page = &mut self.page;
        // How many bytes tell where there are texts, that, and then which ones in so many bits.
        page.clear();
        page.extend_from_slice(&[0; 4]);
        hybrid(page, 1, there.iter().map(|there| *there as u32));
        let len = (page.len() - 4) as u32;
        page[..4].copy_from_slice(&len.to_le_bytes());
        let width = u32::BITS - texts.count.saturating_sub(1).leading_zeros();
        page.push(width as u8);
        hybrid(page, width, texts.ids.iter().copied());

        let mut chunk = TrackedWrite::new(Vec::new());
        let mut writer = SerializedPageWriter::new(&mut chunk);
        let dictionary = Page::DictionaryPage {
            buf: self.zstd.compress(&texts.plain)?.into(),
            num_values: texts.count,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let dictionary = writer.write_page(CompressedPage::new(dictionary, texts.plain.len()))?;
        let data = Page::DataPage {
            buf: self.zstd.compress(&self.page)?.into(),
            num_values: rows,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let data = writer.write_page(CompressedPage::new(data, self.page.len()))?;
        writer.close()?;
        let bytes = Bytes::from(chunk.into_inner()?);
        let both = |a: usize, b: usize| (a as u64 + b as u64).cast_signed();
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_total_compressed_size(both(dictionary.compressed_size, data.compressed_size))
            .set_total_uncompressed_size(both(dictionary.uncompressed_size, data.uncompressed_size))
            .set_num_values(rows.into())
            .set_dictionary_page_offset(Some(dictionary.offset.cast_signed()))
            .set_data_page_offset(data.offset.cast_signed())
            .set_statistics(texts.statistics(u64::from(rows) - texts.ids.len() as u64))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows.into(),
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes, close))
    }
}

/// Numbers of so many bits in Parquet's hybrid of runs and packed bits: one run when they are all the same, else all
/// packed, in groups of eight.
fn hybrid(out: &mut Vec<u8>, width: u32, numbers: impl ExactSizeIterator<Item = u32> + Clone) {
    let count = numbers.len();
    let Some(first) = numbers.clone().next() else { return };
    if numbers.clone().all(|number| number == first) {
        put_varint(out, count << 1);
        out.extend_from_slice(&first.to_le_bytes()[..width.div_ceil(8) as usize]);
        return;
    }
    put_varint(out, count.div_ceil(8) << 1 | 1);
    let (mut bits, mut held) = (0u64, 0);
    let padding = count.next_multiple_of(8) - count;
    for number in numbers.chain(std::iter::repeat_n(0, padding)) {
        bits |= u64::from(number) << held;
        held += width;
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
