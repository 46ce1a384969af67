//! Stream captures: what began them, what broke them, who took part, how they ended.

use std::collections::VecDeque;

use gtop_protocol::lifecycle::{Event, IN_CAPTURE, What};
use rustc_hash::FxHashMap;

/// Captures that have ended and are kept.
const MAX_ENDED: usize = 4096;
/// Captures that may be open at once.
const MAX_OPEN: usize = 256;
/// Streams of one capture that are told apart.
const MAX_STREAMS: usize = 64;

/// A call that failed in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Callback id of the call.
    pub code: u32,
    /// `CUresult`.
    pub result: u32,
    /// Thread that made it.
    pub thread: u32,
    /// When, `CLOCK_REALTIME` nanoseconds.
    pub time: u64,
    /// Its stream's handle; 0 when it has none, or the legacy stream.
    pub stream: u64,
    /// Name id of the kernel launched before it on its thread; 0 is none.
    pub kernel: u32,
}

/// One capture.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Handle of the stream it began on.
    pub stream: u64,
    /// CUPTI's id of the context.
    pub context: u32,
    /// Thread that began it.
    pub thread: u32,
    /// `CUstreamCaptureMode`: 0 global, 1 of the thread, 2 relaxed.
    pub mode: u32,
    /// When, `CLOCK_REALTIME` nanoseconds.
    pub begun: u64,
    /// When it ended; `None` while it is open.
    pub ended: Option<u64>,
    /// The `CUresult` of its end.
    pub result: u32,
    /// The first call that failed in it.
    pub cause: Option<Cause>,
    /// Streams that took part besides, by handle, and whether each was joined back.
    pub streams: Vec<(u64, bool)>,
    /// The graph it gave: handle, and nodes in it.
    pub graph: u64,
    /// Nodes captured.
    pub nodes: u32,
    /// The `CUresult` of instantiating the graph; `None` when that was not tried.
    pub instantiated: Option<u32>,
}

impl Capture {
    /// Whether it ended with an error.
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.ended.is_some() && self.result != 0
    }

    fn take_part(&mut self, stream: u64, joined: bool) {
        if stream == self.stream {
            return;
        }
        match self.streams.iter().position(|(other, _)| *other == stream) {
            Some(at) => self.streams[at].1 = joined,
            None if self.streams.len() < MAX_STREAMS => self.streams.push((stream, joined)),
            None => {}
        }
    }

    fn has(&self, stream: u64) -> bool {
        self.stream == stream || self.streams.iter().any(|(other, _)| *other == stream)
    }
}

/// All captures of a process.
#[derive(Debug, Default)]
pub(in super::super) struct Captures {
    pub(in super::super) open: Vec<Capture>,
    pub(in super::super) ended: VecDeque<Capture>,
    /// The stream each event was recorded on last, in a capture.
    marks: FxHashMap<u64, u64>,
}

