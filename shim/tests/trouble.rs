//! A CUPTI that is absent, held by another, wrong, silent or greedy; the host never notices.

mod common;

use common::{Host, PER_TURN, Setup, mixed, wait_for};
use gtop_protocol::control::Action;
use gtop_protocol::message::{Outcome, Reason, StateCode};

/// A kernel a turn, and this going wrong.
fn kernels(version: u32, fault: &str) -> String {
    format!(
        "cupti = {version}\n[[thread]]\nsteps = [ {{ kernel = \"k\", ns = 1000 }} ]\n[[fault]]\n{fault}\n"
    )
}

fn ends_well(host: Host) {
    let (status, _, errors) = host.exit("return");
    assert_eq!(
        (status.code(), errors.as_str()),
        (Some(0), ""),
        "the host and its standard error are untouched"
    );
}

#[test]
fn a_held_cupti_is_left_alone_and_taken_once_it_is_free() {
    let mut host = Setup::new(&mixed(130_001)).start();
    host.say("hold CUPTI for torch");
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("another tool holds CUPTI") && text.contains("(39)"), "{text}");
    assert!(text.contains("calls itself \"CUPTI for torch\""), "{text}");
    viewer.until("busy", |viewer| viewer.reason == Some(Reason::Busy));
    assert_eq!(viewer.state, Some(StateCode::Unavailable));
    let calls = host.truth()["calls"].clone();
    let after: Vec<&String> = calls.as_object().unwrap().keys().collect();
    let expected = ["cuptiGetVersion", "cuptiSubscribe", "cuptiSubscribe_v2"];
    assert_eq!(after, expected, "after error 39 it is asked who holds it, and nothing more is called");
    assert_eq!(calls["cuptiSubscribe_v2"], 1);
    host.say("release");
    viewer.until("armed", |viewer| viewer.state == Some(StateCode::Armed));
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until("the records", |viewer| viewer.received() == 10 * PER_TURN && viewer.balances());
    ends_well(host);
}

#[test]
fn the_way_cupti_11_says_busy_is_understood() {
    let fault = "what = \"error\"\ncall = \"cuptiSubscribe\"\nresult = 12";
    let host = Setup::new(&kernels(130_001, fault)).start();
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("another tool holds CUPTI") && text.contains("(12)"), "{text}");
}

#[test]
fn a_tool_whose_variables_are_set_is_suspected_where_cupti_names_nobody() {
    let fault = "what = \"error\"\ncall = \"cuptiSubscribe\"\nresult = 39";
    let host = Setup::new(&kernels(26, fault)).variable("NSYS_PROFILING_SESSION_ID", "1").start();
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!((outcome, viewer.reason), (Outcome::Failed, Some(Reason::Busy)));
    assert!(text.contains("(39); perhaps Nsight Systems"), "{text}");
    ends_well(host);
}

#[test]
fn a_refusing_cupti_is_named_with_the_call_and_the_error() {
    for (call, result, part) in [
        (
            "cuptiSubscribe",
            15,
            "cuptiSubscribe: CUPTI_ERROR_NOT_INITIALIZED (15); CUPTI 13.0.85 may be newer than this driver allows",
        ),
        ("cuptiGetVersion", 999, "cuptiGetVersion: CUPTI_ERROR_UNKNOWN (999)"),
        ("cuptiActivityEnable", 35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"),
    ] {
        let fault = format!("what = \"error\"\ncall = \"{call}\"\nresult = {result}");
        let host = Setup::new(&kernels(130_001, &fault)).start();
        let mut viewer = host.viewer();
        let (outcome, text) = viewer.ask(Action::Watch);
        assert_eq!(outcome, Outcome::Failed);
        assert!(text.contains(part), "{text}");
        viewer.until("refused", |viewer| viewer.reason == Some(Reason::Refused));
        ends_well(host);
    }
}

#[test]
fn without_a_library_the_reason_is_said() {
    let setup = Setup::new(&mixed(130_001));
    std::fs::remove_file(setup.root.path().join("libcupti.so.13")).unwrap();
    let host = setup.start();
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("no libcupti"), "{text}");
    assert_eq!((viewer.state, viewer.reason), (Some(StateCode::Unavailable), Some(Reason::NoCupti)));
    // A file that is no library.
    std::fs::write(host.root.path().join("libcupti.so.13"), b"not an ELF file").unwrap();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("libcupti.so.13"), "{text}");
    ends_well(host);
}

