//! Records of any family: their times, and what people call them.

use gtop_protocol::record::{self, Copy, Family, Kernel, Memset, Other};
use gtop_protocol::{Kind, calls};

use super::Record;
use super::survey::{Process, Survey};

impl Record {
    pub(super) fn read(family: Family, bytes: &[u8]) -> Self {
        match family {
            Family::Kernel => Self::Kernel(record::read::<Kernel>(bytes)),
            Family::Copy => Self::Copy(record::read::<Copy>(bytes)),
            Family::Memset => Self::Memset(record::read::<Memset>(bytes)),
            Family::Other => Self::Other(record::read::<Other>(bytes)),
        }
    }

    /// The validity as the shim wrote it, start and end.
    pub(super) fn times(&self) -> (u8, u64, u64) {
        match self {
            Self::Kernel(it) => (it.validity, it.start.get(), it.end.get()),
            Self::Copy(it) => (it.validity, it.start.get(), it.end.get()),
            Self::Memset(it) => (it.validity, it.start.get(), it.end.get()),
            Self::Other(it) => (it.validity, it.start.get(), it.end.get()),
        }
    }

    /// Start and end, CUPTI's nanoseconds, whatever they are worth.
    #[must_use]
    pub fn raw(&self) -> (u64, u64) {
        let (_, start, end) = self.times();
        (start, end)
    }
}

/// Whether it is a call that may have launched something.
pub(super) fn is_call(other: &Other) -> bool {
    matches!(Kind::from_cupti(other.cupti_kind.get()), Some(Kind::Runtime | Kind::Driver))
}

/// The kind of a record of a process, and its name in full and as CUPTI gave it.
pub(super) fn called<'s>(
    survey: &'s Survey,
    process: &Process,
    record: &Record,
) -> (&'static str, Option<&'s str>, Option<&'s str>) {
    match record {
        Record::Kernel(kernel) => {
            let name = survey.name(process, kernel.name.get());
            let both = name.map(|name| (name.full.as_str(), name.mangled.as_str()));
            (Kind::Kernel.name(), both.map(|both| both.0), both.map(|both| both.1))
        }
        Record::Copy(copy) => (Kind::Memcpy.name(), Some(copy_name(copy.direction)), None),
        Record::Memset(_) => (Kind::Memset.name(), Some("memset"), None),
        Record::Other(other) => {
            let kind = Kind::from_cupti(other.cupti_kind.get());
            let code = other.code.get();
            let known = calls::CALLS.iter().find(|call| call.code == code).map(|call| call.name);
            let name = match kind {
                Some(Kind::Driver) => known,
                Some(Kind::Overhead) => Some("overhead of CUPTI"),
                Some(Kind::Sync) => Some("synchronisation"),
                Some(Kind::Memory) => Some("memory"),
                _ => None,
            };
            (kind.map_or("other", Kind::name), name, None)
        }
    }
}

/// The name of a copy by its direction.
const fn copy_name(direction: u8) -> &'static str {
    match direction {
        1 => "copy HtoD",
        2 => "copy DtoH",
        3 => "copy HtoA",
        4 => "copy AtoH",
        5 => "copy AtoA",
        6 => "copy AtoD",
        7 => "copy DtoA",
        8 => "copy DtoD",
        9 => "copy HtoH",
        10 => "copy PtoP",
        _ => "copy",
    }
}
