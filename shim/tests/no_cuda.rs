//! The shim in a process that has not begun to use CUDA.

mod common;

use common::{Viewer, socket_of};
use gtop_protocol::control::Action;
use gtop_protocol::message::{Outcome, Reason, StateCode};

#[test]
#[expect(unsafe_code, reason = "the environment of a process with one test")]
fn without_cuda_nothing_of_cupti_is_looked_for() {
    let root = tempfile::tempdir().unwrap();
    let cupti = root.path().join("libcupti.so.13");
    std::fs::write(&cupti, b"would fail to load").unwrap();
    // SAFETY: no other thread reads the environment yet.
    unsafe {
        std::env::set_var("XDG_RUNTIME_DIR", root.path());
        std::env::set_var("GTOP_CUPTI", &cupti);
    }
    assert_eq!(gtop_shim::InitializeInjection(), 1);
    let mut viewer = Viewer::connect(&socket_of(root.path(), std::process::id()));
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("libcuda is not loaded"), "{text}");
    viewer.until("no CUDA", |viewer| viewer.reason == Some(Reason::NoCuda));
    assert_eq!((viewer.state, viewer.cupti), (Some(StateCode::Unavailable), None));
    drop(viewer);
    let mut viewer = Viewer::connect(&socket_of(root.path(), std::process::id()));
    viewer.until("nobody", |viewer| viewer.state == Some(StateCode::Loaded) && viewer.watchers == 0);
}
