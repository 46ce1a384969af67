//! The activity kinds gtop knows, and sets of them.

use core::fmt;

/// An activity kind as a user names it. Values are bit positions on the wire and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Kernels, `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL` (10). The serial kind (3) is never enabled: it gives
    /// zero timestamps for kernels of graphs (CUPTI's documentation, known issues).
    Kernel = 0,
    /// Copies, `CUPTI_ACTIVITY_KIND_MEMCPY` (1); peer copies arrive as `MEMCPY2` (22).
    Memcpy = 1,
    /// Memory sets, `CUPTI_ACTIVITY_KIND_MEMSET` (2).
    Memset = 2,
    /// CUPTI's own overhead, `CUPTI_ACTIVITY_KIND_OVERHEAD` (17); makes device buffers visible.
    Overhead = 3,
    /// Synchronisation, `CUPTI_ACTIVITY_KIND_SYNCHRONIZATION` (38).
    Sync = 4,
    /// Allocations and frees, `CUPTI_ACTIVITY_KIND_MEMORY2` (49).
    Memory = 5,
    /// Runtime API calls, `CUPTI_ACTIVITY_KIND_RUNTIME` (5).
    Runtime = 6,
    /// Driver API calls, `CUPTI_ACTIVITY_KIND_DRIVER` (4).
    Driver = 7,
}

impl Kind {
    /// Every kind, in the order of the wire and of the screen.
    pub const ALL: [Self; 8] = [
        Self::Kernel,
        Self::Memcpy,
        Self::Memset,
        Self::Overhead,
        Self::Sync,
        Self::Memory,
        Self::Runtime,
        Self::Driver,
    ];

    /// The name used on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "memcpy",
            Self::Memset => "memset",
            Self::Overhead => "overhead",
            Self::Sync => "sync",
            Self::Memory => "memory",
            Self::Runtime => "runtime",
            Self::Driver => "driver",
        }
    }

    /// The kind with this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind to pass to `cuptiActivityEnable` (`cupti_activity.h`, unchanged from 12.0 to 13.5).
    #[must_use]
    pub const fn cupti(self) -> u32 {
        match self {
            Self::Kernel => 10,
            Self::Memcpy => 1,
            Self::Memset => 2,
            Self::Overhead => 17,
            Self::Sync => 38,
            Self::Memory => 49,
            Self::Runtime => 5,
            Self::Driver => 4,
        }
    }

    /// The kind whose records carry this CUPTI kind.
    #[must_use]
    pub const fn from_cupti(cupti: u32) -> Option<Self> {
        Some(match cupti {
            3 | 10 => Self::Kernel,
            1 | 22 => Self::Memcpy,
            2 => Self::Memset,
            17 => Self::Overhead,
            38 => Self::Sync,
            49 => Self::Memory,
            5 => Self::Runtime,
            4 => Self::Driver,
            _ => return None,
        })
    }
}

/// A set of activity kinds; bit `n` is the kind with value `n`. Unknown bits are kept, so that a newer peer's
/// set survives a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KindSet(pub u32);

impl KindSet {
    /// No kind.
    pub const EMPTY: Self = Self(0);
    /// Kernel, memcpy and memset: what arming enables, and the only set that is safe on a defective CUPTI
    /// (measured, 13.0.85: with all three on before instantiation nothing leaks).
    pub const SAFE: Self = Self(0b111);
    /// Memcpy and memset: without them nodes of graphs go uncovered, which on a defective CUPTI starts the leak
    /// (measured, 13.0.85: the kind must match the node).
    pub const COVERING: Self = Self(0b110);

    /// Whether `kind` is in the set.
    #[must_use]
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    /// The set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | (1 << kind as u32))
    }

    /// The set with `kind` taken out.
    #[must_use]
    pub const fn without(self, kind: Kind) -> Self {
        Self(self.0 & !(1 << kind as u32))
    }

    /// Everything in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Everything in this set that is not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether every kind of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The known kinds in the set, in wire order.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }

    /// Parses names separated by commas or spaces; `all` is every known kind and `safe` the safe set.
    /// The error is the first name that is not a kind.
    pub fn parse(list: &str) -> Result<Self, &str> {
        let mut set = Self::EMPTY;
        for name in list.split([',', ' ']).filter(|name| !name.is_empty()) {
            set = match name {
                "all" => Self(0xff),
                "safe" => set.union(Self::SAFE),
                _ => set.with(Kind::from_name(name).ok_or(name)?),
            };
        }
        Ok(set)
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Display for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, kind) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            f.write_str(kind.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_cupti_values_go_both_ways() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
            assert_eq!(Kind::from_cupti(kind.cupti()), Some(kind));
        }
        assert_eq!(Kind::from_cupti(22), Some(Kind::Memcpy));
        assert_eq!(Kind::from_cupti(51), None);
    }

    #[test]
    fn sets_parse_and_print() {
        assert_eq!(KindSet::parse("kernel,memcpy memset"), Ok(KindSet::SAFE));
        assert_eq!(KindSet::parse("kernel,graph"), Err("graph"));
        assert_eq!(KindSet::parse(""), Ok(KindSet::EMPTY));
        assert_eq!(KindSet::parse("safe,overhead").map(|set| set.iter().count()), Ok(4));
        assert!(KindSet::SAFE.contains(KindSet::COVERING));
        assert_eq!(KindSet::SAFE.minus(KindSet::COVERING), KindSet::EMPTY.with(Kind::Kernel));
    }
}
