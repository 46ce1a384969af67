//! One JSON object a line. A record says only what it has; numbers that a double cannot hold are strings.

use std::io::{self, Write};

use super::columns::{COLUMNS, Type, Value};
use super::output::Out;
use super::{Row, Sink};

/// A file of JSON lines.
#[derive(Debug)]
pub(super) struct NdJson(Out);

impl NdJson {
    pub(super) const fn begin(out: Out) -> Self {
        Self(out)
    }
}

impl<'s> Sink<'s> for NdJson {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        let out = &mut self.0;
        let mut between = "{";
        for column in COLUMNS.iter().filter(|column| column.of != Type::Time) {
            let value = (column.get)(row);
            if value == Value::Null {
                continue;
            }
            write!(out, "{between}\"{}\":", column.name)?;
            between = ",";
            match value {
                Value::Number(number) if column.of == Type::Number => write!(out, "{number}")?,
                Value::Number(number) => write!(out, "\"{number}\"")?,
                Value::Text(text) => serde_json::to_writer(&mut *out, text)?,
                Value::Null => {}
            }
        }
        out.write_all(b"}\n")
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
