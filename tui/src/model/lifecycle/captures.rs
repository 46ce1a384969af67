//! Stream captures: what began them, what broke them, who took part, how they ended.

use std::collections::VecDeque;
use std::sync::Arc;

use gtop_protocol::calls::{breaks_captures, ends_capture};
use gtop_protocol::lifecycle::{ALLOCATIONS_TOLD, Event, IN_CAPTURE, LAST_DEFAULT_STREAM, What};
use rustc_hash::FxHashMap;

use super::super::snapshot::KernelName;
use super::super::trend::MemoryStep;
use super::graph::Captured;

/// Captures that have ended and are kept.
const MAX_ENDED: usize = 4096;
/// Captures that may be open at once.
const MAX_OPEN: usize = 256;
/// Streams of one capture that are told apart.
const MAX_STREAMS: usize = 64;

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`, `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`.
const INVALIDATED: u32 = 901;
const UNJOINED: u32 = 904;
/// `CU_STREAM_CAPTURE_MODE_GLOBAL`.
const GLOBAL: u32 = 0;

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
    /// The call that broke it, as far as one was seen: the first with a code that breaks captures (900, 902, 903, 905 to
    /// 907); else a launch into it that failed; else the first that said that it was broken (901), or its end.
    pub cause: Option<Cause>,
    /// The kernel launched before that call, in a snapshot.
    pub after: Option<Arc<KernelName>>,
    /// Streams that took part besides, by handle, and whether each was joined back.
    pub streams: Vec<(u64, bool)>,
    /// Whether there was more to tell of who takes part than was told, so that `streams` says nothing.
    pub streams_untold: bool,
    /// Whether its stream or context was destroyed while it was open, so that it has no end of its own.
    pub abandoned: bool,
    /// The graph it gave: handle, and nodes in it.
    pub graph: u64,
    /// Nodes captured.
    pub nodes: u32,
    /// The `CUresult` of instantiating the graph; `None` when that was not tried.
    pub instantiated: Option<u32>,
    /// What its thread allocated meanwhile on devices, without what became nodes, bytes; `None` while it is open and where
    /// that is not known.
    pub allocated: Option<u64>,
    /// How the memory of the process went over one that failed, in a snapshot; `None` where that was not sampled.
    pub memory: Option<MemoryStep>,
}

impl Capture {
    /// Whether it ended with an error.
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.ended.is_some() && self.result != 0
    }

    /// Its mode's name, if it is one that is known.
    #[must_use]
    pub fn mode_name(&self) -> Option<&'static str> {
        ["global", "thread-local", "relaxed"].get(self.mode as usize).copied()
    }

    fn take_part(&mut self, stream: u64, joined: bool) {
        if stream == self.stream || self.streams_untold {
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

    /// Whether it began on this stream, as this thread calls it.
    fn began_on(&self, stream: u64, thread: u32) -> bool {
        self.stream == stream && (stream > LAST_DEFAULT_STREAM || self.thread == thread)
    }

    /// A call failed that may be what broke it.
    fn suspect(&mut self, event: &Event) {
        let begin = event.time.get().saturating_sub(event.ns.get());
        let weighs = |cause: &Cause| match cause.result {
            // What said that it was broken was not the cause of that if it came before; events of two threads may come
            // in another order than they happened.
            INVALIDATED => begin <= cause.time,
            result => !breaks_captures(result),
        };
        let stronger = breaks_captures(event.result.get()) && self.cause.as_ref().is_some_and(weighs);
        if self.cause.is_none() || stronger {
            self.cause = Some(cause(event));
        }
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
                // A stream captures once at a time: the end of the one before was missed.
                self.open.retain(|capture| !capture.began_on(stream, thread));
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
            What::StreamsUntold => {
                for capture in &mut self.open {
                    capture.streams_untold = true;
                    capture.streams.clear();
                }
            }
            What::StreamDestroyed => {
                let handle = event.object.get();
                self.abandon(event.time.get(), |capture| {
                    handle > LAST_DEFAULT_STREAM && capture.stream == handle
                });
            }
            What::ContextDestroyed => {
                let context = event.id.get();
                self.abandon(event.time.get(), |capture| context != 0 && capture.context == context);
            }
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
        let (stream, thread) = (event.stream.get(), event.thread.get());
        let Some(at) = self.open.iter().rposition(|capture| capture.began_on(stream, thread)) else { return };
        // Begun by another thread: it goes on.
        if !ends_capture(event.result.get()) {
            return;
        }
        let mut capture = self.open.remove(at);
        capture.ended = Some(event.time.get());
        capture.result = event.result.get();
        capture.graph = event.object.get();
        capture.allocated = (event.detail.get() == ALLOCATIONS_TOLD).then(|| event.bytes.get());
        match capture.result {
            // Whatever failed meanwhile did it no harm, or none that shows here.
            0 => capture.cause = None,
            UNJOINED => capture.cause = Some(cause(event)),
            _ => {
                capture.cause.get_or_insert(cause(event));
            }
        }
        self.keep(capture);
    }

    /// The capture that just ended and gave this graph.
    pub(super) fn gave(&self, event: &Event) -> Option<Captured> {
        let (time, graph) = (event.time.get(), event.object.get());
        let last = self.ended.back().filter(|last| (last.ended, last.graph) == (Some(time), graph))?;
        let &Capture { begun, stream, thread, allocated, .. } = last;
        Some(Captured { begun, ended: time, stream, thread, allocated })
    }

    fn keep(&mut self, capture: Capture) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(capture);
    }

    /// Captures whose stream is gone do not end.
    fn abandon(&mut self, time: u64, is_gone: impl Fn(&Capture) -> bool) {
        while let Some(at) = self.open.iter().position(&is_gone) {
            let capture = self.open.remove(at);
            self.keep(Capture { ended: Some(time), abandoned: true, ..capture });
        }
    }

    fn of_thread(&mut self, thread: u32) -> Option<&mut Capture> {
        self.open.iter_mut().rev().find(|capture| capture.thread == thread)
    }

    /// A call failed while a capture was open. A call into a stream that is captured is that capture's. Any other one
    /// with a code that breaks captures concerns those of its thread and, whichever thread made it, the global ones.
    pub(super) fn failed_call(&mut self, event: &Event) {
        let what = What::from_wire(event.what);
        if what == Some(What::CaptureEnded) {
            return;
        }
        let result = event.result.get();
        let (stream, thread) = (event.stream.get(), event.thread.get());
        if stream > LAST_DEFAULT_STREAM
            && let Some(capture) = self.open.iter_mut().rev().find(|capture| capture.has(stream))
        {
            if what == Some(What::KernelFailed) || result == INVALIDATED || breaks_captures(result) {
                capture.suspect(event);
            }
            return;
        }
        let own = event.flags & IN_CAPTURE != 0;
        for capture in &mut self.open {
            let of_thread = own && capture.thread == thread;
            if of_thread && result == INVALIDATED
                || breaks_captures(result) && (of_thread || capture.mode == GLOBAL)
            {
                capture.suspect(event);
            }
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

    /// A capture with these modes on streams 7, 8, … of threads 5, 6, …, in which calls fail and which then all end so:
    /// the codes of the calls they are said to be broken by.
    fn broken_by(modes: &[u32], calls: &[Event], result: u32) -> Vec<u32> {
        let mut captures = Captures::default();
        let of = |i: usize, event: Event| Event {
            stream: (7 + i as u64).into(),
            thread: (5 + i as u32).into(),
            ..event
        };
        for (i, mode) in modes.iter().enumerate() {
            let begun = Event { detail: (*mode).into(), ..event(What::CaptureBegun, 1, 7, 0) };
            captures.apply(What::CaptureBegun, &of(i, begun));
        }
        for call in calls {
            captures.failed_call(call);
        }
        (0..modes.len()).for_each(|i| {
            captures.apply(What::CaptureEnded, &of(i, event(What::CaptureEnded, 99, 7, result)));
        });
        captures.ended.iter().map(|capture| capture.cause.map_or(0, |cause| cause.code)).collect()
    }

    fn call(code: u32, time: u64, stream: u64, result: u32) -> Event {
        Event { code: code.into(), ..event(What::Call, time, stream, result) }
    }

    #[test]
    fn only_what_breaks_captures_is_the_cause() {
        let (update, synchronize, allocate, record) = (696, 126, 243, 119);
        let refused = Event { what: What::Updated as u8, ..call(update, 2, 0, 910) };
        let of_memory = call(allocate, 3, 0, 2);
        let launch = Event { what: What::KernelFailed as u8, ..call(307, 4, 7, 901) };
        let broken = call(synchronize, 5, 7, 900);
        assert_eq!(broken_by(&[0], &[refused, of_memory, broken, launch], 901), [synchronize]);
        // Told late, by another thread: what said that it was broken came after it.
        let late = Event { thread: 9.into(), flags: 0, ns: 3.into(), ..call(allocate, 6, 0, 900) };
        assert_eq!(broken_by(&[0], &[launch, late], 901), [allocate]);
        assert_eq!(broken_by(&[0], &[launch, Event { time: 90.into(), ..late }], 901), [307]);
        // A launch into it that is refused can break it; one elsewhere cannot, nor what its end says for itself.
        let too_large = Event { result: 1.into(), ..launch };
        let elsewhere = Event { stream: 9.into(), thread: 9.into(), flags: 0, ..too_large };
        assert_eq!(broken_by(&[0], &[elsewhere, too_large, launch], 901), [307]);
        assert_eq!(broken_by(&[0], &[elsewhere, too_large, broken], 901), [synchronize]);
        assert_eq!(broken_by(&[0], &[elsewhere], 901), [0]);
        assert_eq!(broken_by(&[0], &[too_large], 904), [0]);
        assert_eq!(broken_by(&[0], &[call(record, 2, 7, 900)], 0), [0], "it ended well");
    }

    #[test]
    fn whose_call_breaks_a_capture_depends_on_its_mode() {
        let (global, of_thread, relaxed) = (0, 1, 2);
        let by = |thread: u32, flags: u8| Event { thread: thread.into(), flags, ..call(243, 2, 0, 900) };
        assert_eq!(broken_by(&[global, of_thread, relaxed], &[by(9, 0)], 901), [243, 0, 0]);
        assert_eq!(broken_by(&[of_thread, of_thread], &[by(6, IN_CAPTURE)], 901), [0, 243]);
        assert_eq!(broken_by(&[relaxed], &[by(5, IN_CAPTURE)], 901), [243]);
        // A call into a stream is that stream's.
        let into = Event { thread: 9.into(), flags: 0, ..call(126, 2, 8, 900) };
        assert_eq!(broken_by(&[global, of_thread], &[into], 901), [0, 126]);
    }

    #[test]
    fn who_takes_part_is_not_said_when_it_was_not_told() {
        let mut captures = Captures::default();
        captures.apply(What::CaptureBegun, &event(What::CaptureBegun, 1, 7, 0));
        captures.apply(What::StreamWorks, &event(What::StreamWorks, 2, 8, 0));
        captures.apply(What::StreamsUntold, &event(What::StreamsUntold, 3, 0, 0));
        captures.apply(What::StreamWorks, &event(What::StreamWorks, 4, 9, 0));
        captures.apply(What::CaptureEnded, &event(What::CaptureEnded, 5, 7, 904));
        let capture = &captures.ended[0];
        assert_eq!((capture.streams.len(), capture.streams_untold, capture.failed()), (0, true, true));
    }

    #[test]
    fn captures_of_what_is_destroyed_are_over_and_did_not_fail() {
        let mut captures = Captures::default();
        for (stream, context) in [(7, 1), (8, 1), (9, 2)] {
            let begun = Event { context: context.into(), ..event(What::CaptureBegun, 1, stream, 0) };
            captures.apply(What::CaptureBegun, &begun);
        }
        let gone = Event { object: 8.into(), ..event(What::StreamDestroyed, 2, 0, 0) };
        captures.apply(What::StreamDestroyed, &gone);
        let gone = Event { id: 1.into(), ..event(What::ContextDestroyed, 3, 0, 0) };
        captures.apply(What::ContextDestroyed, &gone);
        let over: Vec<_> =
            captures.ended.iter().map(|c| (c.stream, c.ended, c.abandoned, c.failed())).collect();
        assert_eq!(over, [(8, Some(2), true, false), (7, Some(3), true, false)]);
        assert_eq!(captures.open.iter().map(|capture| capture.stream).collect::<Vec<_>>(), [9]);
        // The same stream captures again, though the end of the one before was not seen.
        captures.apply(What::CaptureBegun, &event(What::CaptureBegun, 4, 9, 0));
        assert_eq!(captures.open.len(), 1);
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
