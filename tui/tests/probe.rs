//! The probe from its parent's side, over the simulated CUPTI: what it says of defective and of sound versions, and of
//! processes that hang, die or never begin.

use std::ffi::{CStr, c_void};
use std::io;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use gtop::probe::child::{Done, Said, serve};
use gtop::probe::load::Counts;
use gtop::probe::{self, Answer, Judged, Law, Load, Patience, Row, RowVerdict, Start};
use gtop_protocol::cupti::Verdict;
use gtop_shim::Config;
use gtop_sim::{Kind, Pace, Simulation, Truth};
use serde_json::Value;

/// Tells this program that it is a row's process: the version, the load, the turns, and how it behaves.
const CHILD: &str = "GTOP_TEST_PROBE";
/// Small device buffers make small rows; the law is the same.
const LAW: Law = Law { slots: 2_000 };
/// What one slot takes, bytes.
const SLOT: u64 = 32;

/// A row's process is this test program, doing the simulated child.
struct Simulated {
    version: u32,
    behaviour: &'static str,
}

impl Start for Simulated {
    fn command(&self, row: &Row) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "simulated_child", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, format!("{} {} {} {}", self.version, row.load, row.turns, self.behaviour));
        command
    }
}

/// A row's process is some other program.
struct Program(&'static [&'static str]);

impl Start for Program {
    fn command(&self, _: &Row) -> Command {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]);
        command
    }
}

fn resolve(name: &CStr) -> *mut c_void {
    gtop_sim::resolve(name)
}

fn scenario(version: u32, load: Load, behaviour: &str) -> String {
    let node = match load {
        Load::D2d | Load::D2dEager => "{ copy = 'd2d', bytes = 65536 }",
        Load::Memset => "{ memset = 65536 }",
        Load::H2d => "{ copy = 'h2d', bytes = 65536 }",
        Load::D2h => "{ copy = 'd2h', bytes = 65536 }",
    };
    let eager = if load == Load::D2dEager { ", { kernel = 'eager', ns = 900 }" } else { "" };
    let fault = if behaviour == "busy" { "[[fault]]\nwhat = 'busy'" } else { "" };
    format!(
        "cupti = {version}
        [[graph]]
        name = 'g'
        nodes = [{node}, {{ kernel = 'tiny', ns = 740 }}]
        [[thread]]
        steps = [{{ launch = 'g' }}{eager}]
        {fault}"
    )
}

fn memory(truth: &Truth) -> u64 {
    truth.device_buffers.iter().map(|context| context.allocated << 22).sum()
}

/// Not a test of its own: a row's process over the simulated CUPTI.
#[test]
fn simulated_child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    // The harness has begun a line.
    println!();
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let [version, load, turns, behaviour] = arguments[..] else { panic!("{arguments:?}") };
    let scenario = scenario(version.parse().unwrap(), load.parse().unwrap(), behaviour);
    let scenario = gtop_sim::scenario(&scenario).unwrap();
    let mut simulation = Simulation::load(&scenario, Pace::Stepped).unwrap();
    simulation.set_device_buffer_size(LAW.slots * SLOT);
    if behaviour != "unshimmed" {
        assert!(gtop_shim::start_with(resolve, Config::from_environment()));
    }
    simulation.begin();
    Said::Ready { device: "simulated".into(), driver: 13000 }.say().unwrap();
    serve(|| -> io::Result<Done> {
        match behaviour {
            "hangs" => loop {
                std::thread::park();
            },
            "dies" => {
                eprintln!("an illegal memory access was encountered");
                std::process::exit(7);
            }
            _ => {}
        }
        simulation.turns(1);
        let memory_before = memory(&simulation.truth());
        simulation.turns(turns.parse::<u64>().unwrap() - 1);
        let truth = simulation.truth();
        let launched = Counts {
            kernels: truth.executed(Kind::Kernel),
            device_to_device: truth.executed(Kind::Memcpy),
            memsets: truth.executed(Kind::Memset),
            ..Counts::default()
        };
        Ok(Done { launched, memory_before, memory_after: memory(&truth) })
    })
    .unwrap();
}

