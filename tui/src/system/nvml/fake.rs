//! Machines that are not here: backends run in a real helper process, which is this test program once more.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::backend::{Backend, Unavailable};
use super::client::{Client, Options, Snapshot, Status};
use super::helper;
use super::sample::{DeviceSample, ProcessSample};

const MACHINE: &str = "GTOP_TEST_MACHINE";

/// Not a test of its own: what the helper process runs.
#[test]
fn helper_process() {
    let Ok(machine) = std::env::var(MACHINE) else { return };
    let name = std::env::args().next_back().unwrap();
    helper::serve(&name, || open(&machine)).unwrap();
}

fn open(machine: &str) -> Result<Box<dyn Backend>, Unavailable> {
    let (kind, detail) = machine.split_once(':').unwrap_or((machine, ""));
    match kind {
        "devices" => Ok(Box::new(Devices(detail.parse().unwrap()))),
        "driverless" => Err(Unavailable::NoDriver),
        "hangs" => Ok(Box::new(Hangs)),
        // The marker makes the first of several helpers behave, and those after it.
        "hangs-once" if File::create_new(detail).is_ok() => Ok(Box::new(Hangs)),
        "hangs-until" if !Path::new(detail).exists() => Ok(Box::new(HangsLater(0))),
        "dies-once" if File::create_new(detail).is_ok() => std::process::abort(),
        "comes-back" if File::create_new(detail).is_ok() => Err(Unavailable::Lost),
        "hangs-once" | "hangs-until" | "dies-once" | "comes-back" => Ok(Box::new(Devices(1))),
        other => panic!("no machine {other}"),
    }
}

struct Devices(u32);

impl Backend for Devices {
    fn sample(&mut self) -> Result<Vec<DeviceSample>, Unavailable> {
        let process = |pid| ProcessSample {
            pid,
            name: "python".into(),
            used: Some(u64::from(pid)),
            ..Default::default()
        };
        let device = |index| DeviceSample {
            index,
            uuid: format!("GPU-{index}"),
            memory_total: Some(80 << 30),
            processes: (1..=500).map(process).collect(),
            ..Default::default()
        };
        Ok((0..self.0).map(device).collect())
    }
}

struct Hangs;

impl Backend for Hangs {
    fn sample(&mut self) -> Result<Vec<DeviceSample>, Unavailable> {
        loop {
            std::thread::park();
        }
    }
}

struct HangsLater(u32);

impl Backend for HangsLater {
    fn sample(&mut self) -> Result<Vec<DeviceSample>, Unavailable> {
        self.0 += 1;
        if self.0 > 2 { Hangs.sample() } else { Devices(2).sample() }
    }
}

fn options(machine: &str) -> Options {
    Options {
        program: std::env::current_exe().unwrap(),
        args: ["--exact", "system::nvml::fake::helper_process", "--nocapture"].map(OsString::from).to_vec(),
        environment: vec![(MACHINE.into(), machine.into())],
        interval: Duration::from_millis(10),
        retry: Duration::from_millis(50),
        ..Options::default()
    }
}

/// Waits until the client says so; a test that never gets there is ended by whoever runs it.
fn wait(client: &Client, until: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { client.subscribe().wait_for(until).await.unwrap().clone() })
}

#[test]
fn eight_devices_and_their_processes_come_through() {
    let client = Client::start(options("devices:8")).unwrap();
    let snapshot = wait(&client, |snapshot| snapshot.status == Status::Live);
    assert_eq!(snapshot.devices[..], Devices(8).sample().unwrap());
    assert_eq!(snapshot.note(Instant::now()), None);
    let first = snapshot.taken;
    wait(&client, |snapshot| snapshot.taken > first);
}

#[test]
fn a_driver_that_hangs_leaves_the_last_samples_with_their_age() {
    let dir = tempfile::tempdir().unwrap();
    let well = dir.path().join("well");
    let machine = format!("hangs-until:{}", well.display());
    let client =
        Client::start(Options { deadline: Duration::from_millis(200), ..options(&machine) }).unwrap();
    let stuck = wait(&client, |snapshot| matches!(snapshot.status, Status::Stuck(_)));
    assert_eq!(stuck.devices[..], Devices(2).sample().unwrap());
    let later = stuck.taken.unwrap() + Duration::from_secs(7);
    assert_eq!(stuck.age(later), Some(Duration::from_secs(7)));
    let note = stuck.note(later).unwrap();
    assert!(note.contains("has not answered for"), "{note}");
    // A helper started in place of the others answers.
    File::create(well).unwrap();
    let live = wait(&client, |snapshot| snapshot.devices.len() == 1);
    assert!(live.replaced >= 1);
}

