//! `gtop export` as a script sees it: the same counts in every format as `stat` gives, and what is said when it fails.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use assert_cmd::Command;
use assert_cmd::cargo::CommandCargoExt;
use gtop_protocol::frame::{Frame, FrameKind, write_frame};
use gtop_protocol::message::{Hello, HelloFields};
use gtop_protocol::record::Kernel;
use gtop_protocol::recording::{At, Entry, HeadFields, Keep, Writer};
use lzma_rust2::XzReader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use zerocopy::IntoBytes;

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

/// When the recording that [`record`] makes begins, nanoseconds since the epoch.
const T: u64 = 1_682_666_453_000_000_000;

/// A recording of so many thousand kernels.
fn record(path: &Path, thousands: u64) {
    let head = HeadFields { host: b"node", began: T, ..HeadFields::default() };
    let mut writer =
        Writer::begin(File::create(path).unwrap(), &head, Keep::default(), At { wall: T, steady: 0 })
            .unwrap();
    let mut bytes = vec![0; 1 << 20];
    let mut put = |seq: u64, kind, body: &[u8]| {
        let len = write_frame(&mut bytes, kind, seq, |w| w.bytes(body)).unwrap();
        let (frame, _) = Frame::split(&bytes[..len]).unwrap().unwrap();
        let at = At { wall: T + seq * 1_000_000, steady: seq * 1_000_000 };
        writer.write(&Entry { at, stream: 1, frame }).unwrap();
    };
    let mut hello = vec![0; 4 << 10];
    let mut w = gtop_protocol::wire::Writer::new(&mut hello);
    Hello::new(HelloFields { pid: 844, name: b"x", ..HelloFields::default() }).write(&mut w).unwrap();
    let len = w.len();
    put(0, FrameKind::Hello, &hello[..len]);
    for at in 1..=thousands {
        let mut body = vec![1, 0, 0, 0];
        body.extend_from_slice(&1000u32.to_le_bytes());
        for number in 0..1000 {
            let start = T + at * 1_000_000 - 900_000 + number * 800;
            let kernel = Kernel { start: start.into(), end: (start + 700).into(), ..Kernel::default() };
            body.extend_from_slice(kernel.as_bytes());
        }
        put(at, FrameKind::Records, &body);
    }
    writer.finish().unwrap();
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn is_half(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.starts_with('.') && name.strip_suffix(".part").is_some()
}

/// Has an export be ended while it is made, if it is not done before; gives how it ended, and what it left.
fn broken_off(run: &Path, to: &[&str], by: Signal) -> (Option<i32>, Option<i32>, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let mut command = std::process::Command::cargo_bin("gtop").unwrap();
    command.arg("export").arg(run).args(to).current_dir(&out);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while files(&out).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    kill(Pid::from_raw(child.id().cast_signed()), by).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    let left = files(&out);
    if status.code() == Some(128 + by as i32) {
        assert!(said.contains("was not made"), "{said}");
    }
    (
        status.code(),
        status.signal(),
        left.iter().map(|path| path.strip_prefix(&out).unwrap().into()).collect(),
    )
}

#[test]
fn an_export_that_somebody_ends_leaves_nothing_that_looks_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.gtop");
    record(&run, 500);
    let sizes = ["--max-size", "300k"];
    let all: [&[&str]; 4] = [
        &["--to", "csv", "-o", "x.csv"],
        &[&["--to", "csv", "-o", "x.csv"], &sizes[..]].concat(),
        &["--to", "perfetto", "-o", "x.pftrace"],
        &[&["--to", "parquet", "-o", "./"], &sizes[..]].concat(),
    ];
    for to in all {
        for by in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let (code, _, left) = broken_off(&run, to, by);
            if code != Some(0) {
                assert_eq!((code, left), (Some(128 + by as i32), Vec::new()), "{to:?} {by}");
            }
        }
        let (_, signal, left) = broken_off(&run, to, Signal::SIGKILL);
        if signal.is_some() {
            assert!(!left.is_empty() && left.iter().all(|path| is_half(path)), "{to:?}: {left:?}");
        }
    }
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let (run, out) = (folder.path().join("run.gtop"), folder.path().join("out"));
    record(&run, 200);
    fs::create_dir(&out).unwrap();
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(Command::cargo_bin("gtop").unwrap().get_program());
    let mut child =
        command.arg("export").arg(&run).args(["--to", "csv", "-o"]).arg(out.join("x")).spawn().unwrap();
    while files(&out).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGHUP).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(out.join("x")).unwrap().lines().count(), 200_001);
}

#[test]
fn an_export_without_room_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (run, out) = (folder.path().join("run.gtop"), folder.path().join("out"));
    record(&run, 20);
    fs::create_dir(&out).unwrap();
    for (to, limit) in [("csv", "--fsize=900000"), ("parquet", "--fsize=2000"), ("perfetto", "--fsize=9000")]
    {
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(Command::cargo_bin("gtop").unwrap().get_program());
        let ran =
            command.arg("export").arg(&run).args(["--to", to, "-o"]).arg(out.join("x")).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{to}: {said}");
        assert!(said.contains("File too large"), "{to}: {said}");
        assert_eq!(files(&out), Vec::<PathBuf>::new(), "{to}");
    }
}

#[test]
fn pipes_and_descriptors_are_written_to_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    record(&at("run.gtop"), 3);
    let gtop = Command::cargo_bin("gtop").unwrap().get_program().to_owned();
    let shell = |script: &str| {
        let ran = Command::new("bash")
            .args(["-c", script])
            .env("GTOP", &gtop)
            .current_dir(&folder)
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    let export = "\"$GTOP\" export run.gtop --to csv -o";
    for script in [
        format!("{export} - | wc -l"),
        format!("{export} /dev/stdout | wc -l"),
        format!("exec 3>&1; {export} >(wc -l >&3) >/dev/null; wait $!"),
        format!("mkfifo pipe; wc -l <pipe & {export} pipe >/dev/null && wait $!; rm pipe"),
    ] {
        let (code, out, err) = shell(&script);
        assert_eq!((code, out.trim()), (Some(0), "3001"), "{script}: {err}");
    }
    // A file behind a descriptor is a file that is there.
    let (code, _, err) = shell(&format!("exec 3>taken; {export} /dev/fd/3"));
    assert!(code == Some(3) && err.contains("nothing is overwritten"), "{err}");
    let (code, _, err) = shell(&format!("ln -s taken link; {export} link"));
    assert!(code == Some(3) && err.contains("nothing is overwritten"), "{err}");
    assert_eq!(fs::read(at("taken")).unwrap(), b"");
    // What has no end is not gone on with in another one.
    for out in ["- >/dev/null", "/dev/null", "pipe"] {
        let (code, _, err) = shell(&format!("mkfifo pipe 2>/dev/null; {export} {out} --max-size 1k"));
        assert!(code == Some(2) && err.contains("is one file"), "{out}: {err}");
    }
    fs::remove_file(at("pipe")).unwrap();
    let mut left: Vec<_> = files(folder.path());
    left.sort();
    assert_eq!(left, [at("link"), at("run.gtop"), at("taken")]);
}
