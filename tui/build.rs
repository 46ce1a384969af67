//! Builds the shim with a cargo of its own, so that one binary carries it whatever command builds that binary.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    let manifest = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().expect("the viewer lies in the workspace");
    for source in
        ["shim/src", "shim/Cargo.toml", "protocol/src", "protocol/Cargo.toml", "Cargo.toml", "Cargo.lock"]
    {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo:rerun-if-changed=build.rs");

    let shim = build(&root.join("shim/Cargo.toml"));
    println!("cargo:rustc-env=GTOP_SHIM={}", shim.display());
}

/// Builds the cdylib and returns its path.
fn build(manifest: &Path) -> PathBuf {
    let out = PathBuf::from(var("OUT_DIR")).join("shim");
    // The processes that load the shim use glibc, whatever the viewer is linked to.
    let target = var("TARGET").replace("-musl", "-gnu");
    let mut cargo = Command::new(var("CARGO"))
        .args(["rustc", "--lib", "--crate-type", "cdylib", "--release", "--message-format"])
        .args(["json-render-diagnostics", "--target", &target, "--manifest-path"])
        .arg(manifest)
        .args(["--config", r#"profile.release.panic="unwind""#])
        .args(["--config", r#"profile.release.strip="symbols""#])
        // Folders of its own: the outer cargo holds the locks of its target and build folders while this runs.
        .env("CARGO_TARGET_DIR", out.join("target"))
        .env("CARGO_BUILD_BUILD_DIR", out.join("build"))
        // What the outer cargo set for the viewer (clippy's driver, instrumentation) is not meant for the shim.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo starts");
    let messages = BufReader::new(cargo.stdout.take().expect("piped")).lines();
    let shim = messages.map_while(Result::ok).filter_map(|line| artefact(&line)).last();
    let status = cargo.wait().expect("cargo ends");
    assert!(status.success(), "building the shim failed: {status}");
    shim.expect("cargo names the shim it built")
}

/// The path in cargo's message, if it says that the shim is built.
fn artefact(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    (message["reason"] == "compiler-artifact" && message["target"]["name"] == "gtop_shim").then_some(())?;
    let paths = message["filenames"].as_array()?.iter().filter_map(|path| path.as_str());
    paths.map(PathBuf::from).find(|path| path.extension().is_some_and(|extension| extension == "so"))
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