fn patience() -> Patience {
    Patience { quiet: Duration::from_millis(260), ..Patience::default() }
}

/// All rows at once.
fn run_with(rows: Vec<Row>, start: impl Start + 'static, patience: &Patience) -> Vec<Judged> {
    let (start, patience) = (Rc::new(start), *patience);
    let run = async move {
        let spawn = |row| {
            let start = Rc::clone(&start);
            tokio::task::spawn_local(async move { probe::run_row(row, &*start, &patience).await })
        };
        let tasks: Vec<_> = rows.into_iter().map(spawn).collect();
        let mut judged = Vec::new();
        for task in tasks {
            judged.push(probe::judge(task.await.unwrap(), LAW));
        }
        judged
    };
    gtop::command::block_on(run).unwrap()
}

fn run(version: u32, rows: Vec<Row>) -> (Vec<Judged>, Answer) {
    let judged = run_with(rows, Simulated { version, behaviour: "works" }, &patience());
    let answer = probe::answer(&judged);
    (judged, answer)
}

#[test]
fn the_whole_table_on_a_defective_version() {
    let (judged, answer) = run(130_001, probe::full(8, LAW));
    for row in &judged {
        let what = format!("{:?}: {}", row.ran.row, row.words);
        let tally = &row.ran.tally;
        let launched = row.ran.done.as_ref().unwrap().launched;
        assert_eq!(tally.version, Some(130_001), "{what}");
        let Some((stop, as_said)) = row.law else {
            assert_eq!(row.verdict, RowVerdict::Sound, "{what}");
            assert_eq!((tally.valid_kernels(), tally.lost()), (launched.kernels, 0), "{what}");
            continue;
        };
        assert!(as_said, "{what}: {:?} instead of {stop}", row.stopped_at);
        if row.ran.row.load == Load::D2dEager {
            assert_eq!(row.verdict, RowVerdict::Zeros, "{what}");
            let first = tally.first_bad.unwrap();
            assert_eq!((first.start, first.end), (0, 0), "{what}");
            assert!(first.index.abs_diff(stop) < 10, "{what}: {first:?}");
        } else {
            assert_eq!((row.verdict, row.stopped_at), (RowVerdict::Stops, Some(stop)), "{what}");
        }
        let done = row.ran.done.as_ref().unwrap();
        let grown = (done.memory_after - done.memory_before) >> 20;
        assert_eq!(grown, (row.ran.row.pool_limit - 3) * 4, "{what}");
    }
    assert_eq!(answer.verdict, Verdict::Defective, "{}", answer.text);
    for part in ["CUPTI 13.0.85 is defective", "at a pool limit of 16", "With that kind on", ">=13.3"] {
        assert!(answer.text.contains(part), "{part}: {}", answer.text);
    }
    check_json(&judged, &answer);
}

