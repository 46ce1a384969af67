//! What is known of each CUPTI version: one table, measured on an H200 (driver 580.159.04) unless it says
//! otherwise.

use core::fmt;

/// Whether a CUPTI version gives its device buffers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All records came, memory did not grow.
    Sound,
    /// Graph copies and memsets whose kind is off make device buffers leak, and records stop.
    Defective,
    /// No measurement says.
    Unknown,
}

impl Verdict {
    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Defective => "defective",
            Self::Unknown => "unknown",
        }
    }
}

/// What `cuptiGetVersion` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CuptiVersion(pub u32);

/// One measured range of versions, both ends included.
struct Row {
    from: u32,
    to: u32,
    verdict: Verdict,
    reason: &'static str,
}

/// Measured: concurrent kernels alone, enabled before instantiation, pool limit 8, a graph with a device copy or
/// a memset replayed 500,000 times. Between two measured versions with the same answer the answer is taken to
/// hold.
const TABLE: &[Row] = &[
    Row {
        from: 22,
        to: 26,
        verdict: Verdict::Sound,
        reason: "measured on 12.4 to 12.8: all records, no growth; copies of graph nodes come unasked",
    },
    Row {
        from: 28,
        to: 28,
        verdict: Verdict::Defective,
        reason: "measured on 12.9: graph copies or memsets whose kind is off leak device buffers",
    },
    Row {
        from: 130_000,
        to: 130_299,
        verdict: Verdict::Defective,
        reason: "measured on 13.0 to 13.2: graph copies or memsets whose kind is off leak device buffers",
    },
    Row {
        from: 130_300,
        to: 130_500,
        verdict: Verdict::Sound,
        reason: "measured on 13.3 to 13.5: all records, no growth",
    },
];

impl CuptiVersion {
    /// The verdict on this version.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        self.row().map_or(if self.0 > 130_500 { Verdict::Sound } else { Verdict::Unknown }, |row| row.verdict)
    }

    /// Why, in a sentence.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self.row() {
            Some(row) => row.reason,
            None if self.0 > 130_500 => "newer than any version measured: assumed sound",
            None => "not measured",
        }
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.iter().find(|row| (row.from..=row.to).contains(&self.0))
    }

    /// Whether records of graph copies and memsets come although nobody enabled their kinds (measured up to
    /// 12.8.90).
    #[must_use]
    pub const fn delivers_unasked(self) -> bool {
        self.0 <= 26
    }

    /// Whether the callback at a node's creation tells its type (measured: always 0 on 13.0.85, right on 13.5.25; what
    /// lies between is taken not to tell). That at the creation of an executable graph's own nodes never does.
    #[must_use]
    pub const fn tells_node_types(self) -> bool {
        self.0 >= 130_500
    }

    /// Whether the buffer callback may answer with no buffer. `NULL` crashes inside CUPTI before 12.9 (release
    /// notes 12.9 and pytorch/kineto#1275); we refuse only from API 28 on, the first version where that was fixed
    /// for certain.
    #[must_use]
    pub const fn may_refuse_buffer(self) -> bool {
        self.0 >= 28
    }

    /// How to get a sound CUPTI in the place of this one: `gtop run` takes none of another SONAME. Sound versions of CUDA
    /// 12 are those before 12.9, of CUDA 13 those from 13.3 on.
    #[must_use]
    pub const fn cure(self) -> &'static str {
        if self.major() < 13 {
            "pip install 'nvidia-cuda-cupti-cu12<12.9', then gtop run --cupti PATH -- CMD"
        } else {
            "pip install 'nvidia-cuda-cupti>=13.3', then gtop run --cupti PATH -- CMD"
        }
    }

    /// The major version of CUDA it belongs to, as in its SONAME.
    #[must_use]
    pub const fn major(self) -> u32 {
        if self.0 >= 100_000 { self.0 / 10_000 } else { 12 }
    }
}

