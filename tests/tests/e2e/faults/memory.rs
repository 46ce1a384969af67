//! Each piece of memory that the shim asks for is not there, alone or with all that follow.

use std::collections::BTreeMap;

use gtop_tests::host::{Host, Setup};
use gtop_tests::stage::Stage;

use super::{alone, case, table, trial, watch_if_there, work};

/// A host whose shim does not get these pieces of its memory.
fn starved<'s>(stage: &'s Stage, pieces: &str) -> Setup<'s> {
    let driver = stage.path().join("libcuda.so.1");
    let setup = stage.host(&work(130_500, "")).variable("LD_PRELOAD", driver.to_str().unwrap());
    setup.argument("--starve").argument(pieces)
}

#[test]
fn each_piece_of_memory_is_not_there() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: the allocator that fails is for x86-64");
        return;
    }
    let stage = Stage::new();
    let alone = alone(starved(&stage, "0"));
    let asked = trial(&stage, &alone, starved(&stage, "0"), |host| {
        assert_eq!(watch_if_there(&stage, host, alone.threads), "armed");
        host.say("starved")
    });
    let asked: u64 = asked.parse().unwrap();
    assert!(asked > 20, "only {asked} pieces");
    let (alone, parts) = (&alone, 4);
    let both = (0..parts).flat_map(|part| [(part, "alone"), (part, "and none after it")]);
    let cases: Vec<_> = both
        .map(|(part, what)| {
            let name = format!("each {part} mod {parts} of {asked} pieces of memory is not there, {what}");
            case(name, move |stage: &Stage| {
                let mut seen: BTreeMap<String, u32> = BTreeMap::new();
                for piece in (1..=asked).filter(|piece| piece % parts == part) {
                    let pieces = if what == "alone" { piece.to_string() } else { format!("{piece}-") };
                    let look = |host: &mut Host| watch_if_there(stage, host, alone.threads);
                    *seen.entry(trial(stage, alone, starved(stage, &pieces), look)).or_default() += 1;
                }
                let told = seen.into_iter().map(|(told, times)| format!("{told} ({times} times)"));
                told.collect::<Vec<_>>().join("; or ")
            })
        })
        .collect();
    table(&cases);
}
