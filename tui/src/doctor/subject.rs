//! Whether the shim gets into a process and can be reached there: the injection variable, the file it names, the C
//! library it meets, and the folder of its socket.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gtop_protocol::rendezvous;

use super::copies::is_cuda;
use super::finding::Finding;
use super::machine::{Machine, Subject};
use super::tools::is_shim;
use crate::system::attach::INJECTION;
use crate::system::elf::Library;
use crate::system::embed;
use crate::system::process::readable;

/// Folders in which the loader looks for what the shim is linked to.
const FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib", "/lib"];

/// All findings about one process.
pub(super) fn findings(machine: &Machine, subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    if subject.pid.is_some() && subject.uid != machine.uid && machine.uid != 0 {
        findings.push(Finding::fault(
            "owner",
            format!("it belongs to uid {}, and this user is uid {}", subject.uid, machine.uid),
            "attach as that user or as root",
        ));
    }
    findings.push(injection(machine, subject));
    findings.push(socket(subject));
    findings
}

/// Whether the shim is loaded, will be, or cannot be.
fn injection(machine: &Machine, subject: &Subject) -> Finding {
    if let Some(shim) = subject.mapped(|name| name == embed::FILE_NAME) {
        return Finding::ok("injection", format!("the shim is loaded: {}", readable(shim)));
    }
    let Some(file) = subject.variable(INJECTION).map(PathBuf::from) else {
        return match (subject.pid, &machine.shim) {
            (Some(pid), _) => Finding::fault(
                "injection",
                format!("it was started without {INJECTION}, so the shim was never loaded"),
                format!(
                    "put it in as it runs: `gtop --attach {pid}`, which asks first, or with --inject; or start it with \
                     `gtop run -- CMD`, or with {INJECTION}=$(gtop shim)"
                ),
            ),
            (None, Ok(shim)) => loads(subject, shim, shim),
            (None, Err(why)) => Finding::fault(
                "injection",
                format!("there is no place for the shim: {why}"),
                "gtop shim --copy DIR",
            ),
        };
    };
    let there = subject.path(&file);
    let is_mapped = subject.mapped_files().any(|path| Path::new(path) == file);
    if !is_mapped && let Err(error) = fs::metadata(&there) {
        return Finding::fault(
            "injection",
            format!("{INJECTION}={} is set, but in its file system that is: {error}", readable(&file)),
            "put the shim where the process sees it: `gtop shim --copy DIR` on a mounted folder",
        );
    }
    if !is_shim(&file) {
        return Finding::fault(
            "injection",
            format!("{INJECTION} names another tool's library, {}; CUDA loads only one", readable(&file)),
            format!("unset it, or start the program with {INJECTION}=$(gtop shim)"),
        );
    }
    let fits = loads(subject, &file, &there);
    if fits.level != super::Level::Ok || subject.mapped(is_cuda).is_none() || subject.pid.is_none() {
        return fits;
    }
    Finding::fault(
        "injection",
        format!("{} would load, but CUDA is loaded without it", readable(&file)),
        "restart the process: the driver loads the library once, when CUDA begins",
    )
}

