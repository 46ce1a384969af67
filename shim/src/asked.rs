//! Requests as they come from a connection.

use crate::shared::Task;
use crate::text::Text;
use gtop_protocol::KindSet;
use gtop_protocol::control::{Action, BadRequest, Raw, Request, YES};

/// A request as the server understands it.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) yes: bool,
    pub(crate) what: What,
    pub(crate) by: Text<64>,
}

/// What is asked.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "short-lived, and boxing a mark would allocate")]
pub(crate) enum What {
    Do(Task),
    Unwatch,
    Mark(Text<256>),
    Raw(Raw),
    Damaged,
    Unknown,
}

impl Asked {
    /// Reads the body of a request frame.
    pub(crate) fn read(body: &[u8]) -> Self {
        let (id, yes, what, by) = match Request::read(body) {
            Ok(request) => {
                let what = match request.action {
                    Action::Watch => What::Do(Task::Watch),
                    Action::Unwatch => What::Unwatch,
                    Action::Enable(kinds) => What::Do(Task::Enable(KindSet(kinds))),
                    Action::Disable(kinds) => What::Do(Task::Disable(KindSet(kinds))),
                    Action::Arm => What::Do(Task::Arm),
                    Action::Rest => What::Do(Task::Rest),
                    Action::Flush => What::Do(Task::Flush),
                    Action::Mark(text) => What::Mark(Text::from_bytes(text)),
                    Action::Budget(ppm) => What::Do(Task::Budget(ppm)),
                    Action::Raw(which) => What::Raw(Raw::from_wire(which)),
                };
                (request.id, request.flags & YES != 0, what, Text::from_bytes(request.by))
            }
            Err(BadRequest::Unknown(id)) => (id, false, What::Unknown, Text::EMPTY),
            Err(BadRequest::Damaged) => (0, false, What::Damaged, Text::EMPTY),
        };
        Self { id, yes, what, by }
    }
}