#[test]
fn a_mapped_copy_is_used_and_another_one_is_refused() {
    let host = Setup::new(&mixed(130_001)).argument("--map-cupti").variable("GTOP_CUPTI", "").start();
    let mut viewer = host.watcher();
    viewer.until("the path", |viewer| viewer.cupti_path.ends_with("libcupti.so.13"));
    ends_well(host);

    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("libcupti.so.12");
    std::fs::write(&other, b"").unwrap();
    let host = Setup::new(&mixed(130_001))
        .argument("--map-cupti")
        .variable("GTOP_CUPTI", other.to_str().unwrap())
        .start();
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!((outcome, viewer.reason), (Outcome::Failed, Some(Reason::SecondCopy)));
    assert!(text.contains("libcupti.so.12 cannot be used"), "{text}");
    ends_well(host);
}

/// A toolkit with these copies of CUPTI, and a folder on the loader's path with one that is none.
fn toolkit(setup: Setup, copies: &[&str]) -> Setup {
    let root = setup.root.path().to_owned();
    let (toolkit, decoy) = (root.join("toolkit"), root.join("decoy"));
    for copy in copies {
        let path = toolkit.join(copy);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(root.join("libcupti.so.13"), path).unwrap();
    }
    std::fs::remove_file(root.join("libcupti.so.13")).unwrap();
    std::fs::create_dir(&decoy).unwrap();
    for name in ["libcupti.so.12", "libcupti.so.13"] {
        std::fs::write(decoy.join(name), b"an old copy that lacks what is needed").unwrap();
    }
    let setup = setup.variable("GTOP_CUPTI", "").variable("LD_LIBRARY_PATH", decoy.to_str().unwrap());
    setup.variable("CUDA_HOME", toolkit.to_str().unwrap())
}

#[test]
fn the_copy_that_the_driver_can_run_is_loaded_and_no_other() {
    let (newer, older) = ("extras/CUPTI/lib64/libcupti.so.13", "lib64/libcupti.so.12");
    for (driver, copies, used) in [
        ("580.159.04", &[newer, older][..], newer),
        ("535.104.05", &[newer, older][..], older),
        ("610.43.02", &[newer][..], newer),
    ] {
        let setup = Setup::new(&mixed(26)).driver(driver);
        let host = toolkit(setup, copies).start();
        let mut viewer = host.watcher();
        viewer.until("the path", |viewer| viewer.cupti_path.ends_with(used));
        // The loader's path has another, which is left alone.
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", host.pid())).unwrap();
        let mapped = gtop_shim::places::copies(&maps);
        assert_eq!(mapped.iter().map(|copy| copy.path).collect::<Vec<_>>(), [viewer.cupti_path.as_str()]);
        ends_well(host);
    }

    let setup = Setup::new(&mixed(130_001)).driver("535.104.05");
    let host = toolkit(setup, &[newer]).start();
    std::os::unix::fs::symlink(
        "libcupti.so.13",
        host.root.path().join("toolkit/extras/CUPTI/lib64/libcupti.so"),
    )
    .unwrap();
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!((outcome, viewer.reason), (Outcome::Failed, Some(Reason::Refused)));
    let says = "CUPTI 13 needs a newer driver (have 535.104.05, for CUDA 12): /";
    assert!(text.contains(says) && text.contains(newer), "{text}");
    ends_well(host);
}

#[test]
fn a_preloaded_copy_is_used_beside_one_that_nobody_uses() {
    let elsewhere = tempfile::tempdir().unwrap();
    let preloaded = elsewhere.path().join("libcupti.so.13");
    let setup = Setup::new(&mixed(130_001)).argument("--map-cupti");
    std::fs::copy(setup.root.path().join("libcupti.so.13"), &preloaded).unwrap();
    let path = preloaded.to_str().unwrap();
    let host = setup.variable("GTOP_CUPTI", path).variable("LD_PRELOAD", path).start();
    let mut viewer = host.watcher();
    viewer.until("the preloaded one", |viewer| viewer.cupti_path == path);
    viewer.until("armed", |viewer| viewer.state == Some(StateCode::Armed));
    ends_well(host);
}

