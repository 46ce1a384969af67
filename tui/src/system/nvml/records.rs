//! Decoding NVML's process records without trusting their layout.
//!
//! Some drivers (535) filled `nvmlDeviceGetComputeRunningProcesses_v3` with records of 32 bytes where the header of
//! the same version says 24, so that everything from the second record on was scrambled. The layout is therefore
//! found by looking which one gives records that can be true.

/// The record of `nvml.h`: pid, padding, used bytes, GPU instance, compute instance.
const SHORT: usize = 24;
/// The same with protected memory (confidential computing) behind it.
pub(super) const LONG: usize = 32;
/// The kernel never gives a higher pid (`PID_MAX_LIMIT`).
const PID_MAX: u32 = 4 << 20;
/// More GPU or compute instances than any device makes.
const INSTANCE_MAX: u32 = 1 << 10;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub pid: u32,
    pub used: Option<u64>,
    pub gpu_instance: Option<u32>,
    pub compute_instance: Option<u32>,
}

/// The records that can be true, and how many could not. The longer layout has to explain all of them: looked at
/// with the wrong one, some records always seem possible.
pub(super) fn decode(bytes: &[u8], count: usize, memory_total: Option<u64>) -> (Vec<Record>, u32) {
    let short = decode_as(SHORT, bytes, count, memory_total);
    if short.len() == count {
        return (short, 0);
    }
    let long = decode_as(LONG, bytes, count, memory_total);
    if long.len() == count {
        return (long, 0);
    }
    let rejected = count.saturating_sub(short.len());
    (short, u32::try_from(rejected).unwrap_or(u32::MAX))
}

fn decode_as(stride: usize, bytes: &[u8], count: usize, memory_total: Option<u64>) -> Vec<Record> {
    bytes.chunks_exact(stride).take(count).filter_map(|record| decode_one(record, memory_total)).collect()
}

/// The record at the start of `bytes`, unless it cannot be true.
fn decode_one(bytes: &[u8], memory_total: Option<u64>) -> Option<Record> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let known = |instance: u32| (instance != u32::MAX).then_some(instance);
    let record = Record {
        pid: word(0)?,
        used: Some(long(8)?).filter(|used| *used != u64::MAX),
        gpu_instance: known(word(16)?),
        compute_instance: known(word(20)?),
    };
    let fits = memory_total.zip(record.used).is_none_or(|(total, used)| used <= total);
    let instances = [record.gpu_instance, record.compute_instance];
    let plausible = (1..=PID_MAX).contains(&record.pid)
        && fits
        && instances.into_iter().flatten().all(|instance| instance < INSTANCE_MAX);
    plausible.then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOTAL: Option<u64> = Some(12_427 << 20);

    fn bytes(stride: usize, records: &[(u32, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (pid, used) in records {
            let end = bytes.len() + stride;
            bytes.extend_from_slice(&u64::from(*pid).to_ne_bytes());
            bytes.extend_from_slice(&used.to_ne_bytes());
            bytes.extend_from_slice(&[0xff; 8]);
            bytes.resize(end, 0);
        }
        // The driver is given room for more than it fills.
        bytes.resize(bytes.len() + 5 * LONG, 0);
        bytes
    }

    fn pairs(records: &[Record]) -> Vec<(u32, Option<u64>)> {
        records.iter().map(|record| (record.pid, record.used)).collect()
    }

    #[test]
    fn either_layout_is_read() {
        let truth = [(9980, 6_498_025_472), (10121, 6_521_094_144)];
        for stride in [SHORT, LONG] {
            let (records, rejected) = decode(&bytes(stride, &truth), 2, TOTAL);
            assert_eq!(pairs(&records), truth.map(|(pid, used)| (pid, Some(used))), "stride {stride}");
            assert_eq!((rejected, records[0].gpu_instance), (0, None));
        }
    }

    #[test]
    fn a_pid_made_of_memory_is_rejected() {
        let pid = 6_498_025_472_u64 as u32;
        let (records, rejected) = decode(&bytes(SHORT, &[(9980, 1), (pid, 2), (0, 3)]), 3, TOTAL);
        assert_eq!((pairs(&records), rejected), (vec![(9980, Some(1))], 2));
    }

    #[test]
    fn more_memory_than_the_device_has_is_rejected() {
        let (records, rejected) = decode(&bytes(SHORT, &[(1, 13_000 << 20), (2, 12_427 << 20)]), 2, TOTAL);
        assert_eq!((pairs(&records), rejected), (vec![(2, Some(12_427 << 20))], 1));
        let (records, _) = decode(&bytes(SHORT, &[(1, 13_000 << 20)]), 1, None);
        assert_eq!(records.len(), 1, "nothing to compare with");
    }

    #[test]
    fn all_ones_is_unknown() {
        let (records, rejected) = decode(&bytes(SHORT, &[(42, u64::MAX)]), 1, Some(17_179_869_184));
        assert_eq!((pairs(&records), rejected), (vec![(42, None)], 0));
    }

    proptest! {
        #[test]
        fn whatever_the_driver_writes_is_counted(bytes: Vec<u8>, count in 0usize..20, total: Option<u64>) {
            let (records, rejected) = decode(&bytes, count, total);
            prop_assert_eq!(records.len() + rejected as usize, count);
            prop_assert!(records.iter().all(|r| r.used.is_none_or(|used| total.is_none_or(|total| used <= total))));
        }

        #[test]
        fn true_records_come_back_in_either_layout(
            truth in proptest::collection::vec((1u32..PID_MAX, 0u64..12 << 30), 0..30),
            long: bool,
        ) {
            let bytes = bytes(if long { LONG } else { SHORT }, &truth);
            let (records, rejected) = decode(&bytes, truth.len(), TOTAL);
            let expected: Vec<_> = truth.iter().map(|(pid, used)| (*pid, Some(*used))).collect();
            prop_assert_eq!((pairs(&records), rejected), (expected, 0));
        }
    }
}
