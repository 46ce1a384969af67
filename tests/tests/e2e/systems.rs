//! What viewer and shim need of the system they run on. The shim here is the one that the viewer carries: a release
//! build.

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
