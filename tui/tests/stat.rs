//! `gtop stat` as a script sees it: counts, keys, exit codes and messages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(format!("{name}.cuptibuf.xz"))
}

fn gtop(args: &[&str]) -> Output {
    Command::cargo_bin("gtop").unwrap().args(args).output().unwrap()
}

fn stat(file: &Path) -> (Value, i32, String) {
    let output = gtop(&["stat", file.to_str().unwrap(), "--json"]);
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (json, output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The keys of an object and of all objects in it, as paths.
fn keys(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{at}.{key}");
                keys(value, &path, into);
                into.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, at, into)),
        _ => {}
    }
}

/// The whole promise; what is not in a file of raw buffers is null there and has no keys of its own.
const KEYS: &str = r#"{"schema":"gtop.stat/1","seconds":5.0,
  "total":{"processes":0,"unseen":0,"delivered":0,"shown":0,"lost":0,"unread_bytes":0,"invalid":0,"gpu_memory_bytes":null,"gpu_memory_unknown":0},
  "processes":[{
  "pid":844,"name":"EngineCore","devices":[{"index":0,"uuid":"GPU","name":"NVIDIA H200"}],
  "cupti":{"version":130001,"path":"…","interface":"v1","verdict":"defective","reason":"…","subscribed":null},
  "state":"armed","reason":null,"kinds":["kernel","memcpy","memset"],"budget_percent":null,
  "records":{"delivered":0,"shown":0,"kernel":0,"memcpy":0,"memset":0,"other":0,
    "lost":{"cupti":0,"queue_full":0,"unknown_kind":0,"slow_viewer":0,"unread_bytes":0}},
  "validity":{"valid":0,"zero":0,"zero_start":0,"zero_end":0,"inverted":0,"sentinel":0,"foreign_clock":0,"future":0,
    "before_launch":null,"rate_total":0.0,"rate_window":0.0,"first_invalid":null,"first_again":null,"graphs":[],"earlier":null,
    "windows":[{"seconds":1,"records":0,"invalid":0,"rate":0.0}],
    "kinds":{"kernel":{"records":0,"invalid":0},"memcpy":{"records":0,"invalid":0},"memset":{"records":0,"invalid":0}}},
  "notes":{"overlap":0,"zero_length":0,"out_of_order":0,"unasked_kind":0,"cut_off":0,"overlong":0},
  "pools":[],"host_buffers":null,"gpu_memory":[],
  "streams":[{"device":0,"context":1,"stream":7,"busy_ns":0,"span_ns":0,"records":0}],
  "kernels":[{"name":"…","mangled":"…","calls":0,"total_ns":0,"min_ns":0,"p50_ns":0,"p99_ns":0,"max_ns":0,"share":0.0,"estimate":null,"invalid":0}],
  "clock":null,"sampling":null,
  "graphs":{"live":0,"launches":0,"instantiated":0,"destroyed":0,"partial":true,"graphs_created":null,"graphs_destroyed":null,
    "captures":null,"captures_failed":null,"updates":null,"updates_failed":null,
    "list":[{"id":1,"device":0,"context":1,"stream":7,"launches":0,"p50_ns":0,"p99_ns":0,"nodes_seen":0,"nodes":null,
      "instantiated":null,"alive":null,"per_second":0.0,"last_launch":null,"uploads":null,"thread":null,"source":null,
      "captured":null,"allocated_bytes":null,"node_bytes":null,"copies_seen":[]}],
    "captures_per_minute":null,"shapes":null},
  "memcpy":[{"direction":"HtoD","calls":0,"bytes":0,"total_ns":0}],
  "findings":[],
  "steps":[{"device":0,"context":1,"current":true,"count":0,"p50_ns":0,"p99_ns":0,"jitter_ns":0,"kernels":0,"launches":0,
    "idle_inside_ns":0,"idle_between_ns":0,"graphs":[0]}],
  "launch_latency":null,
  "memory_account":{"used_bytes":null,"device_bytes":null,"managed_bytes":null,"pinned_host_bytes":null,"peak_bytes":null,
    "graphs_reserved_bytes":null,"pools_reserved_bytes":null,"cupti_buffer_bytes":null,"unexplained_bytes":null,"pool_bytes":null,
    "mapped_bytes":null,"sites":[]},
  "threads":[],"objects":null,"stream_captures":null,"halted":null,"unheard_seconds":null,
  "failures":null,"shim":null
}]}"#;

