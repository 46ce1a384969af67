//! What viewer and shim need of the system they run on. The shim here is the one that the viewer carries: a release
//! build.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use gtop_tests::build;
use gtop_tests::stage::Stage;

/// The C library that an ordinary build needs at most.
const GLIBC: [u32; 2] = [2, 34];
/// The size of the shim, bytes.
const SMALL: u64 = 1_500_000;

/// What `readelf` says of a file; `None`, with the reason printed, where there is none.
fn readelf(what: &str, file: &Path) -> Option<String> {
    match Command::new("readelf").args(["-W", what]).arg(file).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("skipped: readelf: {error}");
            None
        }
    }
}

/// The newest version of the C library of which the file wants something.
fn glibc(versions: &str) -> Option<[u32; 2]> {
    let wanted = versions.split("GLIBC_").skip(1).filter_map(|version| {
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
    });
    wanted.max()
}

/// Everything that the shim looks for by name in the driver and in CUPTI. A call from one thread can break a stream
/// capture of another: of these none does. CUPTI's start no work and wait for none, and those of the driver are called
/// by a thread of the shim that has left the global capture mode, the first of them aside, which needs no context.
const ASKED_FOR: [&str; 35] = [
    "cuModuleGetLoadingMode",
    "cuThreadExchangeStreamCaptureMode",
    "cuDeviceGetGraphMemAttribute",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolGetAttribute",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuptiGetVersion",
    "cuptiSubscribe",
    "cuptiSubscribe_v2",
    "cuptiUnsubscribe",
    "cuptiEnableCallback",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivityFlushAll",
    "cuptiActivityGetNextRecord",
    "cuptiActivityGetNumDroppedRecords",
    "cuptiActivitySetAttribute",
    "cuptiActivityEnableAllocationSource",
    "cuptiGetTimestamp",
    "cuptiActivityRegisterCallbacks_v2",
    "cuptiActivityEnable_v2",
    "cuptiActivityDisable_v2",
    "cuptiActivityGetNextRecord_v2",
    "cuptiActivityGetNumDroppedRecords_v2",
    "cuptiActivitySetAttribute_v2",
    "cuptiActivityGetEnabledKinds",
    "cuptiGetTimestamp_v2",
    "cuptiGetGraphId",
    "cuptiGetGraphExecId",
    "cuptiGetGraphNodeId",
    "cuptiGetContextId",
    "cuptiGetDeviceId",
    "cuptiGetStreamIdEx",
];

/// The names of foreign functions in a source: what a loader is asked for is a C string.
fn foreign(source: &str) -> impl Iterator<Item = &str> {
    let literals = source.split("c\"").skip(1).filter_map(|text| text.split('"').next());
    literals.filter(|text| {
        ["cu", "cupti", "cuda", "nvml", "nvrtc", "nvtx", "nccl"].iter().any(|prefix| {
            text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        })
    })
}

/// The sources below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        if path.is_dir() { sources(&path) } else { vec![fs::read_to_string(path).unwrap()] }
    };
    entries.flat_map(read).collect()
}

#[test]
fn the_shim_asks_cuda_for_nothing_but_what_is_listed() {
    let sample = r#"symbol(c"cuInit")? c"libcuda.so.1" "cudaMalloc" c"cuptiGetVersion": c"cup""#;
    assert_eq!(foreign(sample).collect::<Vec<_>>(), ["cuInit", "cuptiGetVersion"]);
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../shim/src"));
    let names: BTreeSet<&str> = sources.iter().flat_map(|source| foreign(source)).collect();
    assert_eq!(names, BTreeSet::from(ASKED_FOR));
    // Every look-up is that of one function, which takes a C string.
    let asks = |name: &str| sources.iter().map(|source| source.matches(name).count()).sum::<usize>();
    assert_eq!((asks("dlsym"), asks("dlvsym")), (1, 0));
    // And the loader is not asked by the file itself.
    let Some(imports) = readelf("--dyn-syms", Stage::new().shim()) else { return };
    let imports = imports.lines().filter(|line| line.contains(" UND "));
    let names = imports.filter_map(|line| line.split_whitespace().nth(7));
    let names: Vec<&str> = names.filter(|name| name.starts_with("cu") || name.starts_with("nv")).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn versions_are_told_apart() {
    assert_eq!(glibc("Name: GLIBC_2.2.5  Flags\nName: GLIBC_2.17 GLIBC_PRIVATE GLIBC_2.9"), Some([2, 17]));
    assert_eq!(glibc("nothing"), None);
}

#[test]
fn viewer_and_shim_need_little_of_the_system() {
    let stage = Stage::new();
    for file in [stage.shim(), &build::gtop()] {
        let (Some(versions), Some(dynamic)) = (readelf("-V", file), readelf("-d", file)) else { return };
        let needs = glibc(&versions).expect("it needs a C library");
        println!("{}: glibc {}.{}", file.display(), needs[0], needs[1]);
        assert!(needs <= GLIBC, "{}: {needs:?}", file.display());
        for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
            let known =
                ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux"];
            assert!(known.iter().any(|name| line.contains(name)), "{}: {line}", file.display());
        }
    }
    let bytes = stage.shim().metadata().unwrap().len();
    assert!(bytes < SMALL, "the shim has {bytes} bytes");
}
