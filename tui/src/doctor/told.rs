//! What the shim of a process says of itself: the CUPTI that it found, what it is at, and what it said last.

use std::path::PathBuf;

use gtop_protocol::cupti::{CuptiVersion, result_name};
use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::{Hello, Notice, Reason, Severity, State, StateCode};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::finding::Finding;

/// What a shim told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The CUPTI that it called, and where that lies; none before the first watch.
    pub cupti: Option<(CuptiVersion, PathBuf)>,
    state: Option<StateCode>,
    reason: Option<String>,
    busy: bool,
    tainted: bool,
    /// Warnings and alarms of the last while, oldest first: time, topic, sentence.
    notices: Vec<(u64, String, String)>,
}

impl Told {
    /// Takes in whole frames.
    pub fn take(&mut self, frames: &[u8]) {
        let mut rest = frames;
        while let Ok(Some((frame, behind))) = Frame::split(rest) {
            rest = behind;
            self.take_one(&frame);
        }
    }

    fn take_one(&mut self, frame: &Frame<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match frame.kind() {
            Some(FrameKind::Hello) => {
                let Ok(hello) = Hello::read(frame.body) else { return };
                let version = hello.fields.cupti_version.and_then(|version| u32::try_from(version).ok());
                self.cupti =
                    version.map(|version| (CuptiVersion(version), text(hello.fields.cupti_path).into()));
            }
            Some(FrameKind::State) => {
                let Ok(state) = State::read(frame.body) else { return };
                self.state = StateCode::from_wire(state.state);
                self.tainted = state.tainted == 1;
                let reason = Reason::from_wire(state.reason);
                self.busy = reason == Some(Reason::Busy);
                let error = match state.error {
                    0 => String::new(),
                    error => format!("{} ({error})", result_name(error)),
                };
                let parts = [reason.and_then(Reason::text).unwrap_or_default(), &error, &text(state.detail)]
                    .map(str::to_owned);
                let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                self.reason = (!said.is_empty()).then(|| said.join(": "));
            }
            Some(FrameKind::Notice) => {
                let Ok(notice) = Notice::read(frame.body) else { return };
                // That it was armed ends what was in the way before.
                if Severity::from_wire(notice.severity) >= Severity::Warning || notice.topic == b"armed" {
                    self.notices.push((notice.time, text(notice.topic), text(notice.text)));
                }
            }
            _ => {}
        }
    }

    /// What follows from it.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<_> = self.state().into_iter().collect();
        let mistakes = self.notices.iter().filter(|(_, topic, _)| topic == "config");
        findings.extend(mistakes.map(|(.., text)| {
            Finding::warning("config", text.clone(), "mend it where the process is started, and restart that")
        }));
        findings
    }

    fn state(&self) -> Option<Finding> {
        let reason = self.reason.as_deref().unwrap_or("no reason is given");
        let free =
            "end that tool, or start the process without it; gtop tries again every 5 s while it watches";
        let look = "GTOP_LOG=FILE, set where the process is started, says more";
        match self.state? {
            StateCode::Unavailable => {
                let next = if self.busy { free } else { look };
                return Some(Finding::fault("state", format!("it cannot be watched now: {reason}"), next));
            }
            StateCode::Silent => {
                let sentence = format!("kernel records do not come: {reason}");
                return Some(Finding::fault("state", sentence, look));
            }
            _ => {}
        }
        // Nobody asks any more, so that the state tells nothing of it.
        let about = |topic: &str| matches!(topic, "busy" | "unavailable" | "armed");
        let last = self.notices.iter().rfind(|(_, topic, _)| about(topic));
        if let Some((time, topic, text)) = last.filter(|(_, topic, _)| topic != "armed") {
            let next = if topic == "busy" { free } else { look };
            let sentence = format!("when it was last to be watched, {}, it could not be: {text}", at(*time));
            return Some(Finding::warning("state", sentence, next));
        }
        self.tainted.then(|| {
            Finding::warning(
                "state",
                "device buffers leak or may leak since memcpy or memset was off while graphs may have such nodes",
                "only a restart of the process, or a CUPTI without the defect, ends that",
            )
        })
    }
}

/// A time of the wall clock, `2026-07-01 17:20:41`.
fn at(nanoseconds: u64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default();
    time.to_zoned_datetime(TimeZone::system()).strftime("%F %T").to_string()
}

#[cfg(test)]
mod tests {
    use gtop_protocol::frame::write_frame;
    use gtop_protocol::message::HelloFields;
    use gtop_protocol::wire::{Full, Writer};

    use super::super::Level;
    use super::*;

    fn told(told: &mut Told, kind: FrameKind, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) {
        let mut bytes = [0; 4096];
        let len = write_frame(&mut bytes, kind, 1, write).unwrap();
        told.take(&bytes[..len]);
    }

    fn state(told_so_far: &mut Told, state: StateCode, reason: Reason, detail: &str) {
        let said = State {
            state: state as u8,
            reason: reason as u16,
            detail: detail.as_bytes(),
            ..State::default()
        };
        told(told_so_far, FrameKind::State, |w| said.write(w));
    }

    fn notice(told_so_far: &mut Told, topic: &str, severity: Severity, text: &str) {
        let said = Notice {
            time: 1_764_000_000_000_000_000,
            severity: severity as u8,
            topic: topic.as_bytes(),
            text: text.as_bytes(),
        };
        told(told_so_far, FrameKind::Notice, |w| said.write(w));
    }

    #[track_caller]
    fn says(told: &Told, level: Level, parts: &[&str]) {
        let findings = told.findings();
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(finding.level, level, "{finding:?}");
        for part in parts {
            assert!(finding.sentence.contains(part), "{part}: {finding:?}");
        }
    }

    #[test]
    fn a_shim_tells_what_is_in_the_way_and_what_was() {
        let mut told = Told::default();
        state(&mut told, StateCode::Loaded, Reason::None, "");
        assert_eq!(told.findings(), []);
        notice(&mut told, "resting", Severity::Info, "resting: all kinds are off");
        notice(&mut told, "busy", Severity::Warning, "another tool holds CUPTI; it calls itself \"torch\"");
        says(&told, Level::Warning, &["2025-11-2", "torch"]);
        state(&mut told, StateCode::Unavailable, Reason::Busy, "cuptiSubscribe");
        says(&told, Level::Fault, &["another tool holds CUPTI: cuptiSubscribe"]);
        state(&mut told, StateCode::Armed, Reason::None, "");
        notice(&mut told, "armed", Severity::Info, "armed late in 3 ms");
        assert_eq!(told.findings(), [], "it is no more");
        state(&mut told, StateCode::Silent, Reason::Quiet, "no kernel record for 2 s");
        says(&told, Level::Fault, &["gone quiet", "for 2 s"]);
        state(&mut told, StateCode::Resting, Reason::None, "");
        notice(&mut told, "config", Severity::Warning, "GTOP_KINDS: \"foo\" is not a kind");
        says(&told, Level::Warning, &["foo"]);
    }

    #[test]
    fn the_cupti_it_called_is_known_by_its_hello() {
        let mut of = Told::default();
        let fields =
            HelloFields { cupti_version: Some(130_202), cupti_path: b"/c.so", ..HelloFields::default() };
        told(&mut of, FrameKind::Hello, |w| Hello::new(fields).write(w));
        assert_eq!(of.cupti, Some((CuptiVersion(130_202), "/c.so".into())));
        of.take(b"what is no frame");
    }
}
