//! `gtop export` as a script sees it: the same counts in every format as `stat` gives, and what is said when it fails.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use lzma_rust2::XzReader;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(format!("{name}.cuptibuf.xz"))
}

fn gtop(args: &[&str]) -> Output {
    Command::cargo_bin("gtop").unwrap().args(args).output().unwrap()
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let buffers = fixture("cupti-12.8.90-mixed");
    let buffers = buffers.to_str().unwrap();
    fs::write(at("taken"), "precious").unwrap();
    fs::write(at("text.gtop"), "hello, world").unwrap();
    for (file, out, code, words) in [
        (buffers, at("taken"), 3, "nothing is overwritten"),
        (buffers, "/dev/full".to_owned(), 3, "/dev/full: No space left"),
        (buffers, "/no/such/folder/x".to_owned(), 3, "No such file"),
        (&at("text.gtop"), at("out"), 4, "no file gtop can read"),
        (&at("absent.gtop"), at("out"), 3, "No such file"),
    ] {
        let ran = gtop(&["export", file, "--to", "csv", "-o", &out]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{out}: {said}");
        assert!(said.starts_with("gtop: ") && said.contains(words), "{said}");
    }
    assert_eq!(fs::read_to_string(at("taken")).unwrap(), "precious");
    assert!(!Path::new(&at("out")).exists());
}

#[test]
fn a_damaged_file_is_exported_as_far_as_it_goes() {
    let mut whole = Vec::new();
    let compressed = File::open(fixture("cupti-12.8.90-mixed")).unwrap();
    XzReader::new(compressed, true).read_to_end(&mut whole).unwrap();
    let file = tempfile::Builder::new().suffix(".cuptibuf").tempfile().unwrap();
    fs::write(file.path(), &whole[..whole.len() / 2]).unwrap();
    let path = file.path().to_str().unwrap();
    let ran = gtop(&["export", path, "--to", "ndjson", "-o", "-"]);
    assert_eq!(ran.status.code(), Some(4));
    assert!(String::from_utf8(ran.stderr).unwrap().contains("what could be read was exported"));
    let stat: Value = serde_json::from_slice(&gtop(&["stat", path, "--json"]).stdout).unwrap();
    let shown = stat["processes"][0]["records"]["shown"].as_u64().unwrap();
    assert!(shown > 0);
    assert_eq!(String::from_utf8(ran.stdout).unwrap().lines().count() as u64, shown);
}