#[test]
fn a_wrong_setting_is_told_and_the_safe_one_taken() {
    let host = Setup::new(&mixed(130_001)).variable("GTOP_KINDS", "kernel,graph").start();
    let mut viewer = host.watcher();
    assert_eq!(viewer.enabled.to_string(), "kernel memcpy memset");
    assert!(host.log().contains("\"graph\" is not a kind"), "{}", host.log());
    viewer.until("armed", |viewer| viewer.state == Some(StateCode::Armed));
}

#[test]
fn records_of_unknown_kinds_hide_bytes_that_are_counted() {
    let mut host = Setup::new(&kernels(130_001, "what = \"unknown_kind\"\nevery = 1500")).start();
    let mut viewer = host.watcher();
    host.say("turns 5000");
    viewer.ask(Action::Flush);
    let truth = host.truth();
    let delivered = truth["delivered"]["kernel"].as_u64().unwrap();
    assert!(delivered < 5000);
    viewer.until_delivered(delivered);
    assert_eq!(Some(viewer.loss.unknown_bytes), truth["hidden_bytes"].as_u64(), "{truth}");
    ends_well(host);
}

#[test]
fn empty_buffers_are_harmless() {
    let mut host = Setup::new(&kernels(130_001, "what = \"empty_buffer\"\nevery = 2")).start();
    let mut viewer = host.watcher();
    for _ in 0..20 {
        host.say("turns 100");
        viewer.ask(Action::Flush);
    }
    viewer.until_delivered(2000);
    assert!(host.truth()["buffers"]["empty"].as_u64().unwrap() > 0);
    ends_well(host);
}

#[test]
fn buffers_that_cupti_keeps_stay_good_and_are_counted() {
    let mut host = Setup::new(&kernels(130_500, "what = \"keep_buffers\"\ncount = 2")).start();
    let mut viewer = host.watcher();
    for _ in 0..10 {
        host.say("turns 2000");
        viewer.ask(Action::Flush);
    }
    assert_eq!(viewer.ask(Action::Rest).0, Outcome::Done);
    viewer.until("the two", |viewer| viewer.host_buffers.outstanding == 2);
    // They are still CUPTI's, for as long as the process lives.
    host.say("write");
    assert_eq!(viewer.ask(Action::Watch).0, Outcome::Done);
    host.say("turns 100");
    viewer.ask(Action::Flush);
    let truth = host.truth();
    assert_eq!(truth["withheld"]["kernel"].as_u64().map(|withheld| withheld > 0), Some(true), "{truth}");
    viewer.until_delivered(truth["delivered"]["kernel"].as_u64().unwrap());
    host.say("write");
    assert!(viewer.kernels.iter().all(|kernel| kernel.validity == 0), "nor are they read");
    ends_well(host);
}

#[test]
fn a_cupti_that_keeps_every_buffer_is_refused_or_given_one_to_lose() {
    for version in [26, 27, 28, 130_001] {
        let mut host = Setup::new(&kernels(version, "what = \"keep_buffers\"\ncount = 256")).start();
        let mut viewer = host.watcher();
        for _ in 0..256 {
            host.say("turns 10");
            viewer.ask(Action::Flush);
        }
        host.say("turns 1000");
        viewer.ask(Action::Flush);
        viewer.until("exhaustion", |viewer| {
            viewer.host_buffers.discarded > 0 && viewer.host_buffers.outstanding == 256
        });
        let truth = host.truth();
        assert_eq!(truth["crash"].to_string(), "null", "{version}");
        if version < 28 {
            // As many records as are dropped where CUPTI may be refused.
            viewer.until("the lost bytes", |viewer| viewer.loss.unknown_bytes == 1000 * 208);
        } else {
            assert!(truth["buffers"]["refused"].as_u64().unwrap() > 0, "{version}: {truth}");
            viewer.until("the dropped", |viewer| viewer.loss.cupti_dropped == 1000);
        }
        viewer.until("the notice", |viewer| viewer.has_notice("loss", "records are being lost"));
        ends_well(host);
    }
}

