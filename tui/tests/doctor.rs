//! `gtop doctor` on this machine, whatever that is, and the process that asks a library.

use std::process::{Command, Stdio};

use gtop_sim::artefacts;
use serde_json::Value;

fn gtop(args: &[&str]) -> (Option<i32>, String, String) {
    let output = assert_cmd::Command::cargo_bin("gtop").unwrap().args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn text_and_json_find_the_same_and_a_fault_is_exit_code_1() {
    let (code, said, _) = gtop(&["doctor", "--json"]);
    let json: Value = serde_json::from_str(&said).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let fault = findings.iter().any(|finding| finding["level"] == "fault");
    assert_eq!((code, &json["level"] == "fault"), (Some(i32::from(fault)), fault));
    let (code_of_text, text, _) = gtop(&["doctor"]);
    assert_eq!(code_of_text, code);
    for finding in findings {
        let (level, id) = (finding["level"].as_str().unwrap(), finding["id"].as_str().unwrap());
        assert!(text.lines().any(|line| line.starts_with(level) && line.contains(id)), "{id}: {text}");
    }
}

#[test]
fn a_process_without_the_shim_is_examined_and_one_that_is_gone_is_exit_code_3() {
    let mut child =
        Command::new("cat").env_remove("CUDA_INJECTION64_PATH").stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let (code, said, errors) = gtop(&["doctor", "--json", "--attach", &pid]);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(code, Some(1), "{errors}");
    let json: Value = serde_json::from_str(&said).unwrap();
    let of_process = |finding: &&Value| finding["pid"].as_u64() == pid.parse().ok();
    let found: Vec<&Value> = json["findings"].as_array().unwrap().iter().filter(of_process).collect();
    let injection = found.iter().find(|finding| finding["id"] == "injection").unwrap();
    assert_eq!(injection["level"], "fault");
    assert!(injection["next_step"].as_str().unwrap().contains("gtop run"), "{injection}");

    let (code, _, errors) = gtop(&["doctor", "--attach", "4194305"]);
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("no such process"), "{errors}");
}

#[test]
fn a_library_is_asked_in_a_process_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    artefacts::lay_out(dir.path()).unwrap();
    let ask = |library: &str, path: &std::path::Path| {
        let mut command = assert_cmd::Command::cargo_bin("gtop").unwrap();
        let command = command.env("LD_LIBRARY_PATH", path).args(["__doctor", "cupti"]);
        let output = command.arg(dir.path().join(library)).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let none = ask("none.so", dir.path());
    assert!(none.contains("Silent") && none.contains("none.so: cannot open"), "{none}");
    let other = ask("libcuda.so.1", dir.path());
    assert!(other.contains("it has no cuptiGetVersion"), "{other}");
    let simulated = ask("libcupti.so.13", dir.path());
    assert!(simulated.contains("CUPTI_ERROR_NOT_INITIALIZED (15)"), "no GPU is simulated there: {simulated}");

    let Some(real) = std::env::var_os("GTOP_TEST_CUPTI") else {
        let required =
            std::env::var("GTOP_REQUIRE").is_ok_and(|list| list.split(',').any(|one| one == "cupti"));
        assert!(!required, "GTOP_REQUIRE=cupti, but GTOP_TEST_CUPTI names no library");
        println!("skipped: GTOP_TEST_CUPTI does not name a libcupti.so.13 of 13.0.85");
        return;
    };
    let real = ask(real.to_str().unwrap(), dir.path());
    assert_eq!(real, r#"{"Version":130001}"#);
}
