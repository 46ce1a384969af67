//! The numbers of the screen and those of `stat --json` are the same, and odd names survive both.

use std::path::Path;
use std::sync::Arc;

use ratatui::layout::Size;
use serde_json::Value;

use super::json;
use crate::model::Model;
use crate::model::snapshot::{KernelName, Snapshot, SourceKind};
use crate::model::time::Moment;
use crate::source::file;
use crate::view::{Theme, ViewState, render_text, units};

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
