//! Whether a record's timestamps can be believed: a pure function, in unsigned arithmetic end to end.

/// What the timestamps of a record look like. Classes say what is seen, never why. Values are wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Validity {
    /// Believable.
    #[default]
    Valid = 0,
    /// Start and end are both 0 (`CUPTI_TIMESTAMP_UNKNOWN`).
    Zero = 1,
    /// Only start is 0.
    ZeroStart = 2,
    /// Only end is 0: the record was taken before the kernel finished.
    ZeroEnd = 3,
    /// End lies before start.
    Inverted = 4,
    /// A value no clock returns: `u64::MAX`, or beyond `i64::MAX`.
    Sentinel = 5,
    /// Start lies long before collecting began: another clock.
    ForeignClock = 6,
    /// End lies after the moment the record was delivered.
    Future = 7,
    /// Start lies well before the launch call; known only where launch records are on.
    BeforeLaunch = 8,
}

impl Validity {
    /// Every class, in wire order.
    pub const ALL: [Self; 9] = [
        Self::Valid,
        Self::Zero,
        Self::ZeroStart,
        Self::ZeroEnd,
        Self::Inverted,
        Self::Sentinel,
        Self::ForeignClock,
        Self::Future,
        Self::BeforeLaunch,
    ];

    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Zero => "zero",
            Self::ZeroStart => "zero_start",
            Self::ZeroEnd => "zero_end",
            Self::Inverted => "inverted",
            Self::Sentinel => "sentinel",
            Self::ForeignClock => "foreign_clock",
            Self::Future => "future",
            Self::BeforeLaunch => "before_launch",
        }
    }

    /// The class with this wire value.
    #[must_use]
    pub const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Valid,
            1 => Self::Zero,
            2 => Self::ZeroStart,
            3 => Self::ZeroEnd,
            4 => Self::Inverted,
            5 => Self::Sentinel,
            6 => Self::ForeignClock,
            7 => Self::Future,
            8 => Self::BeforeLaunch,
            _ => return None,
        })
    }

    /// Whether the record may be drawn and summed.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(self, Self::Valid)
    }
}

/// What is known of the clock when a record is looked at, in CUPTI's nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Nothing believable starts before this.
    pub earliest: u64,
    /// Nothing believable ends after this.
    pub latest: u64,
}

impl Bounds {
    /// How long before collecting began a start may lie. Kernels are recorded only if launched after it, so a
    /// minute is generous; the foreign clock that people met was 27.8 hours away.
    pub const BEFORE_ARMING_NS: u64 = 60_000_000_000;
    /// How far past the reading of the clock an end may lie: the error of the clock pair, with room.
    pub const AHEAD_NS: u64 = 1_000_000_000;

    /// No clock is known: only the classes that need none are told apart.
    pub const UNKNOWN: Self = Self { earliest: 0, latest: u64::MAX };

    /// The bounds for records looked at when the clock says `now_ns`, collected since `armed_ns`.
    #[must_use]
    pub const fn new(armed_ns: u64, now_ns: u64) -> Self {
        Self {
            earliest: armed_ns.saturating_sub(Self::BEFORE_ARMING_NS),
            latest: now_ns.saturating_add(Self::AHEAD_NS),
        }
    }

    /// The same bounds without what is no time anyway: what these [`hold`](Self::hold) is valid, and nothing else is.
    #[must_use]
    pub const fn tight(self) -> Self {
        let earliest = if self.earliest == 0 { 1 } else { self.earliest };
        let latest = if self.latest > SENTINEL_FROM { SENTINEL_FROM } else { self.latest };
        Self { earliest, latest }
    }

    /// Whether a record with these timestamps lies within.
    #[inline]
    #[must_use]
    pub const fn hold(self, start: u64, end: u64) -> bool {
        start >= self.earliest && start <= end && end <= self.latest
    }
}

