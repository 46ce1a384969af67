//! The table behind the `vllm` scenario is derived here from buffers of a real server; the test holds the committed
//! table against the derivation, and writes it anew with `GTOP_BLESS=1`.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

/// Bytes of a kernel, copy and memset record of CUPTI 13.0.85.
const STRIDE: [(u32, usize); 3] = [(10, 216), (1, 96), (2, 88)];
/// Idle time is cut to this.
const LONGEST_GAP_NS: i64 = 2_000_000;
/// Runs of a decode step that are kept, so that its times vary as they did.
const RUNS: usize = 12;
/// How often those are played before the rest, prefill and sampling at other sizes, comes again: about 20 s.
const ROUNDS: usize = 500;

struct Record {
    start: i64,
    end: i64,
    correlation: u32,
    graph: u32,
    /// The operation, in words of the table.
    operation: String,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The buffers of a `.cuptibuf`, and its names.
fn read(file: &Path) -> (Vec<Vec<u8>>, HashMap<u64, String>) {
    let compressed = std::fs::File::open(file).unwrap();
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(compressed, true).read_to_end(&mut bytes).unwrap();
    let (mut buffers, mut names, mut at) = (Vec::new(), HashMap::new(), 0);
    while at < bytes.len() {
        let tag = bytes[at..at + 8].split(|byte| *byte == 0).next().unwrap();
        let count = u64_at(&bytes, at + 8) as usize;
        at += 16;
        match tag {
            b"UTIBUF" => {
                buffers.push(bytes[at..at + count].to_vec());
                at += count;
            }
            b"UNAMES" => {
                for _ in 0..count {
                    let length = u32_at(&bytes, at + 8) as usize;
                    let name = String::from_utf8(bytes[at + 12..at + 12 + length].to_vec()).unwrap();
                    names.insert(u64_at(&bytes, at), name);
                    at += 12 + length;
                }
            }
            _ => {}
        }
    }
    (buffers, names)
}

/// One record, with its operation in the words that `replay.rs` reads.
fn record(r: &[u8], name: impl Fn(u64) -> usize) -> Record {
    let words = |at: usize, count: usize| (0..count).map(move |i| u64::from(u32_at(r, at + 4 * i)));
    let (start, end) = (u64_at(r, 16).cast_signed(), u64_at(r, 24).cast_signed());
    let (head, numbers, correlation, graph): (_, Vec<u64>, _, _) = match u32_at(r, 0) {
        10 => {
            let mut numbers = vec![name(u64_at(r, 104)) as u64];
            numbers.extend(words(52, 6).chain(words(176, 3)));
            numbers.push(u16_at(r, 6).into());
            numbers.extend(words(76, 2).chain(words(48, 1)).chain(words(156, 1)));
            numbers.extend([u64_at(r, 144), u32_at(r, 168).into()]);
            ("kernel", numbers, u32_at(r, 92), u32_at(r, 156))
        }
        kind => {
            let mut numbers: Vec<u64> = match kind {
                1 => r[4..8].iter().map(|byte| u64::from(*byte)).collect(),
                _ => words(4, 1).collect(),
            };
            numbers.push(u64_at(r, 8));
            numbers.extend(words(40, 1).chain(words(72, 1)));
            numbers.extend([u64_at(r, 64), u32_at(r, 76).into()]);
            (if kind == 1 { "copy" } else { "memset" }, numbers, u32_at(r, 44), u32_at(r, 72))
        }
    };
    let operation = numbers.iter().fold(head.to_owned(), |mut operation, number| {
        write!(operation, " {number}").unwrap();
        operation
    });
    Record { start, end, correlation, graph, operation }
}

/// Every record, in the order of its start.
fn records(buffers: &[Vec<u8>], name: impl Fn(u64) -> usize) -> Vec<Record> {
    let mut records = Vec::new();
    for buffer in buffers {
        let mut rest = &buffer[..];
        while !rest.is_empty() {
            let stride = STRIDE.iter().find(|(kind, _)| *kind == u32_at(rest, 0)).unwrap().1;
            records.push(record(&rest[..stride], &name));
            rest = &rest[stride..];
        }
    }
    records.sort_by_key(|record| record.start);
    records
}

/// Writes one turn: its operations, and the times of each run of it.
fn turn(table: &mut String, kind: &str, repeat: usize, runs: &[&[Record]], operations: &[&str]) {
    let number = |operation: &str| operations.iter().position(|known| *known == operation).unwrap();
    write!(table, "turn {kind} {repeat}\nops").unwrap();
    let first = runs[0];
    for (i, record) in first.iter().enumerate() {
        let joined = i > 0 && record.graph != 0 && first[i - 1].correlation == record.correlation;
        write!(table, " {}{}", if joined { "+" } else { "" }, number(&record.operation)).unwrap();
    }
    table.push('\n');
    for run in runs {
        table.push_str("times");
        let mut last = run[0].start - 20_000;
        for record in *run {
            let gap = (record.start - last).min(LONGEST_GAP_NS);
            write!(table, " {gap},{}", record.end - record.start).unwrap();
            last = record.end;
        }
        table.push('\n');
    }
}

fn derive(file: &Path) -> String {
    let (buffers, names) = read(file);
    let sorted: BTreeSet<&str> = names.values().map(String::as_str).collect();
    let numbers: HashMap<&str, usize> = sorted.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let records = records(&buffers, |pointer| numbers[names[&pointer].as_str()]);

    // A decode step begins with the first node of the graph that ran most.
    let mut nodes: HashMap<u32, usize> = HashMap::new();
    for record in records.iter().filter(|record| record.graph != 0) {
        *nodes.entry(record.graph).or_default() += 1;
    }
    let graph = *nodes.iter().max_by_key(|(_, nodes)| **nodes).unwrap().0;
    let mut launches = BTreeSet::new();
    let begins: Vec<usize> = (0..records.len())
        .filter(|&i| records[i].graph == graph && launches.insert(records[i].correlation))
        .collect();
    let steps: Vec<&[Record]> = begins.windows(2).map(|window| &records[window[0]..window[1]]).collect();
    let same = |a: &[Record], b: &[Record]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.operation == b.operation)
    };
    let usual =
        steps.iter().max_by_key(|step| steps.iter().filter(|other| same(step, other)).count()).unwrap();
    let runs: Vec<&[Record]> = steps.iter().copied().filter(|step| same(step, usual)).take(RUNS).collect();
    let others = &records[..begins[0]];

    let mut operations: Vec<&str> = Vec::new();
    for record in others.iter().chain(*usual) {
        if !operations.contains(&record.operation.as_str()) {
            operations.push(&record.operation);
        }
    }
    let mut table =
        String::from("# Derived by tests/vllm_table.rs; src/replay.rs says what the lines mean.\n");
    for line in sorted.iter().map(|name| format!("name {name}")).chain(operations.iter().map(|&op| op.into()))
    {
        table.push_str(&line);
        table.push('\n');
    }
    turn(&mut table, "prefill", 1, &[others], &operations);
    turn(&mut table, "decode", ROUNDS, &runs, &operations);
    table
}

#[test]
fn the_table_is_what_the_recording_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = root.join("data/vllm.table");
    let derived = derive(&root.join("../fixtures/cupti-13.0.85-vllm-0.24.0.cuptibuf.xz"));
    if std::env::var_os("GTOP_BLESS").is_some() {
        std::fs::write(&table, &derived).unwrap();
    }
    assert!(std::fs::read_to_string(&table).unwrap() == derived, "derive it anew with GTOP_BLESS=1");
}