/// Whether the shim's file can be loaded into the process, by what both files say.
fn loads(subject: &Subject, file: &Path, there: &Path) -> Finding {
    let fault = |sentence: String, next: &str| Finding::fault("injection", sentence, next);
    let name = readable(file);
    let shim = match Library::open(there) {
        Ok(shim) => shim,
        Err(error) => {
            return fault(
                format!("{name} cannot be loaded: {error}"),
                "use the shim of a gtop for this machine: `gtop shim`",
            );
        }
    };
    if subject.mapped(|name| name.starts_with("ld-musl")).is_some() {
        return fault(
            format!("{name} needs glibc, and this process runs on musl"),
            "run it in an image with glibc; CUDA itself needs that",
        );
    }
    let missing = missing_libraries(subject, &shim.needed());
    if !missing.is_empty() {
        return fault(
            format!("{name} needs {}, which is in none of the loader's folders", missing.join(" and ")),
            "install it in the image of the process",
        );
    }
    let needs: Vec<String> =
        shim.needs().into_iter().filter(|(library, _)| library == "libc.so.6").map(|need| need.1).collect();
    let newest = needs.iter().max_by_key(|version| numbers(version)).cloned().unwrap_or_default();
    let Some(libc) = libc(subject).and_then(|libc| Library::open(&libc).ok()) else {
        return Finding::note(
            "injection",
            format!("{name} needs {newest}; which C library it meets is not known"),
        );
    };
    let defined = libc.defines();
    let has = defined
        .iter()
        .filter(|version| version.starts_with("GLIBC_2."))
        .max_by_key(|version| numbers(version));
    if needs.iter().any(|version| !defined.contains(version)) {
        let has = has.map_or("an older one", String::as_str);
        return fault(
            format!("{name} needs {newest}, and this process has {has}"),
            "use a newer image, or a gtop built on an older system",
        );
    }
    let state = if subject.pid.is_some() {
        "will be loaded when the process begins to use CUDA"
    } else {
        "loads here"
    };
    Finding::ok(
        "injection",
        format!("{name} {state}: it needs {newest}, there is {}", has.map_or("?", String::as_str)),
    )
}

/// The numbers in `GLIBC_2.34`, to compare.
fn numbers(version: &str) -> Vec<u32> {
    let numbers = version.rsplit('_').next().unwrap_or_default().split('.');
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The C library of a process, as a file reached from here.
fn libc(subject: &Subject) -> Option<PathBuf> {
    let is_libc = |name: &str| name == "libc.so.6" || name.starts_with("libc-2.");
    subject.mapped(is_libc).map(|path| subject.path(Path::new(path)))
}

fn missing_libraries(subject: &Subject, needed: &[String]) -> Vec<String> {
    let there = |name: &str| {
        subject.mapped(|mapped| mapped == name).is_some()
            || FOLDERS.iter().any(|folder| subject.path(&Path::new(folder).join(name)).exists())
            || subject.folders("LD_LIBRARY_PATH").iter().any(|folder| subject.path(&folder.join(name)).exists())
            // A libc of before 2.34 is mapped under its versioned name.
            || name.starts_with("libc.") && libc(subject).is_some()
    };
    needed.iter().filter(|name| !there(name) && !name.starts_with("ld-linux")).cloned().collect()
}

/// Where its socket goes first, and whether anyone else could get there. The shim tries other folders after it.
fn socket(subject: &Subject) -> Finding {
    let runtime = subject.variable("XDG_RUNTIME_DIR");
    let folder = rendezvous::directory(runtime, subject.variable("TMPDIR"), subject.uid);
    let shown = readable(&folder);
    let next = "set XDG_RUNTIME_DIR to a folder of the process's own user, at most 60 bytes long";
    let passed_over = |why: &str| {
        Finding::warning("socket", format!("no socket is made in {shown}, but elsewhere: {why}"), next)
    };
    let too_long = runtime.is_some_and(|dir| !folder.starts_with(dir));
    match fs::symlink_metadata(subject.path(&folder)) {
        Ok(meta) if !meta.is_dir() => passed_over("it is no folder"),
        Ok(meta) if meta.uid() != subject.uid => passed_over(&format!("it belongs to uid {}", meta.uid())),
        Ok(meta) if meta.mode() & 0o077 != 0 => Finding::warning(
            "socket",
            format!(
                "{shown} is open to others (mode {:04o}); the shim closes it before it is used",
                meta.mode() & 0o7777
            ),
            format!("chmod 700 {shown}"),
        ),
        _ if too_long => Finding::note(
            "socket",
            format!("XDG_RUNTIME_DIR is too long for the name of a socket, so that goes to {shown}"),
        )
        .then(next),
        Ok(_) => Finding::ok("socket", format!("{shown} is a private folder for its socket")),
        Err(_) if folder.parent().is_some_and(|parent| subject.path(parent).is_dir()) => {
            Finding::ok("socket", format!("{shown} will be made for its socket"))
        }
        Err(_) => passed_over("its parent folder is not there"),
    }
}
