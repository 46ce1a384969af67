//! CSV as RFC 4180 has it, with a header: nothing between commas is no value, `""` is an empty text.

use std::io::{self, Write};

use super::columns::{COLUMNS, Type, Value};
use super::output::Out;
use super::{Row, Sink};

/// A file of comma-separated values.
#[derive(Debug)]
pub(super) struct Csv(Out);

impl Csv {
    pub(super) fn begin(mut out: Out) -> io::Result<Self> {
        let names: Vec<&str> =
            COLUMNS.iter().filter(|column| column.of != Type::Time).map(|column| column.name).collect();
        writeln!(out, "{}", names.join(","))?;
        Ok(Self(out))
    }
}

impl<'s> Sink<'s> for Csv {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        let out = &mut self.0;
        for (at, column) in COLUMNS.iter().filter(|column| column.of != Type::Time).enumerate() {
            if at > 0 {
                out.write_all(b",")?;
            }
            match (column.get)(row) {
                Value::Null => {}
                Value::Number(number) => write!(out, "{number}")?,
                Value::Text(text) => quoted(out, text)?,
            }
        }
        out.write_all(b"\n")
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn quoted(out: &mut Out, text: &str) -> io::Result<()> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b',' && byte != b'"' || byte >= 0x80;
    if !text.is_empty() && text.bytes().all(plain) {
        return out.write_all(text.as_bytes());
    }
    out.write_all(b"\"")?;
    for (at, part) in text.split('"').enumerate() {
        if at > 0 {
            out.write_all(b"\"\"")?;
        }
        out.write_all(part.as_bytes())?;
    }
    out.write_all(b"\"")
}
