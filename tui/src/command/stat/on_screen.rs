//! The numbers of the screen and those of `stat --json` are the same, and odd names survive both.

use std::path::Path;
use std::sync::Arc;

use ratatui::layout::Size;
use serde_json::Value;

use super::json;
use crate::input::{Action, apply};
use crate::model::Model;
use crate::model::snapshot::{KernelName, LaneKey, Snapshot, SourceKind};
use crate::model::time::Moment;
use crate::source::file;
use crate::view::{Theme, ViewState, render, render_text, units};

fn recorded(name: &str, model: fn(SourceKind, &str) -> Model) -> Snapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    let mut model = model(SourceKind::File, name);
    let conn = model.add(0);
    file::read(&path, &mut |frame| {
        model.apply_all(conn, frame, Moment::default()).unwrap();
    })
    .unwrap();
    model.snapshot(Moment::default())
}

fn json(snapshot: &Snapshot) -> Value {
    let mut text = Vec::new();
    json::write(snapshot, &mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_summary_needs_nothing_that_is_drawn() {
    for name in ["cupti-13.0.85-vllm-0.24.0.cuptibuf.xz", "cupti-13.4.92-mixed.cuptibuf.xz"] {
        let (drawn, summary) = (recorded(name, Model::new), recorded(name, Model::summary));
        assert!(drawn.processes[0].lanes.iter().any(|lane| lane.slices.span().is_some()));
        assert!(summary.processes[0].lanes.is_empty());
        assert_eq!(json(&drawn), json(&summary), "{name}");
        let text = |snapshot: &Snapshot| {
            let mut text = Vec::new();
            super::text::write(snapshot, &mut text).unwrap();
            text
        };
        assert!(text(&drawn) == text(&summary), "{name}");
    }
}

#[test]
fn the_screen_and_the_summary_say_the_same() {
    for name in ["cupti-13.0.85-mixed.cuptibuf.xz", "cupti-12.8.90-mixed.cuptibuf.xz"] {
        let snapshot = recorded(name, Model::new);
        let process = &json(&snapshot)["processes"][0];
        let state = ViewState { tab: 2, theme: Theme::MONO, ..ViewState::default() };
        let screen = render_text(&snapshot, &state, Size::new(200, 60));
        let kernels = process["kernels"].as_array().unwrap();
        assert!(!kernels.is_empty());
        for kernel in kernels {
            let number = |key: &str| kernel[key].as_u64().unwrap();
            let cells = [
                units::count(number("calls")),
                units::duration(number("total_ns")),
                units::duration(number("min_ns")),
                units::duration(number("p50_ns")),
                units::duration(number("p99_ns")),
                units::duration(number("max_ns")),
                units::percent(kernel["share"].as_f64().unwrap()),
            ];
            let row = |line: &&str| cells.iter().all(|cell| line.contains(cell.as_str()));
            assert!(screen.lines().any(|line| row(&line)), "{name}: no row with {cells:?} on\n{screen}");
        }
        let lost: u64 =
            process["records"]["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert!(screen.contains(&format!("lost {}", units::count(lost))), "{screen}");
        tabs_say_the_same(name, &snapshot, process);
    }
}

/// What the other tabs say: records with bad times, copies' directions, streams and their busy time.
fn tabs_say_the_same(name: &str, snapshot: &Snapshot, process: &Value) {
    let screen = |tab: usize, keys: &[Action]| {
        let mut state = ViewState { tab, theme: Theme::MONO, ..ViewState::default() };
        state.seen = render(snapshot, &state, Size::new(200, 60)).1;
        for key in keys {
            apply(*key, &mut state, snapshot);
            state.seen = render(snapshot, &state, Size::new(200, 60)).1;
        }
        render_text(snapshot, &state, Size::new(200, 60))
    };
    let validity = &process["validity"];
    let trust = screen(5, &[]);
    let invalid = units::percent(validity["rate_total"].as_f64().unwrap());
    assert!(trust.contains(&format!("total {invalid}")), "{name}: total {invalid} on\n{trust}");
    // All of the file in one stretch: each lane with its records and its busy time.
    let stretch = screen(1, &[Action::ShowRange]);
    for stream in process["streams"].as_array().unwrap() {
        let number = |key: &str| stream[key].as_u64().unwrap();
        let lane = format!("s{}", number("stream"));
        assert!(
            number("records") == 0 || stretch.contains(&format!("│ {lane} ")),
            "{name}: {lane} on\n{stretch}"
        );
    }
    for copy in process["memcpy"].as_array().unwrap() {
        let lane = format!("copy {}", copy["direction"].as_str().unwrap());
        assert!(stretch.contains(&lane), "{name}: {lane} on\n{stretch}");
    }
    let graphs = process["graphs"]["launches"].as_u64().unwrap();
    let tab = screen(3, &[]);
    assert!(tab.contains(&units::count(graphs)), "{name}: {graphs} launches on\n{tab}");
    // Kernels of one stream alone take as long on its lane as the summary says.
    let lanes = &snapshot.processes[0].lanes;
    for lane in lanes.iter().filter(|lane| matches!(lane.key, LaneKey::Stream { .. })) {
        let LaneKey::Stream { stream, context, .. } = lane.key else { continue };
        let of = |row: &&Value| {
            row["stream"].as_u64() == Some(stream.into()) && row["context"].as_u64() == Some(context.into())
        };
        let row = process["streams"].as_array().unwrap().iter().find(of).unwrap();
        let (from, to) = lane.slices.span().unwrap();
        let (busy, all) = (lane.slices.covered(from, to), row["busy_ns"].as_u64().unwrap());
        assert!(busy <= all, "{name}: s{stream} is busy for {busy} ns on its lane and for {all} ns in all");
        let moved =
            lanes.iter().any(|lane| matches!(lane.key, LaneKey::Copy { .. } | LaneKey::Memset { .. }));
        assert!(moved || busy == all, "{name}: s{stream}");
    }
}

#[test]
fn no_name_breaks_the_summary() {
    let mut snapshot = recorded("cupti-13.0.85-mixed.cuptibuf.xz", Model::new);
    let odd = [
        "operator\"\"_kg".as_bytes(),
        b"a\\b",
        b"\x01\x02\x03",
        b"one\ntwo",
        b"\xed\xa0\x80",
        b"{\"device\": \"cpu\"}",
    ];
    let mut forms = crate::model::names::Namer::default();
    let names: Vec<Arc<KernelName>> = odd.iter().map(|name| Arc::new(forms.name(name))).collect();
    let process = &mut snapshot.processes[0];
    let row = process.kernels[0].clone();
    let rows =
        names.iter().map(|name| crate::model::snapshot::KernelRow { name: Arc::clone(name), ..row.clone() });
    process.kernels = rows.collect();
    let json = json(&snapshot);
    let given: Vec<_> =
        json["processes"][0]["kernels"].as_array().unwrap().iter().map(|kernel| &kernel["mangled"]).collect();
    let kept: Vec<_> = names.iter().map(|name| Value::from(name.mangled.as_str())).collect();
    assert_eq!(given, kept.iter().collect::<Vec<_>>());
    assert_eq!(given[0], "operator\"\"_kg");
    assert_eq!(given[1], "a\\b");
    assert_eq!(given[5], "{\"device\": \"cpu\"}");
}
