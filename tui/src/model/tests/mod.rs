//! The model as a whole, fed with frames made by hand and with the walk of real buffers.

use gtop_protocol::frame::{Frame, FrameKind, MAX_BODY, write_frame};
use gtop_protocol::message::{
    Clock, DeviceSample, Hello, HelloFields, Kinds, Loss, Notice, Pool, PoolState, State, StateCode, names,
    pools, processes,
};
use gtop_protocol::record::{Copy, Family, Kernel, Memset, NO_DEVICE, Other};
use gtop_protocol::wire::{Full, Writer};
use gtop_protocol::{Kind, Notes, Validity};
use zerocopy::{Immutable, IntoBytes};

use super::snapshot::{LaneKey, Link, Snapshot, SourceKind};
use super::time::{Moment, SECOND};
use super::{Conn, Model};

mod cases;
mod losses;
mod properties;
mod records;
mod state;
mod trust;

const BASE: u64 = 1_764_000_000_000_000_000;

/// Makes frames of one connection.
#[derive(Default)]
struct Stream {
    seq: u64,
}

impl Stream {
    fn frame(&mut self, kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
        self.seq += 1;
        let mut buf = vec![0; MAX_BODY];
        let len = write_frame(&mut buf, kind, self.seq, body).unwrap();
        buf.truncate(len);
        buf
    }

    fn hello(&mut self) -> Vec<u8> {
        let fields = HelloFields {
            pid: 42,
            name: b"Engine\x1bCore",
            command: b"vllm\0serve\0x",
            environment: b"RANK=3\0X",
            cupti_version: Some(130_001),
            cupti_interface: 1,
            ..Default::default()
        };
        self.frame(FrameKind::Hello, |w| Hello::new(fields).write(w))
    }

    fn records<R: IntoBytes + Immutable>(&mut self, family: Family, records: &[R]) -> Vec<u8> {
        self.frame(FrameKind::Records, |w| {
            w.u32(family as u32)?;
            w.u32(records.len() as u32)?;
            records.iter().try_for_each(|record| w.bytes(record.as_bytes()))
        })
    }

    fn kernels(&mut self, kernels: &[Kernel]) -> Vec<u8> {
        self.records(Family::Kernel, kernels)
    }

    fn kinds(&mut self, kinds: &[Kind]) -> Vec<u8> {
        let enabled = kinds.iter().map(|kind| 1 << *kind as u32).sum();
        self.frame(FrameKind::Kinds, |w| Kinds { enabled, ..Default::default() }.write(w))
    }
}

fn kernel(name: u32, start: u64, end: u64) -> Kernel {
    Kernel {
        start: start.into(),
        end: end.into(),
        name: name.into(),
        context: 1.into(),
        stream: 7.into(),
        device: 0.into(),
        ..Kernel::default()
    }
}

fn bad(validity: Validity, start: u64, end: u64) -> Kernel {
    Kernel { validity: validity as u8, ..kernel(1, start, end) }
}

fn call(correlation: u64, start: u64, end: u64) -> Other {
    Other {
        start: start.into(),
        end: end.into(),
        correlation: correlation.into(),
        cupti_kind: Kind::Runtime.cupti().into(),
        device: NO_DEVICE.into(),
        ..Other::default()
    }
}

fn at(second: u64) -> Moment {
    Moment { wall: BASE + second * SECOND, steady: second * SECOND }
}

fn model() -> (Model, Conn, Stream) {
    let mut model = Model::new(SourceKind::Live, "pid 844");
    let conn = model.add(844);
    (model, conn, Stream::default())
}

fn feed(model: &mut Model, conn: Conn, bytes: &[u8], at: Moment) {
    assert_eq!(model.apply_all(conn, bytes, at), Ok(bytes.len()));
}

/// A live model fed with these frames at one moment.
fn fed(frames: impl FnOnce(&mut Stream) -> Vec<Vec<u8>>) -> Snapshot {
    let (mut model, conn, mut stream) = model();
    for frame in frames(&mut stream) {
        feed(&mut model, conn, &frame, at(1));
    }
    model.snapshot(at(1))
}