#[test]
fn a_driver_that_never_answers_is_stuck_since_it_was_first_asked() {
    let client =
        Client::start(Options { first_deadline: Duration::from_millis(100), ..options("hangs") }).unwrap();
    let first = wait(&client, |snapshot| snapshot.replaced >= 1);
    let later = wait(&client, |snapshot| snapshot.replaced >= 3);
    assert!(matches!(first.status, Status::Stuck(_)));
    assert_eq!((later.status, later.devices.len(), later.taken), (first.status, 0, None));
}

#[test]
fn a_helper_that_hangs_at_once_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let machine = format!("hangs-once:{}", dir.path().join("marker").display());
    let options = Options { first_deadline: Duration::from_millis(500), ..options(&machine) };
    let client = Client::start(options).unwrap();
    assert_eq!(wait(&client, |snapshot| snapshot.status == Status::Live).devices.len(), 1);
}

#[test]
fn a_helper_that_dies_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let client =
        Client::start(options(&format!("dies-once:{}", dir.path().join("marker").display()))).unwrap();
    let live = wait(&client, |snapshot| snapshot.status == Status::Live);
    assert_eq!((live.devices.len(), live.replaced), (1, 1));
}

#[test]
fn no_driver_is_a_reason_and_may_change() {
    let client = Client::start(options("driverless")).unwrap();
    let snapshot = wait(&client, |snapshot| snapshot.status != Status::Starting);
    assert_eq!(snapshot.status, Status::Unavailable(Unavailable::NoDriver));
    assert_eq!(snapshot.note(Instant::now()).unwrap(), "the NVIDIA driver is not loaded");

    let dir = tempfile::tempdir().unwrap();
    let machine = format!("comes-back:{}", dir.path().join("marker").display());
    let client = Client::start(options(&machine)).unwrap();
    let live = wait(&client, |snapshot| snapshot.status == Status::Live);
    assert_eq!((live.devices.len(), live.replaced), (1, 0));
}

#[test]
fn a_program_that_is_no_helper_is_said_to_be_none() {
    let no_helper = |program: &str| {
        let options = Options { program: Path::new(program).into(), ..options("devices:1") };
        let client = Client::start(options).unwrap();
        let snapshot = wait(&client, |snapshot| snapshot.status != Status::Starting);
        snapshot.note(Instant::now()).unwrap()
    };
    assert!(no_helper("/bin/true").contains("it ended at once"), "{}", no_helper("/bin/true"));
    assert!(no_helper("/no/such/program").contains("No such file"));
}

#[test]
fn a_stranger_is_not_believed() {
    // A helper that does not know the secret.
    let environment = vec![(MACHINE.into(), "devices:1".into())];
    let mut options = Options { environment, ..options("") };
    options.program = "/usr/bin/env".into();
    let test: OsString = std::env::current_exe().unwrap().into();
    options.args = [
        OsString::from("-u"),
        super::helper::SECRET.into(),
        test,
        "--exact".into(),
        "system::nvml::fake::helper_process".into(),
    ]
    .into();
    let client = Client::start(options).unwrap();
    let snapshot = wait(&client, |snapshot| snapshot.status != Status::Starting);
    assert_eq!(snapshot.status, Status::Failed("a stranger connected in its place".into()));
}

#[test]
fn the_real_nvml_answers_or_says_why_not() {
    let sampled = super::driver::Driver::open().and_then(|mut driver| driver.sample());
    match sampled {
        Ok(devices) => {
            assert!(!devices.is_empty());
            for device in devices {
                println!("{device:#?}");
                assert!(device.uuid.starts_with("GPU-"));
                assert!(device.memory_total.is_some(), "{:?}", device.missing);
            }
        }
        Err(reason) => {
            let required = std::env::var("GTOP_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "gpu"), "{reason}");
            println!("skipped: {reason}");
        }
    }
}