impl fmt::Display for CuptiVersion {
    /// The version as people know it: `13.0.85` where the number tells the wheel, else `13.6` or `12.x`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self.0 {
            18 => "12.0",
            20 => "12.2",
            21 => "12.3",
            22 => "12.4",
            23 => "12.5",
            24 => "12.6",
            26 => "12.8",
            28 => "12.9",
            130_000 => "13.0.48",
            130_001 => "13.0.85",
            130_100 => "13.1.75",
            130_101 => "13.1.115",
            130_200 => "13.2.23",
            130_201 => "13.2.75",
            130_202 => "13.2.86",
            130_300 => "13.3.35",
            130_301 => "13.3.75",
            130_400 => "13.4.58",
            130_401 => "13.4.92",
            130_500 => "13.5.25",
            version if version >= 100_000 => {
                let (major, minor, update) = (version / 10_000, version / 100 % 100, version % 100);
                return if update == 0 {
                    write!(f, "{major}.{minor}")
                } else {
                    write!(f, "{major}.{minor} update {update}")
                };
            }
            version => return write!(f, "API {version}"),
        };
        f.write_str(known)
    }
}

/// The name of a `CUptiResult` (`cupti_result.h`), for messages.
#[must_use]
pub const fn result_name(result: u32) -> &'static str {
    match result {
        0 => "CUPTI_SUCCESS",
        1 => "CUPTI_ERROR_INVALID_PARAMETER",
        2 => "CUPTI_ERROR_INVALID_DEVICE",
        3 => "CUPTI_ERROR_INVALID_CONTEXT",
        8 => "CUPTI_ERROR_OUT_OF_MEMORY",
        9 => "CUPTI_ERROR_HARDWARE",
        11 => "CUPTI_ERROR_API_NOT_IMPLEMENTED",
        12 => "CUPTI_ERROR_MAX_LIMIT_REACHED",
        13 => "CUPTI_ERROR_NOT_READY",
        14 => "CUPTI_ERROR_NOT_COMPATIBLE",
        15 => "CUPTI_ERROR_NOT_INITIALIZED",
        21 => "CUPTI_ERROR_INVALID_KIND",
        27 => "CUPTI_ERROR_NOT_SUPPORTED",
        35 => "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        39 => "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        999 => "CUPTI_ERROR_UNKNOWN",
        _ => "CUPTI error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measured_version_has_its_verdict() {
        use Verdict::{Defective, Sound, Unknown};
        let measured = [
            (22, Sound),
            (24, Sound),
            (26, Sound),
            (28, Defective),
            (130_000, Defective),
            (130_001, Defective),
            (130_100, Defective),
            (130_101, Defective),
            (130_200, Defective),
            (130_201, Defective),
            (130_202, Defective),
            (130_300, Sound),
            (130_301, Sound),
            (130_400, Sound),
            (130_401, Sound),
            (130_500, Sound),
        ];
        for (version, verdict) in measured {
            assert_eq!(CuptiVersion(version).verdict(), verdict, "{version}");
        }
        assert_eq!(CuptiVersion(18).verdict(), Unknown);
        assert_eq!(CuptiVersion(140_000).verdict(), Sound);
        assert_eq!(CuptiVersion(140_000).reason(), "newer than any version measured: assumed sound");
    }

    #[test]
    fn versions_read_as_people_say_them() {
        for (version, text) in
            [(26, "12.8"), (130_001, "13.0.85"), (130_601, "13.6 update 1"), (140_000, "14.0"), (7, "API 7")]
        {
            assert_eq!(CuptiVersion(version).to_string(), text);
        }
        assert_eq!((CuptiVersion(26).major(), CuptiVersion(130_001).major()), (12, 13));
    }

    #[test]
    fn the_cure_of_a_defective_version_has_its_soname() {
        assert!(CuptiVersion(28).cure().contains("cupti-cu12<12.9'"));
        assert!(CuptiVersion(130_001).cure().contains("cupti>=13.3'"));
    }
}
