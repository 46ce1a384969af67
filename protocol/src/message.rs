//! The bodies of all frames but records: state that is sent again after a gap, and events.
//!
//! Every message is its fields in order, little-endian. A message from an older peer ends early and the missing
//! fields read as zero, empty or unknown; one from a newer peer is longer and the rest is ignored.

mod account;
mod device;
mod hello;
mod observers;
mod pool;
mod sampling;
mod state;
mod words;

use crate::wire::{Full, Reader, Writer};

pub use account::{HostBuffers, Loss, RawBuffer, raw_names};
pub use device::{DeviceSample, processes};
pub use hello::{Clock, Hello, HelloFields, names};
pub use observers::Observers;
pub use pool::{LeakCause, Pool, PoolState, pools};
pub use sampling::{Basis, Relief, Sampling, windows};
pub use state::{Kinds, Reason, State, StateCode};
pub use words::{FULL, Goodbye, Notice, Outcome, Reply, Severity};

/// A field of a message.
pub(crate) trait Field<'a>: Sized {
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Full>;
    fn get(r: &mut Reader<'a>) -> Self;
}

macro_rules! field {
    ($type:ty, $method:ident) => {
        impl<'a> Field<'a> for $type {
            fn put(&self, w: &mut Writer<'_>) -> Result<(), Full> {
                w.$method(*self)
            }
            fn get(r: &mut Reader<'a>) -> Self {
                r.$method()
            }
        }
    };
}

field!(u8, u8);
field!(u16, u16);
field!(u32, u32);
field!(u64, u64);
field!(Option<u64>, opt_u64);

impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.blob(self)
    }
    fn get(r: &mut Reader<'a>) -> Self {
        r.blob()
    }
}

/// The body was cut in the middle of a field, or did not begin as its kind must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

macro_rules! message {
    ($(#[$meta:meta])* pub struct $name:ident<'a> { $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<'a> { $($(#[$fmeta])* pub $field: $type,)* }

        impl<'a> $name<'a> {
            /// Writes the body.
            pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
                $(Field::put(&self.$field, w)?;)*
                Ok(())
            }

            /// Reads the body.
            pub fn read(body: &'a [u8]) -> Result<Self, Damaged> {
                Self::take(&mut Reader::new(body))
            }

            fn take(r: &mut Reader<'a>) -> Result<Self, Damaged> {
                let message = Self { $($field: Field::get(r),)* };
                if r.is_bad() { Err(Damaged) } else { Ok(message) }
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $name {
            /// Writes the body.
            pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
                $(Field::put(&self.$field, w)?;)*
                Ok(())
            }

            /// Reads the body.
            pub fn read(body: &[u8]) -> Result<Self, Damaged> {
                Self::take(&mut Reader::new(body))
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, Damaged> {
                let message = Self { $($field: Field::get(r),)* };
                if r.is_bad() { Err(Damaged) } else { Ok(message) }
            }
        }
    };
}

pub(crate) use message;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{MAGIC, PROTOCOL, RecordSizes};
    use proptest::prelude::*;

    fn bytes(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
        let mut buf = vec![0; 4096];
        let mut w = Writer::new(&mut buf);
        write(&mut w).unwrap();
        let len = w.len();
        buf.truncate(len);
        buf
    }

    #[test]
    fn a_hello_goes_both_ways_and_says_what_is_not_known() {
        let fields =
            HelloFields { pid: 844, name: b"EngineCore", command: b"vllm\0serve", ..Default::default() };
        let body = bytes(|w| Hello::new(fields).write(w));
        let hello = Hello::read(&body).unwrap();
        assert_eq!((hello.protocol, hello.sizes), (PROTOCOL, RecordSizes::OURS));
        assert_eq!((hello.fields, hello.fields.cupti_version), (fields, None));
        assert_eq!(Hello::read(b"HTTP/1.1 400 Bad Request"), Err(Damaged));
    }

    #[test]
    fn a_longer_hello_of_the_future_reads() {
        let mut body = bytes(|w| {
            w.bytes(&MAGIC)?;
            w.u16(7)?;
            w.u8(6)?;
            for size in [96u16, 72, 64, 64, 40, 48] {
                w.u16(size)?;
            }
            HelloFields { pid: 1, ..Default::default() }.write(w)
        });
        body.extend_from_slice(b"fields of the future");
        let hello = Hello::read(&body).unwrap();
        assert_eq!((hello.protocol, hello.sizes, hello.fields.pid), (7, RecordSizes([96, 72, 64, 64]), 1));
    }

    #[test]
    fn an_older_message_ends_early_and_a_cut_one_is_damaged() {
        let loss = Loss { walked: 5, framed: 4, queue_full: 1, ..Default::default() };
        let body = bytes(|w| loss.write(w));
        assert_eq!(Loss::read(&body), Ok(loss));
        assert_eq!(Loss::read(&body[..24]), Ok(loss));
        assert_eq!(Loss::read(&body[..25]), Err(Damaged));
    }

    #[test]
    fn lists_go_both_ways() {
        let body = bytes(|w| names::write_one(w, 1, b"gemm").and_then(|()| names::write_one(w, 9, b"")));
        assert_eq!(names::read(&body).collect::<Vec<_>>(), [(1, b"gemm".as_slice()), (9, b"")]);
        let pool = Pool { context: 1, limit: 250, observed: Some(3), ..Default::default() };
        let body = bytes(|w| pools::write_one(w, &pool).and_then(|()| pools::write_one(w, &pool)));
        assert_eq!(pools::read(&body).collect::<Vec<_>>(), [pool, pool]);
        let full = Pool {
            computed: Some(u64::MAX),
            exhausts_in: Some(1),
            since: Some(2),
            seen: Some(3),
            exhausts_earliest: Some(4),
            exhausts_latest: Some(5),
            ..pool
        };
        assert!(bytes(|w| pools::write_one(w, &full)).len() <= pools::MAX_ONE);
        let body = bytes(|w| processes::write_one(w, 7, None, b"python"));
        assert_eq!(processes::read(&body).collect::<Vec<_>>(), [(7, None, b"python".as_slice())]);
        let body = bytes(|w| windows::write_one(w, 5, 9).and_then(|()| windows::write_one(w, 20, 0)));
        assert_eq!(windows::read(&body).collect::<Vec<_>>(), [(5, 9), (20, 0)]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_message_panic(body: Vec<u8>, magic: bool) {
            let mut hello = if magic { MAGIC.to_vec() } else { Vec::new() };
            hello.extend_from_slice(&body);
            let _ = Hello::read(&hello);
            let _ = Clock::read(&body);
            let _ = Kinds::read(&body);
            let _ = State::read(&body);
            let _ = HostBuffers::read(&body);
            let _ = Observers::read(&body);
            let _ = Loss::read(&body);
            let _ = DeviceSample::read(&body);
            let _ = Notice::read(&body);
            let _ = Goodbye::read(&body);
            let _ = Reply::read(&body);
            let _ = RawBuffer::read(&body);
            prop_assert!(raw_names::read(&body).count() <= body.len());
            let _ = Sampling::read(&body);
            prop_assert!(windows::read(&body).count() <= body.len());
            prop_assert!(names::read(&body).count() <= body.len());
            prop_assert!(pools::read(&body).count() <= body.len());
            prop_assert!(processes::read(&body).count() <= body.len());
        }
    }
}
