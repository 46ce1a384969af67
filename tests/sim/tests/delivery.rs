//! Records reach a client that subscribed, registered and enabled, and nobody else.

mod common;

use common::Client;
use gtop_sim::{Kind, Pace, Scenario, Simulation, scenario};
use std::collections::HashSet;

const KERNEL: u32 = 10;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const ALL: [u32; 3] = [KERNEL, MEMCPY, MEMSET];

fn load(scenario: &Scenario) -> Simulation {
    Simulation::load(scenario, Pace::Stepped).unwrap()
}

#[test]
fn mixed_delivers_every_record_it_owes() {
    let mut simulation = load(&scenario("mixed").unwrap());
    let client = Client::new(&ALL);
    simulation.turns(500);
    assert_eq!(client.flush(false), 0);
    let truth = simulation.truth();
    for (kind, cupti) in [(Kind::Kernel, KERNEL), (Kind::Memcpy, MEMCPY), (Kind::Memset, MEMSET)] {
        assert!(truth.executed(kind) > 0);
        assert_eq!(truth.executed(kind), truth.delivered(kind), "{kind:?}");
        assert_eq!(client.count(cupti), truth.delivered(kind), "{kind:?}");
    }
    assert_eq!(truth.misuse, Vec::<String>::new());
}

#[test]
fn nothing_comes_unless_it_was_enabled() {
    let mut simulation = load(&scenario("mixed").unwrap());
    simulation.turns(10);
    let client = Client::idle();
    simulation.turns(10);
    client.flush(false);
    assert_eq!(simulation.truth().delivered.len(), 0);
    client.enable(&[MEMCPY]);
    simulation.turns(10);
    client.flush(false);
    let truth = simulation.truth();
    assert_eq!(truth.delivered.keys().collect::<Vec<_>>(), [&Kind::Memcpy]);
    client.disable(&[MEMCPY]);
    let before = client.count(MEMCPY);
    simulation.turns(10);
    client.flush(false);
    assert_eq!(client.count(MEMCPY), before);
}

#[test]
fn vllm_has_the_names_and_the_rhythm_of_its_recording() {
    let mut simulation = load(&scenario("vllm").unwrap());
    let client = Client::new(&ALL);
    client.keep();
    simulation.turns(201);
    client.flush(false);
    let seen = client.seen();
    let kernels: Vec<_> = seen.iter().filter(|seen| seen.kind == KERNEL).collect();
    let names: HashSet<_> = kernels.iter().map(|seen| seen.name.as_str()).collect();
    assert_eq!(names.len(), 62);
    assert!(seen.iter().all(common::Seen::valid));
    // The decode steps, behind what came before them.
    let decode: Vec<_> = kernels.iter().skip_while(|seen| seen.graph != 4751).collect();
    let span = decode.last().unwrap().end - decode[0].start;
    let rate = decode.len() as f64 / span as f64 * 1e9;
    assert!((100_000.0..140_000.0).contains(&rate), "{rate}");
    assert_eq!(kernels.iter().filter(|seen| seen.graph == 4751).count(), 200 * 337);
}

#[test]
fn in_real_time_records_come_by_themselves() {
    let mut simulation = Simulation::load(&scenario("vllm").unwrap(), Pace::Real).unwrap();
    let client = Client::new(&ALL);
    simulation.run();
    while client.count(KERNEL) < 5_000 {
        std::thread::yield_now();
    }
    simulation.stop();
    client.flush(true);
    let truth = simulation.truth();
    assert_eq!(client.count(KERNEL), truth.delivered(Kind::Kernel));
    assert_eq!(truth.executed(Kind::Kernel), truth.delivered(Kind::Kernel));
}

#[test]
fn a_scenario_starts_by_its_name_or_as_toml() {
    let mut simulation = gtop_sim::start("quiet").unwrap();
    simulation.stop();
    assert_eq!(simulation.truth().crash, None);
    drop(simulation);
    let mut simulation = gtop_sim::start("[[thread]]\nturns = 7\nsteps = [{ kernel = 'k' }]").unwrap();
    simulation.wait();
    assert_eq!(simulation.truth().executed(Kind::Kernel), 7);
    drop(simulation);
    assert!(gtop_sim::start("loud").is_err());
    for bad in [
        "[[thread]]\nsteps = []",
        "[[thread]]\nsteps = [{ launch = 'nothing' }]",
        "[[thread]]\nsteps = [{ kernel = 'k', memset = 5 }]",
        "[[thread]]\ncontext = 9\nsteps = [{ kernel = 'k' }]",
        "[[thread]]\nreplay = 'nobody'",
        "[[graph]]\nname = 'g'\nnodes = [{ wait = '1ms' }]\n[[thread]]\nsteps = [{ launch = 'g' }]",
    ] {
        assert!(gtop_sim::start(bad).is_err(), "{bad}");
    }
}
