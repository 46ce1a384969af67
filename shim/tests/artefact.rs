//! The library as it is loaded into other people's processes.

mod common;

use std::path::PathBuf;
use std::process::Command;

fn library() -> PathBuf {
    common::built("deps", "libgtop_shim.so")
}

/// What a tool of the C compiler's says of the library; `None`, with the reason printed, without the tool.
fn ask(tool: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(tool).args(arguments).arg(library()).output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(error) => {
            println!("skipped: {tool}: {error}");
            None
        }
    }
}

#[test]
fn one_function_is_exported() {
    let Some(symbols) = ask("nm", &["-D", "--defined-only"]) else { return };
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(names, ["InitializeInjection"]);
}

#[test]
fn it_cannot_be_unloaded_and_needs_no_more_than_the_c_library() {
    let Some(dynamic) = ask("readelf", &["-d"]) else { return };
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let known =
            ["libc.so", "libgcc_s.so", "ld-linux", "libm.so", "libdl.so", "libpthread.so", "librt.so"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
}

#[test]
fn it_is_built_without_what_only_viewers_need() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "--package",
        "gtop-shim",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--offline",
    ]);
    let tree = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.contains("gtop-protocol"), "{tree}");
    for crates in ["zstd", "crc32fast", "tokio"] {
        assert!(!tree.contains(crates), "{tree}");
    }
}

#[test]
fn it_is_small() {
    if cfg!(debug_assertions) {
        println!("skipped: only a release build is small");
        return;
    }
    let bytes = library().metadata().unwrap().len();
    assert!(bytes < 1_500_000, "{bytes} bytes");
}

#[test]
fn it_knows_no_counter_no_clock_callback_and_no_graph_tracing() {
    let bytes = std::fs::read(library()).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(has(b"cuptiActivityEnable"));
    // Counters take a lock that is one for the whole machine; a clock that is registered twice corrupts records.
    for name in
        ["cuptiProfiler", "cuptiEvent", "cuptiMetric", "cuptiPCSampling", "cuptiActivityRegisterTimestamp"]
    {
        assert!(!has(name.as_bytes()), "{name}");
    }
    assert!(gtop_protocol::KindSet::parse("graph_trace").is_err());
    assert!(gtop_protocol::Kind::from_cupti(51).is_none());
}
