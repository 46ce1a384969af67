//! What a viewer may ask of the shim. Each request is answered by one reply frame, and its effect comes back as
//! state like everything else.

use crate::message::Damaged;
use crate::wire::{Full, Reader, Writer};

/// Flag: do it although it harms, the consequence was shown.
pub const YES: u8 = 1;

/// The longest text a request may carry, bytes.
pub const MAX_TEXT: usize = 1024;
/// The longest request frame the shim reads, header included, bytes.
pub const MAX_REQUEST: usize = 2 << 10;

/// A price as people write it, `1` or `0.5%`, in parts per million; `None` unless it is from 0 to 100.
#[must_use]
pub fn parse_percent(text: &str) -> Option<u32> {
    let percent: f64 = text.trim().trim_end_matches('%').trim_end().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some((percent * 10_000.0 + 0.5) as u32)
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Join the watchers: arm if need be, and stream to this connection.
    Watch,
    /// Leave the watchers but stay connected.
    Unwatch,
    /// Switch these kinds on; [`KindSet`](crate::KindSet) bits.
    Enable(u32),
    /// Switch these kinds off; [`KindSet`](crate::KindSet) bits.
    Disable(u32),
    /// Arm, and stay armed until [`Action::Rest`].
    Arm,
    /// Rest, whoever watches.
    Rest,
    /// Trace in windows so that the slow-down stays under this price, parts per million; 0 is full tracing.
    Budget(u32),
    /// Put a mark into the stream of every viewer.
    Mark(&'a [u8]),
    /// Take complete buffers out of CUPTI now.
    Flush,
    /// Send this connection CUPTI's buffers as they are, beside the records walked out of them: a [`Raw`] wire value.
    Raw(u32),
}

/// Which of CUPTI's buffers a viewer wants as they are. Wire values; unknown ones are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Raw {
    /// None.
    #[default]
    None = 0,
    /// Those that hold a record with bad timestamps.
    Bad = 1,
    /// All.
    All = 2,
}

impl Raw {
    /// What this wire value asks for.
    #[must_use]
    pub const fn from_wire(value: u32) -> Self {
        match value {
            1 => Self::Bad,
            2 => Self::All,
            _ => Self::None,
        }
    }

    /// Whether a buffer with so many bad records is wanted.
    #[must_use]
    pub const fn takes(self, invalid: u64) -> bool {
        match self {
            Self::None => false,
            Self::Bad => invalid > 0,
            Self::All => true,
        }
    }
}

impl<'a> Action<'a> {
    const fn parts(self) -> (u8, u32, &'a [u8]) {
        match self {
            Self::Watch => (1, 0, b""),
            Self::Unwatch => (2, 0, b""),
            Self::Enable(kinds) => (3, kinds, b""),
            Self::Disable(kinds) => (4, kinds, b""),
            Self::Arm => (5, 0, b""),
            Self::Rest => (6, 0, b""),
            Self::Budget(ppm) => (7, ppm, b""),
            Self::Mark(text) => (8, 0, text),
            Self::Flush => (9, 0, b""),
            Self::Raw(which) => (20, which, b""),
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Chosen by the viewer; comes back in the reply.
    pub id: u64,
    /// [`YES`] or nothing.
    pub flags: u8,
    /// What is asked.
    pub action: Action<'a>,
    /// Who asks, for people; cut at 64 bytes by the shim.
    pub by: &'a [u8],
}

/// Why a request was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// The body was cut or too long.
    Damaged,
    /// A newer viewer asks for something this shim does not know; the request's id.
    Unknown(u64),
}

impl From<Damaged> for BadRequest {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl<'a> Request<'a> {
    /// Writes the body.
    pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let (code, number, text) = self.action.parts();
        if text.len() > MAX_TEXT || self.by.len() > MAX_TEXT {
            return Err(Full);
        }
        w.u64(self.id)?;
        w.u8(self.flags)?;
        w.u8(code)?;
        w.u32(number)?;
        w.blob(text)?;
        w.blob(self.by)
    }

    /// Reads the body.
    pub fn read(body: &'a [u8]) -> Result<Self, BadRequest> {
        let mut r = Reader::new(body);
        let (id, flags, code, number) = (r.u64(), r.u8(), r.u8(), r.u32());
        let (text, by) = (r.blob(), r.blob());
        if r.is_bad() || text.len() > MAX_TEXT {
            return Err(BadRequest::Damaged);
        }
        let action = match code {
            1 => Action::Watch,
            2 => Action::Unwatch,
            3 => Action::Enable(number),
            4 => Action::Disable(number),
            5 => Action::Arm,
            6 => Action::Rest,
            7 => Action::Budget(number),
            8 => Action::Mark(text),
            9 => Action::Flush,
            20 => Action::Raw(number),
            _ => return Err(BadRequest::Unknown(id)),
        };
        Ok(Self { id, flags, action, by: by.get(..64).unwrap_or(by) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_go_both_ways() {
        let actions = [
            Action::Watch,
            Action::Unwatch,
            Action::Enable(7),
            Action::Disable(1),
            Action::Arm,
            Action::Rest,
            Action::Budget(10_000),
            Action::Mark(b"deploy"),
            Action::Flush,
            Action::Raw(Raw::Bad as u32),
        ];
        for action in actions {
            let request = Request { id: 3, flags: YES, action, by: b"gtop ctl" };
            let mut buf = [0; 128];
            let mut w = Writer::new(&mut buf);
            request.write(&mut w).unwrap();
            let len = w.len();
            assert_eq!(Request::read(&buf[..len]), Ok(request));
        }
    }

    #[test]
    fn prices_are_read_as_people_write_them() {
        for (text, ppm) in [("1", 10_000), ("0.5%", 5_000), (" 2 % ", 20_000), ("100", 1_000_000), ("0", 0)] {
            assert_eq!(parse_percent(text), Some(ppm), "{text}");
        }
        for text in ["", "%", "-1", "101", "NaN", "one"] {
            assert_eq!(parse_percent(text), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_action_keeps_its_id() {
        let mut buf = [0; 32];
        buf[0] = 42;
        buf[9] = 200;
        assert_eq!(Request::read(&buf), Err(BadRequest::Unknown(42)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_request_panic(body: Vec<u8>) {
            let _ = Request::read(&body);
        }
    }
}
