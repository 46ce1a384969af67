//! One thing that doctor found: how bad it is, a sentence, and the next step.

use serde::Serialize;

use crate::system::process::printable;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something to know.
    Note,
    /// It works, and may not do so for long or for everything.
    Warning,
    /// It does not work.
    Fault,
}

impl Level {
    /// The name in text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short name that stays the same, for scripts.
    pub id: &'static str,
    /// The process it is about; `None` is the machine.
    pub pid: Option<u32>,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub sentence: String,
    /// What to do about it.
    pub next_step: Option<String>,
}

impl Finding {
    fn new(id: &'static str, level: Level, sentence: impl Into<String>) -> Self {
        Self { id, pid: None, level, sentence: printable(sentence.into().as_bytes()), next_step: None }
    }

    /// As it should be.
    pub(super) fn ok(id: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(id, Level::Ok, sentence)
    }

    /// Something to know.
    pub(super) fn note(id: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(id, Level::Note, sentence)
    }

    /// It works, and may not do so for long or for everything.
    pub(super) fn warning(id: &'static str, sentence: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(id, Level::Warning, sentence).then(next)
    }

    /// It does not work.
    pub(super) fn fault(id: &'static str, sentence: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(id, Level::Fault, sentence).then(next)
    }

    /// With something to do about it.
    pub(super) fn then(self, next: impl Into<String>) -> Self {
        Self { next_step: Some(printable(next.into().as_bytes())), ..self }
    }
}