impl Captures {
    pub(super) fn apply(&mut self, what: What, event: &Event) {
        let (stream, thread) = (event.stream.get(), event.thread.get());
        match what {
            What::CaptureBegun if event.result.get() == 0 => {
                if self.open.len() >= MAX_OPEN {
                    self.open.remove(0);
                }
                self.open.push(Capture {
                    stream,
                    context: event.context.get(),
                    thread,
                    mode: event.detail.get(),
                    begun: event.time.get(),
                    ..Capture::default()
                });
            }
            What::CaptureEnded => self.end(event),
            What::StreamWorks => {
                if let Some(capture) = self.of_thread(thread) {
                    capture.take_part(stream, false);
                }
            }
            What::StreamMarked if self.marks.len() < 1 << 14 => {
                self.marks.insert(event.object.get(), stream);
            }
            What::StreamWaits => {
                let Some(marked) = self.marks.get(&event.object.get()).copied() else { return };
                let Some(capture) = self.open.iter_mut().rev().find(|capture| capture.has(marked)) else {
                    return;
                };
                if capture.has(stream) {
                    // The stream that waits has all that the other one did.
                    capture.take_part(marked, true);
                } else {
                    capture.take_part(stream, false);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, event: &Event) {
        let stream = event.stream.get();
        let Some(at) = self.open.iter().rposition(|capture| capture.stream == stream) else { return };
        // Begun by another thread: it goes on.
        if !matches!(event.result.get(), 0 | 901..=907) {
            return;
        }
        let mut capture = self.open.remove(at);
        capture.ended = Some(event.time.get());
        capture.result = event.result.get();
        capture.graph = event.object.get();
        if capture.failed() {
            capture.cause.get_or_insert(cause(event));
        }
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(capture);
    }

    fn of_thread(&mut self, thread: u32) -> Option<&mut Capture> {
        self.open.iter_mut().rev().find(|capture| capture.thread == thread)
    }

    /// A call failed while a capture was open. The first one is what broke it: later ones only say so.
    pub(super) fn failed_call(&mut self, event: &Event) {
        if What::from_wire(event.what) == Some(What::CaptureEnded) {
            return;
        }
        let own = event.flags & IN_CAPTURE != 0;
        let (stream, thread) = (event.stream.get(), event.thread.get());
        let broken = self.open.iter_mut().rev().find(|capture| {
            if own { capture.thread == thread || capture.stream == stream } else { capture.mode == 0 }
        });
        if let Some(capture) = broken {
            capture.cause.get_or_insert(cause(event));
        }
    }

    /// Counts the nodes that go into the graphs of captures.
    pub(super) fn graph(&mut self, what: What, event: &Event) {
        if what == What::Nodes
            && let Some(capture) = self.of_thread(event.thread.get())
        {
            capture.nodes = capture.nodes.saturating_add(event.count.get());
        }
    }

    pub(super) fn instantiated(&mut self, event: &Event) {
        let graph = event.other.get();
        let made = |capture: &&mut Capture| capture.graph == graph && capture.instantiated.is_none();
        if let Some(capture) = self.ended.iter_mut().rev().take(64).find(made) {
            capture.instantiated = Some(event.result.get());
        }
    }
}

fn cause(event: &Event) -> Cause {
    Cause {
        code: event.code.get(),
        result: event.result.get(),
        thread: event.thread.get(),
        time: event.time.get(),
        stream: event.stream.get(),
        kernel: event.name.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: What, time: u64, stream: u64, result: u32) -> Event {
        Event {
            what: what as u8,
            time: time.into(),
            stream: stream.into(),
            result: result.into(),
            thread: 5.into(),
            flags: IN_CAPTURE,
            ..Event::default()
        }
    }

    #[test]
    fn a_failure_is_told_at_its_cause() {
        let mut captures = Captures::default();
        captures.apply(What::CaptureBegun, &event(What::CaptureBegun, 9, 7, 0));
        captures.failed_call(&Event { code: 243.into(), stream: 0.into(), ..event(What::Call, 10, 0, 900) });
        captures.failed_call(&event(What::KernelFailed, 11, 7, 901));
        captures.apply(What::CaptureEnded, &event(What::CaptureEnded, 12, 7, 901));
        let capture = &captures.ended[0];
        let cause = capture.cause.unwrap();
        assert_eq!((cause.code, cause.result, cause.time), (243, 900, 10));
        assert_eq!((capture.result, capture.ended, captures.open.len()), (901, Some(12), 0));
    }

    #[test]
    fn unjoined_streams_are_named() {
        let (a, b, c) = (0xa, 0xb, 0xc);
        let mut captures = Captures::default();
        captures.apply(What::CaptureBegun, &event(What::CaptureBegun, 1, a, 0));
        for (i, stream) in [(1u64, b), (2, c)] {
            captures
                .apply(What::StreamMarked, &Event { object: i.into(), ..event(What::StreamMarked, 2, a, 0) });
            captures.apply(
                What::StreamWaits,
                &Event { object: i.into(), ..event(What::StreamWaits, 3, stream, 0) },
            );
            captures.apply(What::StreamWorks, &event(What::StreamWorks, 4, stream, 0));
        }
        captures.apply(What::StreamMarked, &Event { object: 3.into(), ..event(What::StreamMarked, 5, c, 0) });
        captures.apply(What::StreamWaits, &Event { object: 3.into(), ..event(What::StreamWaits, 6, a, 0) });
        captures.apply(What::CaptureEnded, &event(What::CaptureEnded, 7, a, 904));
        assert_eq!(captures.ended[0].streams, [(b, false), (c, true)]);
    }

    #[test]
    fn captures_on_two_threads_at_once_are_told_apart() {
        let mut captures = Captures::default();
        for thread in [5, 6] {
            let begun = event(What::CaptureBegun, 1, u64::from(thread), 0);
            captures.apply(What::CaptureBegun, &Event { thread: thread.into(), ..begun });
        }
        captures.failed_call(&Event { thread: 6.into(), ..event(What::Call, 2, 0, 900) });
        for thread in [5u32, 6] {
            let result = if thread == 6 { 901 } else { 0 };
            let ended = event(What::CaptureEnded, 3, u64::from(thread), result);
            captures.apply(What::CaptureEnded, &Event { thread: thread.into(), ..ended });
        }
        assert_eq!(captures.ended[0].cause, None);
        assert_eq!(captures.ended[1].cause.map(|cause| cause.result), Some(900));
    }

    #[test]
    fn an_end_by_the_wrong_thread_ends_nothing() {
        let mut captures = Captures::default();
        captures.apply(What::CaptureEnded, &event(What::CaptureEnded, 1, 7, 901));
        captures.apply(What::CaptureBegun, &event(What::CaptureBegun, 1, 7, 0));
        captures.apply(What::CaptureEnded, &event(What::CaptureEnded, 2, 7, 908));
        assert_eq!((captures.open.len(), captures.ended.len()), (1, 0));
    }
}