#[test]
fn what_cupti_drops_is_counted_apart() {
    let mut host = Setup::new(&kernels(130_001, "what = \"dropped\"\ncount = 7")).start();
    let mut viewer = host.watcher();
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until("drops", |viewer| viewer.loss.cupti_dropped >= 14 && viewer.received() == 10);
    assert_eq!(viewer.loss.cupti_dropped % 7, 0);
    assert!(viewer.balances());
}

#[test]
fn a_gpu_that_works_without_kernel_records_is_silent_and_comes_back() {
    let scenario = "cupti = 130001
[[thread]]
every = \"2ms\"
steps = [ { kernel = \"k\", ns = 1000 }, { copy = \"h2d\", bytes = 64, ns = 500 } ]
[[fault]]
what = \"silent\"
after = 200
count = 2500
";
    let mut host = Setup::new(scenario).real_time().start();
    let mut viewer = host.watcher();
    host.say("run");
    viewer.until("silence", |viewer| viewer.state == Some(StateCode::Silent));
    assert_eq!((viewer.reason, viewer.kernels.len()), (Some(Reason::Quiet), 200));
    viewer.until("the alarm", |viewer| viewer.has_notice("silent", "no kernel record for 2 s"));
    viewer.until("kernels again", |viewer| viewer.state == Some(StateCode::Armed));
    host.say("stop");
    ends_well(host);
}

#[test]
fn a_process_that_pauses_is_not_silent() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.watcher();
    host.say("turns 1000");
    viewer.until_delivered(1000 * PER_TURN);
    let losses = viewer.losses;
    // Time passes: the clock pair every ten seconds would be too slow, so the flush timer is counted.
    let flushes = |host: &mut Host| host.truth()["calls"]["cuptiActivityFlushAll"].as_u64().unwrap();
    let before = flushes(&mut host);
    wait_for("three idle seconds", || (flushes(&mut host) > before + 60).then_some(()));
    assert_eq!((viewer.ask(Action::Flush).0, viewer.state), (Outcome::Done, Some(StateCode::Armed)));
    assert!(viewer.losses <= losses + 2, "nothing new, so nothing said");
}

#[test]
fn launches_without_a_single_kernel_record_are_silence() {
    let scenario = "cupti = 130001
[[thread]]
every = \"2ms\"
steps = [ { kernel = \"k\", ns = 1000 } ]
[[fault]]
what = \"silent\"
";
    let mut host = Setup::new(scenario).real_time().start();
    let mut viewer = host.watcher();
    let calls = gtop_protocol::KindSet::parse("runtime,driver").unwrap();
    assert_eq!(viewer.ask(Action::Enable(calls.0)).0, Outcome::Done);
    host.say("run");
    // After an early start callbacks tell of graphs with kernels, and the first tool in the process is suspected.
    let scenario = "cupti = 130500
[[graph]]
name = \"step\"
nodes = [ { copy = \"d2d\", bytes = 64, ns = 500 }, { kernel = \"k\", ns = 1000, times = 10 } ]
[[thread]]
every = \"10ms\"
steps = [ { launch = \"step\" } ]
[[fault]]
what = \"silent\"
count = 4000
";
    let setup = Setup::new(scenario).real_time().variable("GTOP_EARLY", "1");
    let mut graphs = setup.variable("NSYS_PROFILING_SESSION_ID", "1").start();
    let mut of_graphs = graphs.watcher();
    let memcpy = gtop_protocol::KindSet::parse("memcpy").unwrap();
    assert_eq!(of_graphs.ask(Action::Disable(memcpy.0)).0, Outcome::Done);
    graphs.say("run");

    viewer.until("silence", |viewer| viewer.state == Some(StateCode::Silent));
    assert!(viewer.kernels.is_empty() && !viewer.others.is_empty());
    of_graphs.until("silence", |viewer| viewer.state == Some(StateCode::Silent));
    assert!(of_graphs.kernels.is_empty());
    of_graphs.until("the alarm", |viewer| viewer.has_notice("silent", "perhaps Nsight Systems"));
    of_graphs.until("kernels again", |viewer| viewer.state == Some(StateCode::Armed));
    for mut host in [host, graphs] {
        host.say("stop");
        ends_well(host);
    }
}