#[test]
fn real_buffers_give_exactly_the_records_that_are_in_them() {
    let files = [
        ("cupti-12.8.90-mixed", [5_359, 1_118, 1_006]),
        ("cupti-13.0.85-mixed", [5_189, 1_081, 973]),
        ("cupti-13.4.92-mixed", [4_505, 939, 845]),
        ("cupti-13.0.85-vllm-0.24.0", [40_538, 1_361, 277]),
    ];
    for (name, [kernel, memcpy, memset]) in files {
        let (json, code, errors) = stat(&fixture(name));
        assert_eq!((code, errors.as_str()), (0, ""), "{name}");
        let process = &json["processes"][0];
        let records = &process["records"];
        let counts = [&records["kernel"], &records["memcpy"], &records["memset"], &records["other"]];
        assert_eq!(counts.map(|count| count.as_u64().unwrap()), [kernel, memcpy, memset, 0], "{name}");
        let all = kernel + memcpy + memset;
        assert_eq!((&records["shown"], &records["delivered"]), (&all.into(), &all.into()), "{name}");
        assert_eq!(
            (&process["validity"]["valid"], &process["validity"]["rate_total"]),
            (&all.into(), &0.0.into())
        );

        let sum = |list: &str, key: &str| {
            let rows = process[list].as_array().unwrap().iter();
            rows.map(|row| row[key].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(
            (sum("kernels", "calls"), sum("memcpy", "calls"), sum("streams", "records")),
            (kernel, memcpy, all)
        );
        let totals: Vec<_> =
            process["kernels"].as_array().unwrap().iter().map(|row| row["total_ns"].as_u64()).collect();
        assert!(totals.is_sorted_by(|a, b| a >= b), "{name}");
    }
}

#[test]
fn a_server_in_steady_decode_has_steps() {
    let (json, ..) = stat(&fixture("cupti-13.0.85-vllm-0.24.0"));
    let steps = &json["processes"][0]["steps"];
    assert_eq!(steps.as_array().map(Vec::len), Some(1), "{steps}");
    let of = |key: &str| steps[0][key].as_u64().unwrap();
    // Counted by hand from the buffers: graph 4751 is launched 109 times, 2.77 ms apart in the median and 4.69 at most,
    // with 337 kernels in it and some 20 beside it; 47 ms lie before the first.
    assert_eq!((&steps[0]["graphs"], of("launches"), of("count")), (&serde_json::json!([4751]), 1, 108));
    assert!((2_760_000..2_780_000).contains(&of("p50_ns")), "{steps}");
    assert!((3_600_000..4_690_000).contains(&of("p99_ns")), "{steps}");
    assert!((337..400).contains(&of("kernels")), "{steps}");
    assert!(of("jitter_ns") > 0 && of("idle_inside_ns") + of("idle_between_ns") < of("p50_ns"), "{steps}");
}

#[test]
fn the_simulated_server_has_the_steps_of_the_real_one() {
    let output = gtop(&["stat", "--demo", "vllm", "--for", "1s", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = &json["processes"][0]["steps"][0];
    assert_eq!((&steps["current"], &steps["launches"]), (&true.into(), &1.into()), "{steps}");
    let p50 = steps["p50_ns"].as_u64().unwrap();
    assert!((2_000_000..5_000_000).contains(&p50), "{steps}");
    assert!(steps["kernels"].as_u64().unwrap() >= 337, "{steps}");
}

#[test]
fn the_keys_are_the_promised_ones() {
    let (json, ..) = stat(&fixture("cupti-13.0.85-mixed"));
    let (mut found, mut promised) = (BTreeSet::new(), BTreeSet::new());
    keys(&json, "", &mut found);
    keys(&serde_json::from_str(KEYS).unwrap(), "", &mut promised);
    keys(&serde_json::from_str(FINDING_KEYS).unwrap(), "", &mut promised);
    assert_eq!(found, promised);
    let process = &json["processes"][0];
    for unknown in ["pid", "name", "state", "reason", "kinds", "budget_percent", "host_buffers"] {
        assert_eq!(process[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(process["validity"]["before_launch"], Value::Null);
    assert_eq!(process["devices"][0]["uuid"], Value::Null);
    assert_eq!(
        (&process["cupti"]["version"], &process["cupti"]["verdict"]),
        (&130_001.into(), &"defective".into())
    );
}

/// What the buffers' program gives cause to find.
const FINDING_KEYS: &str = r#"{"processes":[{
  "graphs":{"list":[{"copies_seen":[{"direction":"DtoD","nodes":0}]}]},
  "findings":[{"rule":"…","sentence":"…","evidence":"…","next":"…","severity":"warning","since":null}]
}]}"#;

/// What a live process has beside [`KEYS`].
const LIVE_KEYS: &str = r#"{"processes":[{
  "pools":[{"device":0,"context":1,"limit":250,"buffers":3,"source":"observed","state":"safe",
    "slots_total":25000000,"slots_used":0,"exhausts_in_seconds":null,"computed":3,"observed":null,"cause":null,"since":null,
    "graph":null,"limit_too_late":false,"in_doubt":false,"seen":null,
    "exhausts_in_seconds_low":null,"exhausts_in_seconds_high":null}],
  "clock":{"domain":"realtime","error_ns":75,"jumps":[]},
  "host_buffers":{"size":262144,"outstanding":2,"completed":0,"bytes":0},
  "shim":{"cpu_ns":0,"callback_ns":0,"memory_bytes":0,"cpu_share":0.0,"callback_share":0.0},
  "gpu_memory":[{"device":0,"used_bytes":0,"total_bytes":0,"source":"nvml"}]
}]}"#;

#[test]
fn a_live_process_has_all_keys_and_counts_that_agree() {
    let output = gtop(&["stat", "--demo", "mixed", "--for", "300ms", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{json}");
    let (mut found, mut promised) = (BTreeSet::new(), BTreeSet::new());
    keys(&json, "", &mut found);
    for part in [KEYS, LIVE_KEYS] {
        keys(&serde_json::from_str(part).unwrap(), "", &mut promised);
    }
    assert_eq!(found, promised);
    let process = &json["processes"][0];
    assert_eq!((&process["name"], &process["state"]), (&"gtop-demo".into(), &"armed".into()));
    assert_eq!(process["kinds"], serde_json::json!(["kernel", "memcpy", "memset"]));
    assert!(process["gpu_memory"][0]["used_bytes"].is_u64() && process["devices"][0]["uuid"].is_string());
    assert!(process["records"]["kernel"].as_u64().unwrap() > 0);
    assert!(json["seconds"].as_f64().unwrap() > 0.0);
}

/// The keys of a JSON schema as paths, each with its types and what it says of them.
fn described(schema: &Value, at: &str, into: &mut BTreeSet<[String; 3]>) {
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}.{key}");
        let types = |of: &Value| match of {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
            one => one.as_str().unwrap_or_default().to_owned(),
        };
        let text = value["description"].as_str().unwrap_or_default().replace('\n', " ");
        // What may be null is one of two.
        let inner = value["anyOf"].as_array().map_or(value, |list| &list[0]);
        let nullable = if value["anyOf"].is_array() { " or null" } else { "" };
        into.insert([path.clone(), types(&inner["type"]) + nullable, text]);
        for part in [inner, &inner["items"]] {
            described(part, &path, into);
        }
        described(&inner["additionalProperties"], &format!("{path}.*"), into);
    }
}

#[test]
fn the_schema_tells_of_every_key_what_it_is() {
    let output = gtop(&["stat", "--schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut told = BTreeSet::new();
    described(&schema, "", &mut told);
    for [path, types, text] in &told {
        assert!(!types.is_empty() && !text.is_empty(), "{path}: {types}: {text}");
    }
    let mut promised = BTreeSet::new();
    for part in [KEYS, FINDING_KEYS, LIVE_KEYS] {
        keys(&serde_json::from_str(part).unwrap(), "", &mut promised);
    }
    let paths: BTreeSet<String> = told.iter().map(|[path, ..]| path.clone()).collect();
    assert_eq!(promised.difference(&paths).collect::<Vec<_>>(), Vec::<&String>::new());
    let lines: Vec<String> =
        told.iter().map(|[path, types, text]| format!("{}  {types}\n    {text}", &path[1..])).collect();
    insta::assert_snapshot!("schema", lines.join("\n"));
}

#[test]
fn a_cut_file_gives_what_was_before_the_cut_and_says_so() {
    let bytes = std::fs::read(fixture("cupti-13.0.85-vllm-0.24.0")).unwrap();
    let mut file = tempfile::Builder::new().suffix(".cuptibuf.xz").tempfile().unwrap();
    std::io::Write::write_all(&mut file, &bytes[..bytes.len() / 2]).unwrap();
    let (json, code, errors) = stat(file.path());
    assert_eq!(code, 4);
    let kernels = json["processes"][0]["records"]["kernel"].as_u64().unwrap();
    assert!((1000..40_538).contains(&kernels), "{kernels}");
    assert!(errors.contains("damaged") && errors.contains("what comes before was used"), "{errors}");
    assert!(errors.contains(file.path().to_str().unwrap()), "{errors}");
}

/// A file with each buffer of another given twice, one right after the other.
fn each_buffer_twice(of: &Path) -> tempfile::NamedTempFile {
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(of).unwrap();
    std::io::Read::read_to_end(&mut lzma_rust2::XzReader::new(packed, true), &mut bytes).unwrap();
    let mut twice = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let value = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
        let (end, times) = match &bytes[at..at + 8] {
            b"UTIBUF\0\0" => (at + 16 + value as usize, 2),
            b"UNAMES\0\0" => (bytes.len(), 1),
            _ => (at + 16, 1),
        };
        (0..times).for_each(|_| twice.extend_from_slice(&bytes[at..end]));
        at = end;
    }
    let mut file = tempfile::Builder::new().suffix(".cuptibuf").tempfile().unwrap();
    std::io::Write::write_all(&mut file, &twice).unwrap();
    file
}

#[test]
fn buffers_delivered_twice_count_twice_and_are_busy_once() {
    let (once, ..) = stat(&fixture("cupti-13.0.85-mixed"));
    let file = each_buffer_twice(&fixture("cupti-13.0.85-mixed"));
    let (twice, code, errors) = stat(file.path());
    assert_eq!((code, errors.as_str()), (0, ""));
    let (once, twice) = (&once["processes"][0], &twice["processes"][0]);
    for kind in ["kernel", "memcpy", "memset"] {
        let count = |of: &Value| of["records"][kind].as_u64().unwrap();
        assert_eq!(count(twice), 2 * count(once), "{kind}");
    }
    let busy = |of: &Value| {
        let streams = of["streams"].as_array().unwrap();
        let of =
            |row: &Value| ["device", "context", "stream", "busy_ns", "span_ns"].map(|key| row[key].as_u64());
        streams.iter().map(of).collect::<BTreeSet<_>>()
    };
    assert_eq!(busy(twice), busy(once));
    let note = |of: &Value, which: &str| of["notes"][which].as_u64().unwrap();
    let noted = note(twice, "overlap") + note(twice, "out_of_order") - note(once, "overlap");
    assert!(noted >= 5_189, "what came again is told: {noted}");
    assert_eq!(twice["validity"]["rate_total"], 0.0, "and is no invalid time");
}

#[test]
fn every_failure_has_its_exit_code_and_a_reason() {
    let mut foreign = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut foreign, b"PK\x03\x04 not ours").unwrap();
    let foreign = foreign.path().to_str().unwrap();
    let empty = tempfile::NamedTempFile::new().unwrap();
    let empty = empty.path().to_str().unwrap();
    let cases: [(&[&str], i32, &str); 11] = [
        (&["stat", "/no/such/file"], 3, "No such file"),
        (&["stat", "/"], 3, "directory"),
        (&["stat", foreign], 4, "no file gtop can read"),
        (&["stat", empty], 4, "is empty: it holds no recording"),
        (&["replay", empty], 4, "is empty: it holds no recording"),
        (&["stat", "--attach", "4294967295"], 3, "no such process"),
        (&["stat"], 2, "--attach"),
        (&["stat", "x", "--attach", "1"], 2, "cannot be used with"),
        (&["stat", "--attach", "1", "--for", "5"], 2, "needs a unit"),
        (&["ctl", "--attach", "1", "enable", "graph"], 2, "no such kind"),
        (&["--attach", "4294967295"], 3, "no such process"),
    ];
    for (args, code, text) in cases {
        let output = gtop(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn the_text_is_plain_and_names_the_kernels() {
    let output = gtop(&["stat", fixture("cupti-13.0.85-vllm-0.24.0").to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["kernel 40538, memcpy 1361, memset 277", "13.0.85 defective", "FlashAttnFwdSm90<", "… and 42 more"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\x1b'));
}

/// A record of a CUPTI buffer: its kind, and numbers of four and of eight bytes at their offsets.
fn raw(size: usize, kind: u32, words: &[(usize, u32)], longs: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    for (at, word) in [(0, kind)].iter().chain(words) {
        bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    for (at, long) in longs {
        bytes[*at..at + 8].copy_from_slice(&long.to_le_bytes());
    }
    bytes
}

/// Sizes and offsets are those of CUPTI 13.0.85; the name is the first of the file's.
fn raw_kernel(correlation: u32, start: u64, end: u64) -> Vec<u8> {
    raw(216, 10, &[(44, 1), (48, 7), (92, correlation)], &[(16, start), (24, end), (104, 0x1000)])
}

/// `cudaLaunchKernel`.
fn raw_launch(correlation: u32, start: u64, end: u64) -> Vec<u8> {
    raw(40, 5, &[(4, 211), (32, correlation)], &[(8, start), (16, end)])
}

/// A file of one buffer.
fn raw_file(records: &[Vec<u8>]) -> tempfile::NamedTempFile {
    let body = records.concat();
    let number = |number: u64| number.to_le_bytes();
    let head = [&b"UTIBUF1\0"[..], &number(130_001), b"UTIBUF\0\0", &number(body.len() as u64)].concat();
    let names = [&b"UNAMES\0\0"[..], &number(1), &number(0x1000), &1u32.to_le_bytes(), b"k"].concat();
    let mut file = tempfile::Builder::new().suffix(".cuptibuf").tempfile().unwrap();
    std::io::Write::write_all(&mut file, &[head, body, names].concat()).unwrap();
    file
}

#[test]
fn launches_in_raw_buffers_are_joined_to_their_kernels_whichever_comes_first() {
    const AT: u64 = 1_682_666_453_031_000_000;
    let copy = raw(
        96,
        1,
        &[(4, 2), (36, 1), (40, 7), (44, 517)],
        &[(8, 200_000), (16, AT + 170_714), (24, AT + 179_354)],
    );
    let good = raw_file(&[
        raw_kernel(515, AT + 165_466, AT + 166_842),
        raw_launch(515, AT + 160_080, AT + 164_110),
        copy,
    ]);
    let (json, code, errors) = stat(good.path());
    assert_eq!((code, errors.as_str()), (0, ""));
    let process = &json["processes"][0];
    let latency = &process["launch_latency"];
    assert_eq!((&latency["joined"], &latency["min_ns"]), (&1.into(), &5_386.into()), "{latency}");
    assert_eq!((&latency["slightly_before"], &latency["well_before"]), (&0.into(), &0.into()));
    assert_eq!((&process["validity"]["valid"], &process["validity"]["rate_total"]), (&3.into(), &0.0.into()));
    assert_eq!(process["kernels"][0]["total_ns"], 1_376);
    assert_eq!(
        (&process["memcpy"][0]["bytes"], &process["memcpy"][0]["total_ns"]),
        (&200_000.into(), &8_640.into())
    );

    let early = raw_file(&[
        raw_kernel(1, AT + 9_999_400, AT + 10_010_000),
        raw_launch(1, AT + 10_000_000, AT + 10_003_000),
        raw_launch(2, AT + 20_000_000, AT + 20_003_000),
        raw_kernel(2, AT + 18_000_000, AT + 18_001_000),
    ]);
    let (json, ..) = stat(early.path());
    let process = &json["processes"][0];
    let latency = &process["launch_latency"];
    assert_eq!((&latency["joined"], &latency["min_ns"]), (&1.into(), &(-600).into()), "{latency}");
    assert_eq!((&latency["slightly_before"], &latency["well_before"]), (&1.into(), &1.into()));
    let validity = &process["validity"];
    assert_eq!((&validity["valid"], &validity["before_launch"]), (&3.into(), &1.into()), "{validity}");
    let text = String::from_utf8(gtop(&["stat", early.path().to_str().unwrap()]).stdout).unwrap();
    assert!(text.contains("which began −600 ns after on average"), "{text}");
    assert!(text.contains("1 long before, and so invalid"), "{text}");
    // Exported, it is the same.
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("early.csv");
    gtop(&["export", early.path().to_str().unwrap(), "--to", "csv", "-o", csv.to_str().unwrap()]);
    let rows = std::fs::read_to_string(csv).unwrap();
    assert_eq!(rows.lines().filter(|row| row.contains(",kernel,k,k,before_launch,")).count(), 1, "{rows}");
}

#[test]
fn raw_buffers_become_a_recording_that_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gtop");
    let raw = fixture("cupti-13.0.85-mixed");
    let output = gtop(&["record", raw.to_str().unwrap(), "-o", path.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("7,243 records in"), "{said}");
    let ((one, ..), (other, ..)) = (stat(&raw), stat(&path));
    for (key, value) in one["processes"][0].as_object().unwrap() {
        assert_eq!(value, &other["processes"][0][key], "{key}");
    }
    assert_eq!(one, other);
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "hello").unwrap();
    let new = folder.path().join("new.gtop");
    let output = gtop(&["record", foreign.to_str().unwrap(), "-o", new.to_str().unwrap()]);
    assert_eq!((output.status.code(), new.exists()), (Some(4), false), "nothing is left behind");
}
