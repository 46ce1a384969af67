//! Ten million records: memory does not grow with the file.

use super::*;

/// Records of one frame.
const TOGETHER: u64 = 1_000;

/// A recording of so many kernels, one after the other on four streams, with two dozen names.
fn long(records: u64) -> Tape {
    let mut tape = Tape::new();
    tape.hello(1, 844, b"python3");
    for name in 1..=24u32 {
        tape.name(1, name, format!("kernel_{name}<{}>", "int, ".repeat(60)).as_bytes());
    }
    for frame in 0..records / TOGETHER {
        let from = frame * TOGETHER;
        let kernels: Vec<_> = (from..from + TOGETHER)
            .map(|i| Kernel {
                stream: ((i % 4) as u32).into(),
                correlation: (i / 40).into(),
                ..kernel((i % 24 + 1) as u32, T + i * 9_000, T + i * 9_000 + 2_000 + i % 977)
            })
            .collect();
        tape.records(1, frame * 9, 1, &kernels);
    }
    tape
}

/// The most memory that the process has had while `work` was done, bytes.
fn peak(work: impl FnOnce()) -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    work();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "takes minutes; run it alone and optimised"]
fn memory_does_not_grow_with_the_file() {
    let (mut small, mut large) = (long(1_000_000), long(10_000_000));
    for format in [Format::Parquet, Format::Perfetto, Format::Chrome, Format::Csv, Format::Ndjson] {
        let [little, much] = [(&mut small, 1_000_000), (&mut large, 10_000_000)].map(|(tape, records)| {
            let output = Output { dry: true, ..plain(format) };
            let source = tape.source();
            peak(|| {
                let done = export(source, &Selection::default(), &output, &mut |_| {}).unwrap();
                assert_eq!((done.rows, done.damage), (records, None));
            })
        });
        println!("{format:?}: {} MB of one million records, {} MB of ten", little >> 20, much >> 20);
        assert!(much < little + (32 << 20), "{format:?}: {little} and {much} bytes");
    }
}
