//! Tracing in windows that keep to a price: what is seen is scaled, and what it costs is said.

use gtop_protocol::message::StateCode;
use gtop_sim::Kind;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};
use serde_json::{Value, json};

#[test]
fn windows_stand_for_the_whole_time() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130500
[[graph]]
name = "step"
nodes = [ { kernel = "often", ns = 1000, times = 3 }, { kernel = "long", ns = 9000 } ]
[[thread]]
every = "2ms"
steps = [ { launch = "step" } ]
[[fault]]
what = "late_ends"
by = "50ms"
"#;
    let mut host = stage.host(scenario).real_time().variable("GTOP_BUDGET", "20%").start();
    let stat = stage.start_stat(host.pid());
    let mut witness = stage.witness(host.pid());
    witness.until("a window", |witness| witness.windows > 0 && witness.state == Some(StateCode::Armed));
    let before = host.truth().executed(Kind::Kernel);
    host.say("run");
    witness.until("some windows", |witness| witness.windows >= 8);
    host.say("stop");
    let executed = (host.truth().executed(Kind::Kernel) - before) as f64;
    let stat = Summary(stat.interrupt().json());
    assert_balance(&stat["records"]);
    assert_eq!((&stat["budget_percent"], &stat["state"]), (&json!(20.0), &json!("armed")));
    let sampling = &stat["sampling"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{sampling}"));
    let seen = count(&stat["records"]["kernel"]) as f64;
    assert!(seen < executed / 2.0, "only windows are seen: {seen} of {executed}");
    let calls = &sampling["calls"];
    let value = number(&calls["value"]);
    // How wide the interval is and how often it holds is tested where time can be had; here it is the whole way.
    assert!((0.5..2.0).contains(&(value / executed)), "{executed}: {sampling}");
    assert!(number(&calls["low"]) <= value && value <= number(&calls["high"]), "{sampling}");
    let covered = number(&sampling["covered_seconds"]) / number(&sampling["span_seconds"]);
    assert!(covered < 0.3, "{sampling}");
    assert!(number(&sampling["price_percent_high"]) <= 20.0, "{sampling}");
    assert_eq!(sampling["between"], json!([]), "this CUPTI is sound");
    let rows = stat["kernels"].as_array().unwrap();
    let shares: f64 = rows.iter().map(|row| number(&row["estimate"]["share"]["value"])).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{rows:?}");
    assert_eq!((&rows[0]["name"], &rows[0]["max_ns"]), (&json!("long"), &json!(9000)));
    assert!(
        count(&stat["notes"]["cut_off"]) > 0,
        "the last launch of a window has the ends of a later one: {}",
        stat["notes"]
    );
}

#[test]
fn a_price_is_asked_for_and_taken_back() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    assert_eq!(stage.ctl(host.pid(), &["budget", "101"]).code(), Some(2));
    let said = stage.ctl(host.pid(), &["budget", "0.5"]).good();
    assert!(said.contains("at most 0.5 %"), "{said}");
    let mut watch = stage.watch(host.pid());
    watch.witness.until("the price", |witness| witness.budget_ppm == 5000);
    assert!(stage.ctl(host.pid(), &["budget", "0"]).good().contains("in full"));
    watch.witness.until("none", |witness| witness.budget_ppm == 0);
    host.say("turns 10");
    let stat = watch.finish();
    assert_balance(&stat["records"]);
    assert_eq!(stat["budget_percent"], Value::Null);
}

#[test]
fn where_kernel_cannot_go_off_the_true_price_is_said() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[graph]]
name = "step"
nodes = [ { memset = 64, ns = 400 }, { kernel = "k", ns = 500 } ]
[[thread]]
steps = [ { launch = "step" } ]
"#;
    let mut host = stage.host(scenario).early().start();
    let mut watch = stage.watch(host.pid());
    host.say("turns 100");
    watch.witness.until("the records", |witness| witness.loss.walked >= 200);
    let asked = stage.ctl(host.pid(), &["budget", "1"]);
    asked.fails(1, &["sets memory", "full price"]);
    host.say("turns 1000");
    let stat = watch.finish();
    assert_balance(&stat["records"]);
    assert_eq!(host.truth().growth_mib(), 0);
}