/// The JSON says the same as the rows.
fn check_json(judged: &[Judged], answer: &Answer) {
    let mut bytes = Vec::new();
    probe::json::write(judged, answer, false, &mut bytes).unwrap();
    let json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&json["schema"], &json["verdict"]), (&"gtop.probe/1".into(), &"defective".into()));
    assert_eq!((&json["cupti"]["version"], &json["driver_cuda"]), (&130_001.into(), &"13.0".into()));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), judged.len());
    let first = &rows[0];
    assert_eq!((&first["load"], &first["kinds"]), (&"d2d".into(), &serde_json::json!(["kernel"])));
    assert_eq!((&first["recorded"]["kernel"], &first["stopped_at"]), (&8_000.into(), &8_000.into()));
    assert_eq!((&first["as_the_law_says"], &first["first_invalid"]), (&true.into(), &Value::Null));
    let zeros = rows.iter().find(|row| row["verdict"] == "zeros").unwrap();
    assert_eq!(zeros["first_invalid"]["class"], "zero");
    let mut table = Vec::new();
    probe::text::head(&judged[0], &mut table).unwrap();
    for row in judged {
        probe::text::row(row, &mut table).unwrap();
    }
    let table = String::from_utf8(table).unwrap();
    let line = table.lines().find(|line| line.starts_with("d2d ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[..6], ["d2d", "kernel", "8", "10,000", "8,000", "8,000"], "{line}");
    assert!(line.ends_with("records stop") && line.contains("+20 MiB"), "{line}");
}

#[test]
fn the_deciding_rows_on_sound_versions() {
    for (version, copies_unasked) in [(26, true), (130_401, false)] {
        let (judged, answer) = run(version, probe::quick(8, LAW));
        assert_eq!(answer.verdict, Verdict::Sound, "{}", answer.text);
        for row in &judged {
            assert_eq!(row.ran.tally.valid_kernels(), row.ran.row.turns, "{:?}", row.ran.row);
        }
        assert_eq!(judged[0].ran.tally.copies[0] > 0, copies_unasked, "{version}");
    }
}

#[test]
fn a_version_that_is_not_what_the_table_says_is_to_be_reported() {
    let (mut judged, _) = run(130_401, probe::quick(8, LAW));
    for row in &mut judged {
        row.ran.tally.version = Some(130_001);
    }
    let text = probe::answer(&judged).text;
    assert!(text.contains("is sound") && text.contains("says defective: please report this"), "{text}");
    judged[0].ran.tally.version = Some(27);
    let text = probe::answer(&judged).text;
    assert!(text.contains("knows nothing of this version"), "{text}");
}

fn one(behaviour: &'static str, patience: &Patience) -> Judged {
    let start = Simulated { version: 130_001, behaviour };
    run_with(vec![probe::quick(8, LAW)[0]], start, patience).remove(0)
}

#[test]
fn a_process_that_hangs_is_killed_and_its_row_says_so() {
    let soon = Duration::from_millis(50);
    let row = one("hangs", &Patience { work: soon, turn: Duration::ZERO, ..patience() });
    assert_eq!(row.verdict, RowVerdict::NotRun);
    assert!(row.words.contains("not done within") && row.words.contains("killed"), "{}", row.words);
    assert_eq!(probe::answer(&[row]).verdict, Verdict::Unknown);

    let row = one("unshimmed", &Patience { join: soon, ..patience() });
    assert!(row.words.contains("could not be watched within 50ms"), "{}", row.words);

    let row = run_with(
        vec![probe::quick(8, LAW)[0]],
        Program(&["sleep", "1000"]),
        &Patience { ready: soon, ..patience() },
    )
    .remove(0);
    assert!(row.words.contains("not ready within"), "{}", row.words);
}

#[test]
fn a_cupti_that_cannot_be_had_is_said() {
    let row = one("busy", &patience());
    assert_eq!(row.verdict, RowVerdict::NotRun);
    assert!(row.words.contains("another tool holds CUPTI"), "{}", row.words);
}

#[test]
fn a_process_that_dies_leaves_its_last_words() {
    let row = one("dies", &patience());
    assert_eq!(row.verdict, RowVerdict::NotRun);
    assert!(row.words.contains("exit status: 7") && row.words.contains("illegal memory"), "{}", row.words);

    let row = run_with(vec![probe::quick(8, LAW)[0]], Program(&["/no/such/program"]), &patience()).remove(0);
    assert!(row.words.contains("cannot be started: No such file"), "{}", row.words);
}

#[test]
fn without_a_gpu_it_says_so_and_exits_3() {
    let output = assert_cmd::Command::cargo_bin("gtop").unwrap().args(["probe", "--quick"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    if std::fs::exists("/dev/nvidiactl").unwrap() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.starts_with("gtop: the probe cannot run: no libcuda.so.1"), "{errors}");
    assert!(errors.contains("gtop demo defect"), "{errors}");
    let wrong = assert_cmd::Command::cargo_bin("gtop").unwrap().args(["probe", "--cupti", "/no/x"]).output();
    assert_eq!(wrong.unwrap().status.code(), Some(2));
}
