//! How long each activity record is, by CUPTI version: needed where no CUPTI is there to step over them.
//!
//! A library always fills its newest struct for a kind. Sizes from the headers of 21 wheels, 12.0 to 13.5, and,
//! up to 13.1, from stepping through buffers with the library itself.

/// Kinds below this have an entry.
const KINDS: usize = 64;

/// The sizes of one CUPTI version's records.
#[derive(Clone, Copy, Debug)]
pub struct Strides([u16; KINDS]);

impl Strides {
    /// The sizes for what `cuptiGetVersion` said. Versions newer than any known are taken to be like the newest.
    #[must_use]
    pub fn of(version: u32) -> Self {
        // The size from a version on: the last entry whose version is reached counts.
        let since = |steps: &[(u32, u16)]| {
            steps.iter().rev().find(|(from, _)| version >= *from).map_or(0, |(_, size)| *size)
        };
        let kernel = since(&[(0, 208), (130_000, 216), (130_100, 224), (130_300, 232), (130_400, 248)]);
        let table: &[(usize, u16)] = &[
            (1, since(&[(0, 88), (26, 96), (130_400, 112)])),
            (2, since(&[(0, 88), (130_400, 104)])),
            (3, kernel),
            (4, 40),
            (5, 40),
            (8, since(&[(0, 176), (20, 184), (130_200, 192)])),
            (9, since(&[(0, 16), (22, 24), (23, 32), (130_100, 40)])),
            (10, kernel),
            (11, 32),
            (12, 56),
            (13, 40),
            (17, since(&[(0, 40), (21, 48), (22, 56)])),
            (20, 40),
            (22, 96),
            (26, 32),
            (27, 24),
            (36, since(&[(0, 24), (26, 56), (130_500, 80)])),
            (37, 24),
            (38, since(&[(0, 40), (26, 56)])),
            (39, 24),
            (40, since(&[(0, 136), (130_200, 88)])),
            (45, 80),
            (48, 40),
            (49, since(&[(0, 120), (24, 128)])),
            (50, since(&[(0, 72), (130_000, 80)])),
            (51, since(&[(0, 48), (21, 56)])),
            (52, since(&[(0, 64), (22, 72)])),
            (53, since(&[(26, 56)])),
            (55, since(&[(28, 32)])),
            (56, since(&[(130_100, 56)])),
            (58, since(&[(130_100, 48)])),
        ];
        let mut sizes = [0; KINDS];
        for (kind, size) in table {
            if let Some(slot) = sizes.get_mut(*kind) {
                *slot = *size;
            }
        }
        Self(sizes)
    }

    /// The size of a record of this CUPTI kind, bytes; `None` when the version has no such kind.
    #[must_use]
    pub fn get(&self, kind: u32) -> Option<usize> {
        self.0.get(kind as usize).copied().filter(|size| *size > 0).map(usize::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::cupti::sys;

    #[test]
    fn sizes_by_version() {
        let row =
            |version: u32| [10, 1, 22, 2, 49, 17, 38].map(|kind| Strides::of(version).get(kind).unwrap());
        for (version, sizes) in [
            (18, [208, 88, 96, 88, 120, 40, 40]),
            (22, [208, 88, 96, 88, 120, 56, 40]),
            (26, [208, 96, 96, 88, 128, 56, 56]),
            (28, [208, 96, 96, 88, 128, 56, 56]),
            (130_001, [216, 96, 96, 88, 128, 56, 56]),
            (130_101, [224, 96, 96, 88, 128, 56, 56]),
            (130_202, [224, 96, 96, 88, 128, 56, 56]),
            (130_301, [232, 96, 96, 88, 128, 56, 56]),
            (130_500, [248, 112, 96, 104, 128, 56, 56]),
            (140_000, [248, 112, 96, 104, 128, 56, 56]),
        ] {
            assert_eq!(row(version), sizes, "{version}");
        }
        assert_eq!(Strides::of(130_001).get(0), None);
        assert_eq!(Strides::of(130_001).get(u32::MAX), None);
        assert_eq!((Strides::of(22).get(53), Strides::of(26).get(53)), (None, Some(56)));
    }

    #[test]
    fn the_newest_sizes_are_those_of_cudarc() {
        let sizes = Strides::of(130_400);
        for (kind, size) in [
            (1, size_of::<sys::CUpti_ActivityMemcpy7>()),
            (2, size_of::<sys::CUpti_ActivityMemset5>()),
            (5, size_of::<sys::CUpti_ActivityAPI>()),
            (8, size_of::<sys::CUpti_ActivityDevice6>()),
            (9, size_of::<sys::CUpti_ActivityContext4>()),
            (10, size_of::<sys::CUpti_ActivityKernel13>()),
            (11, size_of::<sys::CUpti_ActivityName>()),
            (12, size_of::<sys::CUpti_ActivityMarker2>()),
            (13, size_of::<sys::CUpti_ActivityMarkerData2>()),
            (17, size_of::<sys::CUpti_ActivityOverhead3>()),
            (20, size_of::<sys::CUpti_ActivityEnvironment>()),
            (22, size_of::<sys::CUpti_ActivityMemcpyPtoP4>()),
            (26, size_of::<sys::CUpti_ActivityFunction>()),
            (27, size_of::<sys::CUpti_ActivityModule>()),
            (36, size_of::<sys::CUpti_ActivityCudaEvent2>()),
            (37, size_of::<sys::CUpti_ActivityStream>()),
            (38, size_of::<sys::CUpti_ActivitySynchronization2>()),
            (39, size_of::<sys::CUpti_ActivityExternalCorrelation>()),
            (40, size_of::<sys::CUpti_ActivityNvLink5>()),
            (45, size_of::<sys::CUpti_ActivityMemory>()),
            (49, size_of::<sys::CUpti_ActivityMemory4>()),
            (50, size_of::<sys::CUpti_ActivityMemoryPool3>()),
            (51, size_of::<sys::CUpti_ActivityGraphTrace2>()),
            (52, size_of::<sys::CUpti_ActivityJit2>()),
            (53, size_of::<sys::CUpti_ActivityDeviceGraphTrace>()),
            (56, size_of::<sys::CUpti_ActivityGraphHostNode>()),
            (58, size_of::<sys::CUpti_ActivityHostLaunch>()),
        ] {
            assert_eq!(sizes.get(kind), Some(size), "kind {kind}");
        }
    }
}
