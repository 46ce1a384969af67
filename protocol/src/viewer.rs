//! What a viewer adds to the stream, so that a recording holds everything its screen could show.

use crate::message::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

message! {
    /// A process joins what is watched; its frames follow.
    pub struct Watched {
        /// Process id as the viewer's machine numbers it; 0 is unknown, its hello tells.
        pub pid: u32,
    }
}

message! {
    /// How the way to a process is.
    pub struct Link<'a> {
        /// A [`LinkState`] wire value.
        pub state: u8,
        /// Lost: since when, `CLOCK_REALTIME` nanoseconds.
        pub since: u64,
        /// Lost: attempts made to connect again.
        pub retries: u32,
        /// Ended: why, for people.
        pub reason: &'a [u8],
    }
}

/// The states of a link. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkState {
    /// Not connected yet.
    #[default]
    Connecting = 0,
    /// Frames come, or could.
    Up = 1,
    /// Lost, and trying again.
    Lost = 2,
    /// Over.
    Ended = 3,
}

impl LinkState {
    /// The state with this wire value; what nobody knows is over.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            0 => Self::Connecting,
            1 => Self::Up,
            2 => Self::Lost,
            _ => Self::Ended,
        }
    }
}

message! {
    /// Whether a process is kept from running, as its machine says. Said when it changes.
    pub struct Halt {
        /// A [`Halted`] wire value.
        pub cause: u8,
    }
}

/// What keeps a process from running. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Halted {
    /// Nothing, or nobody says.
    #[default]
    No = 0,
    /// A signal has stopped it (`T` in `/proc/PID/stat`): `SIGSTOP`, Ctrl-Z.
    Stopped = 1,
    /// A debugger or tracer holds it (`t`).
    Traced = 2,
    /// Its first thread waits in the kernel and cannot be woken (`D`), for more than a moment.
    Blocked = 3,
}

impl Halted {
    /// The cause with this wire value; what nobody knows is none.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::Stopped,
            2 => Self::Traced,
            3 => Self::Blocked,
            _ => Self::No,
        }
    }

    /// As JSON says it; `None` for [`Halted::No`].
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Stopped => Some("stopped"),
            Self::Traced => Some("traced"),
            Self::Blocked => Some("blocked"),
        }
    }
}

message! {
    /// Why there are no device samples; empty when there is nothing to say.
    pub struct DeviceNote<'a> {
        /// For people.
        pub text: &'a [u8],
    }
}

message! {
    /// Records of a process that came before what follows and are not here: this is the later part of a recording,
    /// or a place in it that was jumped to. Counts begin anew behind it.
    pub struct Earlier {
        /// Kernel records.
        pub kernel: u64,
        /// Copies.
        pub memcpy: u64,
        /// Memory sets.
        pub memset: u64,
        /// Others.
        pub other: u64,
        /// Records with times that could not be believed, over all connections of this recording, where that is known.
        pub invalid: Option<u64>,
        /// Kernel records over all connections of this recording, where that is known: the counts above are of one.
        pub kernels: Option<u64>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_go_both_ways() {
        for state in [LinkState::Connecting, LinkState::Up, LinkState::Lost, LinkState::Ended] {
            let link = Link { state: state as u8, since: 5, retries: 2, reason: b"gone" };
            let mut buf = [0; 64];
            let mut w = Writer::new(&mut buf);
            link.write(&mut w).unwrap();
            let len = w.len();
            assert_eq!(Link::read(&buf[..len]), Ok(link));
            assert_eq!(LinkState::from_wire(link.state), state);
        }
    }

    #[test]
    fn halts_go_both_ways() {
        for cause in [Halted::No, Halted::Stopped, Halted::Traced, Halted::Blocked] {
            let mut buf = [0; 1];
            Halt { cause: cause as u8 }.write(&mut Writer::new(&mut buf)).unwrap();
            assert_eq!(Halted::from_wire(Halt::read(&buf).unwrap().cause), cause);
        }
        assert_eq!(Halted::from_wire(9), Halted::No);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_message_panic(body: Vec<u8>) {
            let _ = Watched::read(&body);
            let _ = Link::read(&body);
            let _ = DeviceNote::read(&body);
            let _ = Halt::read(&body);
            let _ = Earlier::read(&body);
        }
    }
}
