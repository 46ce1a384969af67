//! What viewers ask of the shim, and what it says to them.

use super::Server;
use crate::asked::{Asked, What};
use crate::room;
use crate::shared::{Answer, Ask, Note, Task};
use crate::sys;
use crate::viewer::Viewer;
use crate::world::World;
use gtop_protocol::frame::FrameKind;
use gtop_protocol::message::{FULL, Goodbye, Notice, Outcome, Reply, Severity};
use std::collections::VecDeque;

impl Server {
    pub(super) fn receive(&mut self) {
        let mut at = 0;
        while let Some(viewer) = self.viewers.get_mut(at) {
            let mut inbox: VecDeque<Asked> = VecDeque::new();
            let alive = !viewer.has_said
                || !viewer.listens()
                || viewer.receive(|frame| {
                    if frame.kind() == Some(FrameKind::Request) {
                        let _ = room::push_back(&mut inbox, Asked::read(frame.body));
                    }
                });
            for asked in inbox {
                self.handle(at, &asked);
            }
            if alive {
                at = at.saturating_add(1);
            } else {
                self.viewers.remove(at);
                self.count_watchers();
            }
        }
    }

    fn handle(&mut self, at: usize, asked: &Asked) {
        let read_only = self.shim.config.read_only;
        let now = sys::monotonic();
        let watches = self.viewers.get(at).is_some_and(|viewer| viewer.watching);
        let crowded = matches!(asked.what, What::Do(Task::Watch)) && !watches && !self.may_watch(now);
        let world = world!(self);
        let Some(viewer) = self.viewers.get_mut(at) else { return };
        viewer.asked_at = now;
        if crowded {
            viewer.say(FrameKind::Goodbye, |w| Goodbye { reason: FULL }.write(w));
            viewer.parts = true;
            return;
        }
        let (id, what) = (asked.id, asked.what);
        if read_only
            && !matches!(
                what,
                What::Do(Task::Watch) | What::Unwatch | What::Raw(_) | What::Damaged | What::Unknown
            )
        {
            reply(viewer, id, Outcome::Refused, b"this process allows viewing only (GTOP_READ_ONLY)");
            return;
        }
        match what {
            What::Do(task) => {
                if task == Task::Watch {
                    viewer.join(&world);
                }
                let ask =
                    Ask { viewer: viewer.id, request: id, yes: asked.yes && !read_only, task, by: asked.by };
                self.start_control();
                self.count_watchers();
                let refused: Option<&[u8]> = if !self.control {
                    Some(b"the process can start no thread more, which calling CUPTI takes")
                } else if self.shim.ask(ask) {
                    None
                } else {
                    Some(b"too many requests wait for CUPTI")
                };
                if let (Some(why), Some(viewer)) = (refused, self.viewers.get_mut(at)) {
                    reply(viewer, id, Outcome::Failed, why);
                }
            }
            What::Unwatch => {
                viewer.part();
                reply(viewer, id, Outcome::Done, b"");
                self.count_watchers();
            }
            What::Mark(text) => {
                reply(viewer, id, Outcome::Done, b"");
                let by = asked.by;
                let note = if by.is_empty() {
                    Note::new(Severity::Info, "mark", format_args!("{text}"))
                } else {
                    Note::new(Severity::Info, "mark", format_args!("{text} ({by})"))
                };
                self.announce(&note);
            }
            What::Raw(wanted) => {
                viewer.wanted = wanted;
                reply(viewer, id, Outcome::Done, b"");
            }
            What::Damaged => reply(viewer, id, Outcome::Failed, b"the request could not be read"),
            What::Unknown => reply(viewer, id, Outcome::Refused, b"this shim is older than that request"),
        }
    }

    pub(super) fn answer(&mut self, answer: &Answer) {
        self.take_events();
        self.events.settle();
        if let Some(viewer) = self.viewers.iter_mut().find(|viewer| viewer.id == answer.viewer) {
            // The counters go first: behind the answer to a flush a viewer knows what is still to come.
            viewer.mark(FrameKind::Loss);
            viewer.mark(FrameKind::Observers);
            reply(viewer, answer.request, answer.outcome, answer.text.as_bytes());
        }
    }

    /// Tells every viewer, and those who join later.
    pub(super) fn say(&mut self, note: &Note) {
        self.said.keep(note);
        self.announce(note);
    }

    /// Tells every viewer.
    fn announce(&mut self, note: &Note) {
        for viewer in &mut self.viewers {
            tell(viewer, note);
        }
    }
}

fn reply(viewer: &mut Viewer, request: u64, outcome: Outcome, text: &[u8]) {
    viewer.say(FrameKind::Reply, |w| Reply { request, outcome: outcome as u8, text }.write(w));
}

pub(super) fn tell(viewer: &mut Viewer, note: &Note) {
    let notice = Notice {
        time: note.time,
        severity: note.severity as u8,
        topic: note.topic.as_bytes(),
        text: note.text.as_bytes(),
    };
    viewer.say(FrameKind::Notice, |w| notice.write(w));
}