/// The class of a record with these timestamps, in CUPTI's nanoseconds. Exactly one class fits.
#[inline]
#[must_use]
pub const fn classify(start: u64, end: u64, bounds: Bounds) -> Validity {
    // One comparison chain that a good record passes first.
    if bounds.tight().hold(start, end) {
        return Validity::Valid;
    }
    if start == 0 && end == 0 {
        Validity::Zero
    } else if start > SENTINEL_FROM || end > SENTINEL_FROM {
        Validity::Sentinel
    } else if start == 0 {
        Validity::ZeroStart
    } else if end == 0 {
        Validity::ZeroEnd
    } else if end < start {
        Validity::Inverted
    } else if start < bounds.earliest {
        Validity::ForeignClock
    } else {
        Validity::Future
    }
}

/// Above this a value is no time: the top half of `u64` begins in the year 2262.
const SENTINEL_FROM: u64 = i64::MAX as u64;

/// Remarks on a record whose class is valid nonetheless; a set of bits, wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notes(pub u8);

impl Notes {
    /// Overlaps the record before it on the same stream.
    pub const OVERLAP: u8 = 1;
    /// Start equals end.
    pub const ZERO_LENGTH: u8 = 2;
    /// Starts before a record of the same stream that came earlier.
    pub const OUT_OF_ORDER: u8 = 4;
    /// Nobody asked for this kind; CUPTI before 12.9 does this for graph nodes.
    pub const UNASKED_KIND: u8 = 8;
    /// A node of a graph that ends after kernel was switched off: the start can be believed, the end cannot. The last
    /// launch that is traced carries the ends of a later one, some 50 ms late (H200, 13.0.85 and 13.5.25).
    pub const CUT_OFF: u8 = 16;

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_764_000_000_000_000_000;
    const BOUNDS: Bounds = Bounds::new(NOW - 10_000_000_000, NOW);

    #[test]
    fn each_class_by_its_values() {
        let cases = [
            (NOW - 50, NOW, Validity::Valid),
            (NOW, NOW, Validity::Valid),
            (0, 0, Validity::Zero),
            (0, NOW, Validity::ZeroStart),
            (NOW, 0, Validity::ZeroEnd),
            (2000, 1000, Validity::Inverted),
            (NOW, NOW - 1, Validity::Inverted),
            (u64::MAX, u64::MAX, Validity::Sentinel),
            (NOW, u64::MAX, Validity::Sentinel),
            (0, u64::MAX, Validity::Sentinel),
            (NOW - 100_000_000_000_000, NOW - 99_999_999_999_000, Validity::ForeignClock),
            (NOW, NOW + 2_000_000_000, Validity::Future),
        ];
        for (start, end, class) in cases {
            assert_eq!(classify(start, end, BOUNDS), class, "{start} {end}");
        }
    }

    #[test]
    fn the_first_records_of_sessions_with_another_clock_are_that_class() {
        let mut counts = [0; Validity::ALL.len()];
        for round in 1..=5 {
            for launch in 0..50u64 {
                let start = NOW - 5_000_000_000 + launch * 1000;
                let start = if launch < round { start - 100_000_000_000_000 } else { start };
                counts[classify(start, start + 500, BOUNDS) as usize] += 1;
            }
        }
        assert_eq!((counts[Validity::ForeignClock as usize], counts[0]), (15, 235));
    }

    #[test]
    fn without_a_clock_only_the_shape_counts() {
        assert_eq!(classify(1, 2, Bounds::UNKNOWN), Validity::Valid);
        assert_eq!(classify(0, 0, Bounds::UNKNOWN), Validity::Zero);
        assert_eq!(classify(2000, 1000, Bounds::UNKNOWN), Validity::Inverted);
    }

    #[test]
    fn wire_values_go_both_ways() {
        for class in Validity::ALL {
            assert_eq!(Validity::from_wire(class as u8), Some(class));
        }
        assert_eq!(Validity::from_wire(9), None);
    }

    proptest! {
        #[test]
        fn a_record_is_valid_exactly_when_nothing_is_wrong(start: u64, end: u64, armed: u64, now: u64) {
            let bounds = Bounds::new(armed, now);
            let fine = start > 0
                && start >= bounds.earliest
                && start <= end
                && end <= bounds.latest
                && i64::try_from(end).is_ok();
            prop_assert_eq!(classify(start, end, bounds).is_valid(), fine);
        }
    }
}
