//! The bodies of the fuzz targets: each takes any bytes and must come back. `tests/fuzz` runs them under
//! libFuzzer, `tests/tests/fuzz.rs` as property tests.

use std::io::Cursor;
use std::ops::ControlFlow;

use gtop_protocol::control::Request;
use gtop_protocol::frame::{Frame, FrameKind, RecordSizes, Runs};
use gtop_protocol::lifecycle;
use gtop_protocol::message::{
    Clock, DeviceSample, Goodbye, Hello, HostBuffers, Kinds, Loss, Notice, Observers, RawBuffer, Reply,
    Sampling, State, names, pools, processes, raw_names, windows,
};
use gtop_protocol::record::{self, Family};
use gtop_protocol::recording::{Decoder, Part, Recording};
use gtop_protocol::viewer::{DeviceNote, Earlier, Halt, Link, Watched};

/// A stream as a viewer reads it: frames, and behind a hello the records by its sizes.
pub fn stream(bytes: &[u8]) {
    let mut sizes = RecordSizes::OURS;
    let mut rest = bytes;
    while let Ok(Some((frame, tail))) = Frame::split(rest) {
        rest = tail;
        message(frame.kind(), frame.body, &mut sizes);
    }
}

/// One body as every kind of frame.
pub fn bodies(bytes: &[u8]) {
    let mut sizes = RecordSizes::OURS;
    for kind in 0..=300 {
        message(FrameKind::from_wire(kind), bytes, &mut sizes);
    }
}

fn message(kind: Option<FrameKind>, body: &[u8], sizes: &mut RecordSizes) {
    match kind {
        Some(FrameKind::Hello) => {
            if let Ok(hello) = Hello::read(body) {
                *sizes = hello.sizes;
            }
        }
        Some(FrameKind::Clock) => {
            let _ = Clock::read(body).is_ok();
        }
        Some(FrameKind::Names) => {
            let _ = names::read(body).count();
        }
        Some(FrameKind::Records) => records(body, *sizes),
        Some(FrameKind::Kinds) => {
            let _ = Kinds::read(body).is_ok();
        }
        Some(FrameKind::State) => {
            let _ = State::read(body).is_ok();
        }
        Some(FrameKind::HostBuffers) => {
            let _ = HostBuffers::read(body).is_ok();
        }
        Some(FrameKind::Pools) => {
            let _ = pools::read(body).count();
        }
        Some(FrameKind::Loss) => {
            let _ = Loss::read(body).is_ok();
        }
        Some(FrameKind::DeviceSample) => {
            if let Ok(sample) = DeviceSample::read(body) {
                processes::read(sample.processes).count();
            }
        }
        Some(FrameKind::Notice) => {
            let _ = Notice::read(body).is_ok();
        }
        Some(FrameKind::Goodbye) => {
            let _ = Goodbye::read(body).is_ok();
        }
        Some(FrameKind::Reply) => {
            let _ = Reply::read(body).is_ok();
        }
        Some(FrameKind::Lifecycle) => {
            let _ = lifecycle::read(body).count();
        }
        Some(FrameKind::Observers) => {
            let _ = Observers::read(body).is_ok();
        }
        Some(FrameKind::RawBuffer) => {
            if let Ok(buffer) = RawBuffer::read(body) {
                raw_names::read(buffer.names).count();
            }
        }
        Some(FrameKind::Sampling) => {
            if let Ok(sampling) = Sampling::read(body) {
                windows::read(sampling.recent).count();
            }
        }
        Some(FrameKind::Request) => {
            let _ = Request::read(body).is_ok();
        }
        Some(FrameKind::Watched) => {
            let _ = Watched::read(body).is_ok();
        }
        Some(FrameKind::Link) => {
            let _ = Link::read(body).is_ok();
        }
        Some(FrameKind::Halt) => {
            let _ = Halt::read(body).is_ok();
        }
        Some(FrameKind::DeviceNote) => {
            let _ = DeviceNote::read(body).is_ok();
        }
        Some(FrameKind::Earlier) => {
            let _ = Earlier::read(body).is_ok();
        }
        Some(FrameKind::Closed) | None => {}
    }
}

/// A file as a recording: all its frames, whatever they are.
pub fn recording(bytes: &[u8]) {
    let Ok(mut recording) = Recording::open(Cursor::new(bytes)) else { return };
    let mut decoder = Decoder::default();
    for part in [Part::Side, Part::Whole] {
        for at in 0..recording.chunks().len() {
            if let Ok(block) = recording.load(at, part) {
                let _ = decoder.decode(&block, &mut |_| ControlFlow::Continue(()));
            }
        }
    }
}

fn records(body: &[u8], sizes: RecordSizes) {
    for run in Runs::new(body, sizes) {
        for bytes in run.records() {
            match run.family() {
                Some(Family::Kernel) => {
                    let _ = record::read::<record::Kernel>(bytes).start.get();
                }
                Some(Family::Copy) => {
                    let _ = record::read::<record::Copy>(bytes).start.get();
                }
                Some(Family::Memset) => {
                    let _ = record::read::<record::Memset>(bytes).start.get();
                }
                Some(Family::Other) => {
                    let _ = record::read::<record::Other>(bytes).start.get();
                }
                None => {}
            }
        }
    }
}
