//! Chrome's JSON, which many viewers open: times in microseconds with three decimals since an origin that is told once,
//! because a double does not hold nanoseconds since the epoch. Records without believable times are metadata, which
//! has no place in time.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::columns::{COLUMNS, Type, Value};
use super::lanes::{Lanes, Track, device_name};
use super::output::Out;
use super::rows::About;
use super::{Counter, Owner, Process, Row, Sink};

/// The process of what belongs to the machine; 0 is nobody's.
const MACHINE: u32 = 0;

/// A JSON trace.
pub(super) struct Chrome {
    out: Out,
    origin: u64,
    lanes: Lanes<(u32, Track)>,
    /// The threads that stand for tracks, by process, track and lane.
    threads: FxHashMap<(u32, Track, usize), u32>,
    /// Threads of each process so far.
    processes: FxHashMap<u32, u32>,
    some: bool,
}

/// Microseconds that were nanoseconds.
struct Micros(i128);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, ns) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}.{:03}", ns / 1000, ns % 1000)
    }
}

impl Chrome {
    pub(super) fn begin(mut out: Out, about: About<'_>) -> io::Result<Self> {
        #[derive(Serialize)]
        struct Said<'a> {
            gtop: &'static str,
            host: Option<&'a str>,
            /// Nanoseconds since the epoch at which `ts` is 0.
            origin_ns: String,
        }
        let said =
            Said { gtop: env!("CARGO_PKG_VERSION"), host: about.host, origin_ns: about.origin.to_string() };
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
        serde_json::to_writer(&mut out, &said)?;
        out.write_all(b",\"traceEvents\":[")?;
        Ok(Self {
            out,
            origin: about.origin,
            lanes: Lanes::default(),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            some: false,
        })
    }

    fn begin_event(&mut self, phase: char, pid: u32, tid: u32) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.some, true) { "," } else { "" };
        write!(self.out, "{comma}\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid}")
    }

    fn named(&mut self, what: &str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        self.begin_event('M', pid, tid)?;
        write!(self.out, ",\"name\":\"{what}\",\"args\":{{\"name\":")?;
        serde_json::to_writer(&mut self.out, name)?;
        self.out.write_all(b"}}")
    }

    fn text(&mut self, key: &str, text: &str) -> io::Result<()> {
        write!(self.out, ",\"{key}\":")?;
        Ok(serde_json::to_writer(&mut self.out, text)?)
    }

    fn time(&mut self, key: &str, at: u64) -> io::Result<()> {
        write!(self.out, ",\"{key}\":{}", Micros(i128::from(at) - i128::from(self.origin)))
    }

    /// Names a process when it is new.
    fn meet(&mut self, key: u32, label: impl FnOnce() -> String) -> io::Result<()> {
        if self.processes.contains_key(&key) {
            return Ok(());
        }
        self.processes.insert(key, 0);
        self.named("process_name", key, 0, &label())
    }

    fn thread(&mut self, process: &Process, track: Track, lane: usize) -> io::Result<u32> {
        let key = (process.key, track, lane);
        if let Some(thread) = self.threads.get(&key) {
            return Ok(*thread);
        }
        self.meet(process.key, || process.label())?;
        let threads = self.processes.entry(process.key).or_default();
        *threads += 1;
        let thread = *threads;
        self.threads.insert(key, thread);
        let device = track.device().map_or_else(String::new, |device| format!("{} ", device_name(device)));
        let beside = if lane == 0 { String::new() } else { format!(", beside it: {lane}") };
        self.named("thread_name", process.key, thread, &format!("{device}{track}{beside}"))?;
        Ok(thread)
    }

    /// What a row has beside name, kind and times.
    fn args(&mut self, row: &Row<'_>) -> io::Result<()> {
        self.out.write_all(b",\"args\":{")?;
        let mut between = "";
        for column in COLUMNS {
            let is_told = matches!(
                column.name,
                "host" | "pid" | "process" | "kind" | "name" | "duration_ns" | "arrived_ns"
            );
            let value = (column.get)(row);
            // Absolute times would be taken for what they are not.
            let is_time = matches!(column.of, Type::Stamp | Type::Time);
            let is_same = column.name == "mangled" && row.mangled == row.name;
            if is_told || is_time || is_same || value == Value::Null {
                continue;
            }
            write!(self.out, "{between}\"{}\":", column.name)?;
            between = ",";
            match value {
                Value::Number(number) if column.of == Type::Number => write!(self.out, "{number}")?,
                Value::Number(number) => write!(self.out, "\"{number}\"")?,
                Value::Text(text) => serde_json::to_writer(&mut self.out, text)?,
                Value::Null => {}
            }
        }
        self.out.write_all(b"}}")
    }
}

impl<'s> Sink<'s> for Chrome {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        let (track, process) = (Track::of(row), row.process);
        let name = row.name.unwrap_or("unknown");
        let Some((start, end)) = row.time else {
            self.meet(process.key, || process.label())?;
            self.begin_event('M', process.key, 0)?;
            self.text("name", "invalid_record")?;
            self.text("cat", row.kind)?;
            self.out.write_all(b",\"args\":{\"name\":")?;
            serde_json::to_writer(&mut self.out, name)?;
            let (start, end) = row.record.raw();
            let class = row.class_name();
            return write!(
                self.out,
                ",\"class\":\"{class}\",\"raw_start\":\"{start}\",\"raw_end\":\"{end}\"}}}}"
            );
        };
        let is_moment = row.kind == "memory" && start == end;
        let lane = if is_moment { 0 } else { self.lanes.place((process.key, track), start, end) };
        let thread = self.thread(process, track, lane)?;
        self.begin_event(if is_moment { 'i' } else { 'X' }, process.key, thread)?;
        self.time("ts", start)?;
        if is_moment {
            self.text("s", "t")?;
        } else {
            write!(self.out, ",\"dur\":{}", Micros(i128::from(end - start)))?;
        }
        self.text("name", name)?;
        self.text("cat", row.kind)?;
        self.args(row)
    }

    fn counter(&mut self, counter: &Counter<'s>) -> io::Result<()> {
        let pid = match counter.owner {
            Owner::Device(_) => {
                self.meet(MACHINE, || "machine".to_owned())?;
                MACHINE
            }
            Owner::Process(process) => {
                self.meet(process.key, || process.label())?;
                process.key
            }
        };
        self.begin_event('C', pid, 0)?;
        self.time("ts", counter.at)?;
        self.text("name", &counter.title())?;
        // Values are finite: they are made of whole numbers.
        write!(self.out, ",\"args\":{{\"value\":{}}}}}", counter.value)
    }

    fn bytes(&self) -> u64 {
        self.out.bytes()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}
