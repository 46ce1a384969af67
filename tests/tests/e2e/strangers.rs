//! Sockets that are not what they seem, processes that are gone, and other users.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;

use gtop_tests::build;
use gtop_tests::fake::{Fake, Then, hello};
use gtop_tests::gtop::Running;
use gtop_tests::stage::Stage;

/// A user who is not us, and not nobody.
const STRANGER: u32 = 54_321;

/// Whether this test may do as other users; says so if not.
fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: only root can act as another user");
    }
    root
}

#[test]
fn a_process_that_is_gone_or_was_never_injected_is_told_apart() {
    let stage = Stage::new();
    let stat = |pid: u32| stage.gtop(&["stat", "--attach", &pid.to_string()]);
    stat(u32::MAX).fails(3, &["no such process"]);
    let host = stage.host("mixed").start();
    let (gone, socket) = (host.pid(), stage.socket(host.pid()));
    host.end("signal 9");
    assert!(socket.exists(), "its socket is still there");
    stat(gone).fails(3, &["no such process"]);
    let mut own = stage.command(std::path::Path::new("/bin/sh"));
    own.args(["-c", "exec \"$0\" stat --attach $$"]).arg(build::gtop());
    Running::start(own).finish().fails(3, &["it is this gtop itself"]);
    let plain = stage.host("mixed").without_shim().start();
    stat(plain.pid()).fails(3, &["was started without CUDA_INJECTION64_PATH", "gtop run"]);
    stage.ctl(plain.pid(), &["arm"]).fails(3, &["was started without"]);
}

#[test]
fn what_lies_in_the_place_of_a_socket_is_not_trusted() {
    let stage = Stage::new();
    let fake = Fake::start(&stage, &hello(), Then::Read);
    let socket = stage.socket(fake.pid());
    let stat = || stage.gtop(&["stat", "--attach", &fake.pid().to_string()]);

    std::fs::remove_file(&socket).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    stat().fails(3, &["refused"]);

    std::fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    stat().fails(3, &["is answered by pid", "not by the process"]);
    drop(listener);

    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, b"").unwrap();
    stat().fails(3, &["is not a socket"]);
}

#[test]
fn a_socket_or_folder_of_another_user_is_not_trusted() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let fake = Fake::start(&stage, &hello(), Then::Read);
    let socket = stage.socket(fake.pid());
    let stat = || stage.gtop(&["stat", "--attach", &fake.pid().to_string()]);
    for path in [socket, stage.sockets()] {
        chown(&path, Some(STRANGER), None).unwrap();
        stat().fails(3, &["belongs to uid 54321, not to the process's uid 0"]);
        chown(&path, Some(0), None).unwrap();
    }
}

#[test]
fn another_user_cannot_attach_and_root_can() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    stage.socket(host.pid());
    // A place the other user can reach.
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let gtop = open.path().join("gtop");
    if std::fs::hard_link(build::gtop(), &gtop).is_err() {
        std::fs::copy(build::gtop(), &gtop).unwrap();
    }
    let pid = host.pid().to_string();
    for what in [["stat", "--attach", &pid, "--json"], ["ctl", "--attach", &pid, "arm"]] {
        let mut command = stage.command(&gtop);
        command.args(what).uid(STRANGER).gid(STRANGER);
        Running::start(command).finish().fails(3, &["belongs to uid 0", "attach as that user or as root"]);
    }
    drop(host);

    // The other way round: the host of a user, watched by root.
    std::fs::set_permissions(stage.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(STRANGER), Some(STRANGER)).unwrap();
    let setup = stage.host("mixed").variable("XDG_RUNTIME_DIR", theirs.path().to_str().unwrap());
    let host = setup.user(STRANGER).start();
    let ran = stage.gtop(&["stat", "--json", "--for", "50ms", "--attach", &host.pid().to_string()]);
    assert_eq!(ran.json()["processes"][0]["state"], "armed");
}
